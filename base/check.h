#pragma once

#include <fmt/format.h>

namespace tapas {

/// Prints the message to stderr and aborts. Used by TAPAS_CHECK only.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace tapas

/// A broken invariant of our own code: never for bad input. Aborts; systemd restarts the daemon.
#define TAPAS_CHECK(condition, ...)                                                      \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      ::tapas::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                    \
  } while (false)
