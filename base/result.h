#pragma once

#include <fmt/format.h>
#include <tl/expected.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace tapas {

/// What a caller can do about an error. A code exists only where callers react differently.
enum class ErrorCode {
  kInvalid,      ///< The input is wrong: fix it and try again.
  kInfeasible,   ///< The input is fine but no answer exists.
  kNotFound,     ///< The named thing does not exist.
  kConflict,     ///< The state moved on, or the request contradicts it.
  kDenied,       ///< The caller may not do this.
  kUnavailable,  ///< The other side is away: retry later.
  kTimeout,      ///< No answer in time; the outcome is unknown.
  kIo,           ///< The operating system or the database failed.
};

std::string_view to_string(ErrorCode code);

/// A failed operation: what was tried, on what, what was seen, and what to do next.
struct Error {
  ErrorCode code = ErrorCode::kInvalid;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;

/// Builds the error side of a Result: `return fail(ErrorCode::kInvalid, "line {}: ...", line);`
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format,
                                         Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

/// Passes an error on, with the place it happened in put in front of it.
[[nodiscard]] inline tl::unexpected<Error> fail_in(std::string_view where, const Error& error) {
  return tl::unexpected<Error>(Error{error.code, fmt::format("{}: {}", where, error.message)});
}

}  // namespace tapas
