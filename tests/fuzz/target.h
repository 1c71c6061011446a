#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// A fuzz target is one file with these two functions. libFuzzer calls the first; driver.cc runs
/// both as an ordinary test.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tapas::fuzz {

/// Good inputs to start from; mutations mix them.
std::vector<std::string> seeds();

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// A property of a decoder that does not hold: as fatal as a crash.
void require(bool holds, const char* what);

/// Text of a file of the project, such as "config/examples/tapasd.json".
std::string project_file(std::string_view path);

}  // namespace tapas::fuzz
