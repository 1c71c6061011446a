#include "agent/collect/plan_assembler.h"

#include <utility>

namespace tapas::agent {

Result<bool> PlanAssembler::add(const wire::PlanChunk& chunk) {
  const bool bounded = chunk.count > 0 && chunk.count <= wire::kMaxPlanChunks &&
                       chunk.index < chunk.count && !chunk.text.empty() &&
                       chunk.text.size() <= wire::kMaxPlanChunkBytes;
  if (!bounded) {
    *this = {};
    return fail(ErrorCode::kInvalid, "plan piece {} of {} with {} bytes is out of bounds",
                chunk.index, chunk.count, chunk.text.size());
  }
  if (chunk.index == 0) {
    epoch_ = chunk.epoch;
    active_ = chunk.active;
    count_ = chunk.count;
    next_ = 0;
    text_.clear();
  }
  if (chunk.epoch != epoch_ || chunk.active != active_ || chunk.count != count_ ||
      chunk.index != next_) {
    auto error = fail(ErrorCode::kInvalid,
                      "plan piece {} of {} for epoch {} came where piece {} of {} for epoch {} was "
                      "expected; the plan is dropped until it is sent again",
                      chunk.index, chunk.count, chunk.epoch, next_, count_, epoch_);
    *this = {};
    return error;
  }
  text_ += chunk.text;
  ++next_;
  if (next_ < count_) {
    return false;
  }
  count_ = 0;
  return true;
}

std::string PlanAssembler::take_text() { return std::exchange(text_, {}); }

}  // namespace tapas::agent
