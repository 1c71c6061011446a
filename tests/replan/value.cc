#include "tests/replan/value.h"

#include "solver/check/check_plan.h"
#include "solver/check/check_switch.h"
#include "solver/cost/switch_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tapas::solver::testing {
namespace {

// Far above every time per useful step: no episode is long enough for such a switch.
constexpr double kHopeless = 1e12;
constexpr double kRounding = 1e-9;

}  // namespace

double per_useful_step_s(double step_s, double switch_s, double episode_s) {
  if (switch_s == 0) {
    return step_s;
  }
  return switch_s < episode_s ? step_s * episode_s / (episode_s - switch_s) : step_s * kHopeless;
}

bool better(const Value& a, const Value& b) {
  if (a.drained_in_use != b.drained_in_use) {
    return a.drained_in_use < b.drained_in_use;
  }
  return a.per_useful_step_s < b.per_useful_step_s * (1 - kRounding);
}

double gap_to(const Value& a, const Value& optimum) {
  if (a.drained_in_use > optimum.drained_in_use) {
    return std::numeric_limits<double>::infinity();
  }
  return a.per_useful_step_s / optimum.per_useful_step_s - 1;
}

bool same_plan(const Plan& a, const Plan& b) {
  if (a.placement != b.placement || a.microbatches != b.microbatches) {
    return false;
  }
  for (std::uint32_t r = 0; r < a.replicas(); ++r) {
    if (a.splits_of(r) != b.splits_of(r) || a.checkpoint_of(r) != b.checkpoint_of(r)) {
      return false;
    }
  }
  return true;
}

Value Judge::value(const Plan& plan) {
  Value value;
  std::set<NodeId> drained;
  for (const auto& row : plan.placement) {
    for (const Position& position : row) {
      if (request_.state.is_drained(position.node)) {
        drained.insert(position.node);
      }
    }
  }
  value.drained_in_use = drained.size();
  value.step_s = evaluator_.step_time_s(plan, request_.state) * request_.calibration;
  if (!same_plan(plan, request_.current)) {
    value.switch_s = job_.switch_pause_s +
                     transfer_s(job_, moves_between(job_, request_.current, plan), request_.state);
  }
  value.per_useful_step_s =
      per_useful_step_s(value.step_s, value.switch_s, request_.expected_episode_s);
  return value;
}

bool Judge::allows(const Plan& plan) const {
  return plan_violations(job_, plan).empty() &&
         switch_violations(job_, request_.current, plan).empty();
}

std::vector<std::string> breaches(const Job& job, const ReplanRequest& request, const Plan& plan) {
  std::vector<std::string> found = plan_violations(job, plan);
  if (!found.empty()) {
    return found;
  }
  for (std::string& sentence : switch_violations(job, request.current, plan)) {
    found.push_back(std::move(sentence));
  }
  const Plan& current = request.current;
  if (plan.replicas() != current.replicas() || plan.stages() != current.stages()) {
    found.push_back(fmt::format("{} replicas of {} stages became {} of {}", current.replicas(),
                                current.stages(), plan.replicas(), plan.stages()));
    return found;
  }
  const auto in_use = [&](NodeId node) {
    return std::any_of(current.placement.begin(), current.placement.end(), [&](const auto& row) {
      return std::any_of(row.begin(), row.end(),
                         [&](const Position& position) { return position.node == node; });
    });
  };
  const std::uint32_t layers = job.graph.layer_count();
  const Capabilities& can = job.capabilities;
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      const Position& before = current.placement[r][s];
      const Position& after = plan.placement[r][s];
      const LayerRange had = stage_layers(current, r, s, layers);
      const LayerRange has = stage_layers(plan, r, s, layers);
      const auto pinned = [&](NodeId node) {
        return node.value() < request.pinned.size() && request.pinned[node.value()];
      };
      if ((pinned(before.node) || pinned(after.node)) &&
          (before != after || had.first != has.first || had.last != has.last)) {
        found.push_back(fmt::format("stage {} of replica {} is pinned, yet it changed", s, r));
      }
      if (request.state.is_drained(after.node) && !in_use(after.node)) {
        found.push_back(fmt::format("stage {} of replica {} went to a drained node", s, r));
      }
      if (!can.placement && before != after) {
        found.push_back(fmt::format("stage {} of replica {} moved to other devices", s, r));
      }
      if (!can.narrower_groups && before.devices.size() != after.devices.size()) {
        found.push_back(fmt::format("stage {} of replica {} changed its width", s, r));
      }
    }
    if (!can.replica_splits && plan.splits_of(r) != plan.splits_of(0)) {
      found.push_back(fmt::format("replica {} is cut apart from the others", r));
    }
    if (!can.recompute && plan.checkpoint_of(r) != current.checkpoint_of(r)) {
      found.push_back(fmt::format("replica {} recomputes other layers", r));
    }
  }
  if (!can.microbatch_counts && plan.microbatches != current.microbatches) {
    found.push_back("replicas take other numbers of microbatches");
  }
  return found;
}

}  // namespace tapas::solver::testing
