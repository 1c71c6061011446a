#include "agent/twin/pipeline.h"

#include "base/check.h"

#include <algorithm>
#include <cstddef>

namespace tapas::twin {

namespace {

// Arrival time of an input that has not been sent yet.
constexpr double kNotSent = -1.0;

struct Stage {
  double free_at = 0;
  std::uint32_t forwards = 0;
  std::uint32_t backwards = 0;
  std::uint32_t in_flight_limit = 0;
  std::vector<double> activation_at;  ///< by microbatch
  std::vector<double> gradient_at;
};

class Replica {
 public:
  Replica(solver::Schedule schedule, std::span<const StageTimes> times, std::uint32_t microbatches)
      : times_(times), microbatches_(microbatches), stages_(times.size()) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      stage.activation_at.assign(microbatches, s == 0 ? 0.0 : kNotSent);
      stage.gradient_at.assign(microbatches, kNotSent);
      stage.free_at = times[s].input_s;
      stage.in_flight_limit = schedule == solver::Schedule::kGpipe
                                  ? microbatches
                                  : static_cast<std::uint32_t>(stages_.size() - s);
    }
  }

  std::vector<double> run() {
    // The order inside a stage is fixed, so the times do not depend on which stage is looked at
    // first: each one goes as far as its inputs allow, then wakes its neighbours.
    std::vector<std::size_t> awake = {0};
    while (!awake.empty()) {
      const std::size_t s = awake.back();
      awake.pop_back();
      bool moved = false;
      while (advance(s)) {
        moved = true;
      }
      if (moved && s > 0) {
        awake.push_back(s - 1);
      }
      if (moved && s + 1 < stages_.size()) {
        awake.push_back(s + 1);
      }
    }
    std::vector<double> finish;
    finish.reserve(stages_.size());
    for (const Stage& stage : stages_) {
      TAPAS_CHECK(stage.backwards == microbatches_, "pipeline stalled after {} of {} microbatches",
                  stage.backwards, microbatches_);
      finish.push_back(stage.free_at);
    }
    return finish;
  }

 private:
  bool advance(std::size_t s) {
    Stage& stage = stages_[s];
    if (stage.backwards == microbatches_) {
      return false;
    }
    const bool forward =
        stage.forwards < microbatches_ && stage.forwards - stage.backwards < stage.in_flight_limit;
    const bool last = s + 1 == stages_.size();
    if (forward) {
      const std::uint32_t m = stage.forwards;
      if (stage.activation_at[m] == kNotSent) {
        return false;
      }
      const double end = std::max(stage.free_at, stage.activation_at[m]) + times_[s].forward_s;
      stage.free_at = end + times_[s].send_forward_s;
      (last ? stage.gradient_at : stages_[s + 1].activation_at)[m] = stage.free_at;
      ++stage.forwards;
      return true;
    }
    const std::uint32_t m = stage.backwards;
    if (stage.gradient_at[m] == kNotSent) {
      return false;
    }
    const double end = std::max(stage.free_at, stage.gradient_at[m]) + times_[s].backward_s;
    stage.free_at = end + times_[s].send_backward_s;
    if (s > 0) {
      stages_[s - 1].gradient_at[m] = stage.free_at;
    }
    ++stage.backwards;
    return true;
  }

  std::span<const StageTimes> times_;
  const std::uint32_t microbatches_;
  std::vector<Stage> stages_;
};

}  // namespace

std::vector<double> run_pipeline(solver::Schedule schedule, std::span<const StageTimes> stages,
                                 std::uint32_t microbatches) {
  TAPAS_CHECK(schedule != solver::Schedule::kInterleaved && microbatches > 0,
              "the twin runs 1F1B and GPipe with at least one microbatch");
  return Replica(schedule, stages, microbatches).run();
}

}  // namespace tapas::twin
