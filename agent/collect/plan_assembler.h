#pragma once

#include "base/result.h"
#include "wire/message.h"

#include <cstdint>
#include <string>

namespace tapas::agent {

/// Puts the pieces of a plan's text together: in order, one plan at a time, at most
/// kMaxPlanChunks * kMaxPlanChunkBytes. Piece 0 starts anew and throws an unfinished plan away.
class PlanAssembler {
 public:
  /// True when this piece completes the plan; take_text() then has it. An error leaves it empty.
  [[nodiscard]] Result<bool> add(const wire::PlanChunk& chunk);
  [[nodiscard]] std::string take_text();

 private:
  std::uint64_t epoch_ = 0;
  bool active_ = false;
  std::uint32_t count_ = 0;  ///< 0 = nothing under way
  std::uint32_t next_ = 0;
  std::string text_;
};

}  // namespace tapas::agent
