#include "base/ids.h"

#include <algorithm>

namespace tapas {

namespace {
constexpr std::size_t kMaxNameLength = 253;  // RFC 1035 section 2.3.4, textual form

bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
}  // namespace

bool valid_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameLength || !is_alnum(name.front())) {
    return false;
  }
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_alnum(c) || c == '.' || c == '_' || c == '-'; });
}

}  // namespace tapas
