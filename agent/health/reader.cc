#include "agent/health/reader.h"

#include "agent/health/read_node.h"

namespace tapas::agent::health {

void Reader::counters(std::string_view below, std::string_view skip) {
  const auto listing = tree_.list(path(below));
  if (!listing) {
    gap(below, listing.error().message);
    return;
  }
  std::size_t taken = 0;
  for (const std::string& name : listing->names) {
    if (name == skip) {
      continue;
    }
    if (++taken > kMaxCountersPerFolder) {
      gap(below, fmt::format("only the first {} are shown", kMaxCountersPerFolder));
      return;
    }
    const std::string file = fmt::format("{}/{}", below, name);
    counter(name, value(file, parse_count));
  }
}

}  // namespace tapas::agent::health
