#pragma once

#include "base/result.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace tapas::agent::health {

/// Tells what is done next, so that somebody else can say where it hung.
using Step = std::function<void(std::string_view)>;
using Work = std::function<Result<std::string>(const Step&)>;

constexpr std::size_t kMaxAnswerBytes = 32U << 20U;

/// Does `work` in a child process and returns what it returned, its error too. A driver may never
/// come back from a call, or crash in it; then the child is killed and the error says so with the
/// last step: kTimeout when `limit` was over, kUnavailable when the child died without an answer.
/// Waits a second for a killed child; one that the kernel still holds then is left to init, which
/// takes it over when this process ends.
/// Requires: this process has no other threads, as a child has none of them.
[[nodiscard]] Result<std::string> in_child(const Work& work, std::chrono::milliseconds limit);

}  // namespace tapas::agent::health
