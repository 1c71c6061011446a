#pragma once

#include "base/result.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::agent::health {

/// Reads /sys, /proc, or a copy of one, and never anything outside: links that lead out of the
/// root, whatever is no regular file, and files over kMaxFileBytes are refused. Never waits for a
/// writer, but a driver may take its time to answer. Error messages say only why ("is not there"):
/// the caller knows which path. Any thread.
class SysTree {
 public:
  static constexpr std::size_t kMaxFileBytes = 4096;  ///< What the kernel gives one sysfs file.
  static constexpr std::size_t kMaxEntries = 4096;    ///< Names taken from one folder.

  /// kNotFound when `root` is no folder.
  [[nodiscard]] static Result<SysTree> open(const std::string& root);

  /// The file's text without blanks around it, control characters shown as '?' (but for line ends).
  [[nodiscard]] Result<std::string> read(std::string_view path) const;

  struct Listing {
    std::vector<std::string> names;  ///< sorted
    bool cut = false;                ///< There were more than kMaxEntries.
  };
  [[nodiscard]] Result<Listing> list(std::string_view path) const;

  [[nodiscard]] bool has(std::string_view path) const { return resolve(path).has_value(); }
  /// The path below the root with all links followed: where in the tree of devices something is.
  [[nodiscard]] Result<std::string> resolve(std::string_view path) const;

 private:
  explicit SysTree(std::string root) : root_(std::move(root)) {}

  std::string root_;  ///< Without links and without a slash at the end, so "" for "/".
};

}  // namespace tapas::agent::health
