#pragma once

#include "agent/twin/pipeline.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <tuple>
#include <vector>

namespace tapas::twin {

/// The slow way to run_pipeline()'s answer: writes every stage's order down, then lets end times
/// grow until all "after its predecessor here" and "after its input arrived" constraints hold.
inline std::vector<double> naive_pipeline(solver::Schedule schedule,
                                          std::span<const StageTimes> stages, int microbatches) {
  struct Op {
    int stage;
    bool forward;
    int microbatch;
  };
  const int count = static_cast<int>(stages.size());
  std::vector<std::vector<Op>> order(stages.size());
  for (int s = 0; s < count; ++s) {
    auto& mine = order[static_cast<std::size_t>(s)];
    const int warm_up =
        schedule == solver::Schedule::kGpipe ? microbatches : std::min(count - 1 - s, microbatches);
    for (int m = 0; m < warm_up; ++m) {
      mine.push_back({s, true, m});
    }
    for (int m = warm_up; m < microbatches; ++m) {
      mine.push_back({s, true, m});
      mine.push_back({s, false, m - warm_up});
    }
    for (int m = microbatches - warm_up; m < microbatches; ++m) {
      mine.push_back({s, false, m});
    }
  }
  std::map<std::tuple<int, bool, int>, double>
      sent;  // when the stage is free and the neighbour has it
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& mine : order) {
      double free_at = mine.empty() ? 0 : stages[static_cast<std::size_t>(mine[0].stage)].input_s;
      for (const Op& op : mine) {
        const StageTimes& t = stages[static_cast<std::size_t>(op.stage)];
        double ready = free_at;
        if (op.forward && op.stage > 0) {
          ready = std::max(ready, sent[{op.stage - 1, true, op.microbatch}]);
        }
        if (!op.forward) {
          const bool last = op.stage + 1 == count;
          ready = std::max(ready, sent[{last ? op.stage : op.stage + 1, last, op.microbatch}]);
        }
        free_at = ready +
                  (op.forward ? t.forward_s + t.send_forward_s : t.backward_s + t.send_backward_s);
        double& known = sent[{op.stage, op.forward, op.microbatch}];
        changed = changed || known != free_at;
        known = free_at;
      }
    }
  }
  std::vector<double> finish;
  for (int s = 0; s < count; ++s) {
    finish.push_back(sent[{s, false, microbatches - 1}]);
  }
  return finish;
}

}  // namespace tapas::twin
