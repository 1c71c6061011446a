#include "ctl/events_text.h"

#include "ctl/fields.h"
#include "ctl/table.h"

namespace tapas::ctl {

std::string short_time(std::string_view iso) {
  constexpr std::size_t kLength = 24;
  if (iso.size() != kLength || iso[10] != 'T' || iso.back() != 'Z') {
    return printable(iso);
  }
  return printable(iso.substr(5, 5)) + " " + printable(iso.substr(11, 12));
}

std::string event_line(const json::Value& event) {
  return fmt::format("{:>6}  {}  {:<18}  {}", count_at(event, "id"),
                     short_time(text_at(event, "time")), printable(text_at(event, "kind")),
                     printable(text_at(event, "sentence")));
}

}  // namespace tapas::ctl
