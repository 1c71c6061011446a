#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tapas {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  fmt::print(stderr, "{}:{}: invariant broken: {}: {}\n", file, line, condition, message);
  std::fflush(stderr);
  std::abort();
}

}  // namespace tapas
