#include "solver/replan/full_replan.h"

#include "solver/check/check_plan.h"
#include "solver/check/check_switch.h"
#include "solver/cost/predict.h"
#include "solver/cost/switch_cost.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tapas::solver {
namespace {

bool is_slow(const Cluster& cluster, const ClusterState& state, NodeId node) {
  const NodeLinks links = state.links(node);
  double worst = std::max({links.send, links.receive, links.inside});
  for (std::uint32_t d = 0; d < cluster.type_of(node).devices; ++d) {
    worst = std::max(worst, state.slowdown(cluster.rank_of(node, d)));
  }
  return worst > kSlow;
}

/// The job on all nodes but some: spares and nodes left out change places, so that NodeIds stay.
Job without(Job job, const std::vector<bool>& left_out) {
  for (std::size_t n = 0; n < left_out.size(); ++n) {
    job.cluster.nodes[n].spare = left_out[n];
  }
  return job;
}

Result<FullReplan> solve_without(const Job& job, const ReplanRequest& request,
                                 const SolveOptions& options, const std::vector<bool>& left_out,
                                 std::string what) {
  auto outcome = solve(without(job, left_out), options);
  if (!outcome) {
    return fail_in("without " + what, outcome.error());
  }
  FullReplan full;
  full.plan = std::move(outcome->plan);
  full.plan.job = job.name;
  if (auto ok = check_plan(job, full.plan); !ok) {
    return fail_in("without " + what, ok.error());
  }
  full.without = std::move(what);
  full.moves = moves_between(job, request.current, full.plan);
  full.step_before_s =
      predict(job, request.current, request.state).step_time_s * request.calibration;
  full.step_after_s = predict(job, full.plan, request.state).step_time_s * request.calibration;
  full.switch_s = job.switch_pause_s + transfer_s(job, full.moves, request.state);
  full.expected_episode_s = request.expected_episode_s;
  full.obstacles = switch_violations(job, request.current, full.plan);
  return full;
}

}  // namespace

double FullReplan::net_gain_s(double solve_s) const {
  const double left = std::max(0.0, expected_episode_s - solve_s - switch_s);
  return std::min(solve_s, expected_episode_s) + left * step_before_s / step_after_s -
         expected_episode_s;
}

Result<FullReplan> full_replan(const Job& job, const ReplanRequest& request,
                               const SolveOptions& options) {
  if (auto ok = check_plan(job, request.current); !ok) {
    return fail_in("current plan", ok.error());
  }
  if (auto ok = validate(job.cluster, request.state); !ok) {
    return fail_in("replan", ok.error());
  }
  std::vector<bool> drained;
  std::vector<bool> drained_or_slow;
  for (std::uint32_t n = 0; n < job.cluster.nodes.size(); ++n) {
    const NodeId node(n);
    drained.push_back(request.state.is_drained(node));
    drained_or_slow.push_back(drained.back() || is_slow(job.cluster, request.state, node));
  }
  auto best = solve_without(job, request, options, drained, "drained nodes");
  if (drained_or_slow != drained && !options.stop.stop_requested()) {
    auto other = solve_without(job, request, options, drained_or_slow, "drained and slow nodes");
    if (other && (!best || other->net_gain_s(0) > best->net_gain_s(0))) {
      best = std::move(other);
    }
  }
  return best;
}

}  // namespace tapas::solver
