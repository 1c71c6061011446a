#pragma once

#include "base/result.h"

#include <string>

namespace tapas::ctl {

/// Writes or replaces a file of the operator's; errors name the path.
[[nodiscard]] Result<void> write_file(const std::string& path, const std::string& text);

/// The same, or to stdout when no path is given.
[[nodiscard]] Result<void> write_or_print(const std::string& path, const std::string& text);

}  // namespace tapas::ctl
