#include "base/clean.h"

#include <cstddef>

namespace tapas {

namespace {

constexpr std::size_t kMaxLength = 128;

}  // namespace

std::string clean(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMaxLength)) {
    out += (c >= 0x20 && c < 0x7f) ? c : '?';
  }
  return text.size() > kMaxLength ? out + "..." : out;
}

}  // namespace tapas
