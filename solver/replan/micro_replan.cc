#include "solver/replan/micro_replan.h"

#include "solver/check/check_plan.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/cost/switch_cost.h"
#include "solver/replan/row_repair.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kGain = 1e-9;

struct Candidate {
  Plan plan;
  std::string how;  ///< ends the sentence "best is to ..."
  std::vector<LayerMove> moves;
  double step_s = 0;
  double switch_s = 0;
  double per_useful_step_s = kInfinity;  ///< over the episode, the switch paid
  std::size_t drained_in_use = 0;
};

class MicroReplan {
 public:
  MicroReplan(const Job& job, const ReplanRequest& request)
      : job_(job), request_(request), evaluator_(job) {}

  Proposal run() {
    Candidate best = judge(request_.current, "keep the plan");
    best.switch_s = 0;
    best.per_useful_step_s = best.step_s;
    const Candidate now = best;
    for (const auto& [start, how] : starts()) {
      for (Candidate& candidate : repairs(start, how)) {
        if (better(candidate, best) && plan_violations(job_, candidate.plan).empty()) {
          best = std::move(candidate);
        } else if (candidate.step_s < runner_up_.step_s || runner_up_.step_s == 0) {
          runner_up_ = std::move(candidate);
        }
      }
    }
    return propose(now, std::move(best));
  }

 private:
  Candidate judge(Plan plan, std::string how) {
    ++evaluated_;
    Candidate c;
    c.plan = std::move(plan);
    c.how = std::move(how);
    c.step_s = evaluator_.step_time_s(c.plan, request_.state) * request_.calibration;
    c.moves = moves_between(job_, request_.current, c.plan);
    c.switch_s = job_.switch_pause_s + transfer_s(job_, c.moves, request_.state);
    const double left = request_.expected_episode_s - c.switch_s;
    if (left > 0) {
      c.per_useful_step_s = c.step_s * request_.expected_episode_s / left;
    }
    std::set<NodeId> drained;
    for (const auto& row : c.plan.placement) {
      for (const Position& position : row) {
        if (request_.state.is_drained(position.node)) {
          drained.insert(position.node);
        }
      }
    }
    c.drained_in_use = drained.size();
    return c;
  }

  static bool better(const Candidate& a, const Candidate& b) {
    if (a.drained_in_use != b.drained_in_use) {
      return a.drained_in_use < b.drained_in_use;
    }
    if (a.per_useful_step_s == kInfinity && b.per_useful_step_s == kInfinity) {
      return a.step_s < b.step_s * (1 - kGain);
    }
    return a.per_useful_step_s < b.per_useful_step_s * (1 - kGain);
  }

  /// The current plan and, when it differs, the plan without earlier repairs: all replicas cut
  /// alike and loaded alike. Drained nodes are replaced by spares first.
  std::vector<std::pair<Plan, std::string>> starts() {
    std::vector<std::pair<Plan, std::string>> result;
    result.emplace_back(request_.current, "");
    Plan uniform = request_.current;
    uniform.replica_splits.clear();
    const std::uint32_t total = job_.total_microbatches();
    for (std::uint32_t r = 0; r < uniform.replicas(); ++r) {
      uniform.microbatches[r] =
          total / uniform.replicas() + (r < total % uniform.replicas() ? 1 : 0);
    }
    if (job_.capabilities.recompute) {
      least_recompute(uniform);
    }
    if (uniform.replica_splits != request_.current.replica_splits ||
        uniform.microbatches != request_.current.microbatches ||
        uniform.checkpoint != request_.current.checkpoint) {
      result.emplace_back(std::move(uniform), "go back to equal replicas");
    }
    for (auto& [plan, how] : result) {
      for (std::uint32_t n = 0; n < job_.cluster.nodes.size(); ++n) {
        if (request_.state.is_drained(NodeId(n))) {
          replace(plan, NodeId(n), how);
        }
      }
    }
    return result;
  }

  void least_recompute(Plan& plan) {
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      const LayerTable& table = evaluator_.table(evaluator_.sharding_of(plan, 0, s));
      const LayerRange range = stage_layers(plan, 0, s, table.layers());
      const std::uint32_t most =
          *std::max_element(plan.microbatches.begin(), plan.microbatches.end());
      if (const auto fit = fit_stage(table, evaluator_.rule_of(plan, 0, s), range,
                                     in_flight(plan.schedule, plan.stages(), s, most))) {
        mark_recomputed(table, range, *fit, plan.checkpoint);
      }
    }
  }

  /// Puts a free healthy spare of the same type in the node's place. False when there is none.
  bool replace(Plan& plan, NodeId node, std::string& how) {
    std::set<NodeId> used;
    for (const auto& row : plan.placement) {
      for (const Position& position : row) {
        used.insert(position.node);
      }
    }
    if (!used.contains(node)) {
      return false;
    }
    for (std::uint32_t n = 0; n < job_.cluster.nodes.size(); ++n) {
      const NodeId spare(n);
      const Node& facts = job_.cluster.nodes[n];
      if (!facts.spare || used.contains(spare) || request_.state.is_drained(spare) ||
          facts.type != job_.cluster.nodes[node.value()].type ||
          slowdown(spare) > RowRepair::kSlow) {
        continue;
      }
      for (auto& row : plan.placement) {
        for (Position& position : row) {
          position.node = position.node == node ? spare : position.node;
        }
      }
      how += (how.empty() ? "" : ", ") + fmt::format("put spare {} in the place of {}", facts.name,
                                                     job_.cluster.nodes[node.value()].name);
      return true;
    }
    return false;
  }

  double slowdown(NodeId node) const {
    Position whole{node, {}};
    for (std::uint32_t d = 0; d < job_.cluster.type_of(node).devices; ++d) {
      whole.devices.push_back(static_cast<std::uint16_t>(d));
    }
    return evaluator_.slowdown(request_.state, whole);
  }

  /// What can be done from a start, each step on top of nothing but the start.
  std::vector<Candidate> repairs(const Plan& start, const std::string& how) {
    const auto named = [&](const std::string& more) {
      return how + (how.empty() || more.empty() ? "" : ", ") + more;
    };
    std::vector<Candidate> result;
    result.push_back(judge(start, how));
    RowRepair repair(evaluator_, request_.state, evaluated_);
    const auto balanced = [&](Plan plan, const std::string& more) {
      if (job_.capabilities.microbatch_counts) {
        repair.balance_microbatches(plan);
      }
      result.push_back(judge(std::move(plan), named(more)));
    };
    balanced(start, "move microbatches between replicas");
    for (const bool recompute : {false, true}) {
      if (recompute && !job_.capabilities.recompute) {
        continue;
      }
      Plan plan = start;
      repair.cut_pairs(plan, recompute);
      balanced(std::move(plan), recompute ? "re-cut slow stages with their neighbours and recompute"
                                          : "re-cut slow stages with their neighbours");
    }
    Plan fresh = start;
    std::string swaps;
    for (const NodeId node : slow_nodes(start)) {
      replace(fresh, node, swaps);
    }
    if (!swaps.empty()) {
      repair.cut_pairs(fresh, false);
      balanced(std::move(fresh), swaps);
    }
    return result;
  }

  std::vector<NodeId> slow_nodes(const Plan& plan) const {
    std::map<NodeId, double> slow;
    for (const auto& row : plan.placement) {
      for (const Position& position : row) {
        const double factor = evaluator_.slowdown(request_.state, position);
        if (factor > RowRepair::kSlow) {
          slow[position.node] = std::max(slow[position.node], factor);
        }
      }
    }
    std::vector<NodeId> nodes;
    for (const auto& [node, factor] : slow) {
      nodes.push_back(node);
    }
    std::stable_sort(nodes.begin(), nodes.end(),
                     [&](NodeId a, NodeId b) { return slow[a] > slow[b]; });
    return nodes;
  }

  /// The healthy bound of the search, as slower devices only hurt; or all work at the summed speed
  /// of all devices, transfers free.
  double lower_bound_s() {
    double speed = 0;
    double fastest = 1;
    for (std::uint32_t rank = 0; rank < job_.cluster.device_count(); ++rank) {
      const double factor = request_.state.slowdown(RankId(rank));
      speed += 1 / factor;
      fastest = std::min(fastest, factor);
    }
    double work = kInfinity;
    for (std::uint32_t type = 0; type < job_.cluster.node_types.size(); ++type) {
      const LayerTable& table = evaluator_.table({type, 1, false});
      const LayerCost sum = table.sum({0, table.layers()});
      work = std::min(work, sum.times.forward_s + sum.times.backward_s);
    }
    const double by_work = work * job_.total_microbatches() / speed;
    return std::max(by_work, request_.current.predicted.lower_bound_s * fastest) *
           request_.calibration;
  }

  Proposal propose(const Candidate& now, Candidate best) {
    Proposal proposal;
    proposal.step_before_s = now.step_s;
    proposal.lower_bound_s = lower_bound_s();
    proposal.plans_evaluated = evaluated_;
    proposal.improves = better(best, now);
    if (!proposal.improves) {
      proposal.plan = request_.current;
      proposal.step_after_s = now.step_s;
      proposal.reason = stay_reason(now) + drained_note(now);
      return proposal;
    }
    std::set<std::uint32_t> stages;
    for (const LayerMove& move : best.moves) {
      stages.insert({move.from_stage, move.to_stage});
    }
    proposal.stages_touched.assign(stages.begin(), stages.end());
    proposal.step_after_s = best.step_s;
    proposal.switch_s = best.switch_s;
    proposal.net_gain_s = (request_.expected_episode_s - best.switch_s) * now.step_s / best.step_s -
                          request_.expected_episode_s;
    double bytes = 0;
    for (const LayerMove& move : best.moves) {
      bytes += move.bytes;
    }
    proposal.reason = fmt::format(
        "best is to {}: the step goes from {:.3f} s to {:.3f} s (no plan is below {:.3f} s), the "
        "switch takes {:.1f} s and moves {} layers ({:.1f} GB), the gain over {:.0f} s is {:.1f} s",
        best.how, now.step_s, best.step_s, proposal.lower_bound_s, best.switch_s, best.moves.size(),
        bytes / 1e9, request_.expected_episode_s, proposal.net_gain_s);
    proposal.reason += drained_note(best);
    proposal.moves = std::move(best.moves);
    proposal.plan = std::move(best.plan);
    proposal.plan.parent = request_.current.epoch;
    proposal.plan.epoch = Epoch(request_.current.epoch.value() + 1);
    const double healthy_bound = request_.current.predicted.lower_bound_s;
    proposal.plan.predicted = predict(job_, proposal.plan);
    proposal.plan.predicted.lower_bound_s = healthy_bound;
    proposal.plan.predicted.gap_ratio =
        healthy_bound > 0 ? proposal.plan.predicted.step_time_s / healthy_bound - 1 : 0;
    return proposal;
  }

  std::string stay_reason(const Candidate& now) const {
    if (runner_up_.step_s > 0 && runner_up_.step_s < now.step_s * (1 - kGain)) {
      return fmt::format(
          "the plan stays: to {} would bring the step from {:.3f} s to {:.3f} s, but the switch "
          "takes {:.1f} s, more than that saves in {:.0f} s",
          runner_up_.how, now.step_s, runner_up_.step_s, runner_up_.switch_s,
          request_.expected_episode_s);
    }
    return fmt::format("the plan stays: no repair of the affected stages is below {:.3f} s",
                       now.step_s);
  }

  std::string drained_note(const Candidate& chosen) const {
    return chosen.drained_in_use == 0
               ? ""
               : fmt::format("; {} drained node(s) stay in use because no healthy spare is free",
                             chosen.drained_in_use);
  }

  const Job& job_;
  const ReplanRequest& request_;
  PlanEvaluator evaluator_;
  Candidate runner_up_;
  std::uint64_t evaluated_ = 0;
};

}  // namespace

Result<Proposal> micro_replan(const Job& job, const ReplanRequest& request,
                              const ReplanLimits& limits) {
  const std::uint32_t size = request.current.micro_batch_size;
  if (size != 0 && size != job.graph.micro_batch_size && job.global_batch % size == 0) {
    return micro_replan(with_micro_batch_size(job, size), request, limits);
  }
  if (auto ok = check_plan(job, request.current); !ok) {
    return fail_in("current plan", ok.error());
  }
  if (request.current.interleave > 1) {
    return fail(
        ErrorCode::kInvalid,
        "job {}: a plan with interleave {} is not repaired while it runs; solve the job anew "
        "without the slow nodes, or use schedule 1f1b",
        job.name, request.current.interleave);
  }
  if (!(request.calibration > 0) || !std::isfinite(request.calibration) ||
      !(request.expected_episode_s >= 0)) {
    return fail(ErrorCode::kInvalid,
                "replan: calibration {} must be positive and expected_episode_s {} not negative",
                request.calibration, request.expected_episode_s);
  }
  if (auto ok = validate(job.cluster, request.state); !ok) {
    return fail_in("replan", ok.error());
  }
  return MicroReplan(job, request).run();
}

}  // namespace tapas::solver
