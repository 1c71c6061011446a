#include "target.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace tapas::fuzz {

void require(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "broken property: %s\n", what);
    std::abort();
  }
}

std::string project_file(std::string_view path) {
  std::ifstream file(std::string(TAPAS_SOURCE_DIR "/").append(path), std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "seed %.*s is missing\n", static_cast<int>(path.size()), path.data());
    std::exit(1);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace tapas::fuzz
