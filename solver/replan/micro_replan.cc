#include "solver/replan/micro_replan.h"

#include "solver/check/check_plan.h"
#include "solver/check/check_switch.h"
#include "solver/cost/plan_evaluator.h"
#include "solver/cost/switch_cost.h"
#include "solver/replan/local_search.h"
#include "solver/replan/problem.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

namespace tapas::solver {
namespace {

// Closer to the bound than this nothing is worth looking for.
constexpr double kAtBound = 1e-4;
constexpr double kGain = 1e-9;
// What the end of a call takes, in times of its start: both check, time and judge a plan, the end
// one whose replicas differ more.
constexpr double kEnd = 1.4;
constexpr double kTrimAndEnd = 2;

class MicroReplan {
 public:
  /// `time_left_s`: when the call began.
  MicroReplan(const Job& job, const ReplanRequest& request, const ReplanLimits& limits,
              const Mechanisms& mechanisms, double time_left_s)
      : job_(job),
        request_(request),
        limits_(limits),
        time_left_s_(time_left_s),
        evaluator_(job),
        problem_(evaluator_, request.current, request.state, request.pinned),
        layout_(problem_, request.expected_episode_s, job.switch_pause_s),
        search_(layout_, limits, mechanisms),
        bound_s_(lower_bound_s(problem_)),
        now_(judge(request.current)) {
    now_.useful_s = now_.step_s;  // no switch
    start_s_ = elapsed_s();
    search_.keep_back(kTrimAndEnd * start_s_);
  }

  Proposal run() {
    search();
    search_.keep_back(kEnd * start_s_);
    search_.trim();
    search_.restore_best();
    return propose(layout_.plan());
  }

 private:
  void search() {
    using Widening = void (LocalSearch::*)();
    const std::pair<const char*, Widening> widenings[] = {
        {"microbatches", &LocalSearch::balance}, {"pair", &LocalSearch::pairs},
        {"spares", &LocalSearch::spares},        {"replicas", &LocalSearch::replicas},
        {"nodes", &LocalSearch::nodes},          {"wide", &LocalSearch::wide},
    };
    for (const auto& [what, widen] : widenings) {
      (search_.*widen)();
      tried_.push_back(
          {what, search_.best().step_s * request_.calibration, layout_.evaluations(), elapsed_s()});
      if (search_.best().drained == 0 && search_.best().step_s <= bound_s_ * (1 + kAtBound)) {
        stopped_ = "the bound is reached";
        return;
      }
      if (search_.spent()) {
        stopped_ = search_.why_spent();
        return;
      }
    }
    stopped_ = "nothing else may change";
  }

  double elapsed_s() const {
    return limits_.time_left_s ? time_left_s_ - limits_.time_left_s() : 0;
  }

  struct Judged {
    double step_s = 0;
    double switch_s = 0;
    double useful_s = 0;
    std::vector<LayerMove> moves;
    std::set<NodeId> drained;
  };

  Judged judge(const Plan& plan) {
    Judged judged;
    judged.step_s = evaluator_.step_time_s(plan, request_.state) * request_.calibration;
    judged.moves = moves_between(job_, request_.current, plan);
    judged.switch_s = job_.switch_pause_s + transfer_s(job_, judged.moves, request_.state);
    const double left = request_.expected_episode_s - judged.switch_s;
    judged.useful_s = left > 0 ? judged.step_s * request_.expected_episode_s / left : kForever;
    for (const auto& row : plan.placement) {
      for (const Position& position : row) {
        if (request_.state.is_drained(position.node)) {
          judged.drained.insert(position.node);
        }
      }
    }
    return judged;
  }

  static bool better(const Judged& a, const Judged& b) {
    if (a.drained.size() != b.drained.size()) {
      return a.drained.size() < b.drained.size();
    }
    return a.useful_s < b.useful_s * (1 - kGain);
  }

  Proposal propose(Plan plan) {
    const Judged& now = now_;
    Judged best = judge(plan);
    Proposal proposal;
    proposal.step_before_s = now.step_s;
    proposal.step_after_s = now.step_s;
    proposal.lower_bound_s = bound_s_ * request_.calibration;
    proposal.plans_evaluated = layout_.evaluations();
    proposal.tried = std::move(tried_);
    proposal.stopped = std::move(stopped_);
    proposal.plan = request_.current;
    if (!better(best, now)) {
      proposal.reason = stay_reason(now, best) + drained_note(now);
      return proposal;
    }
    std::vector<std::string> refused = plan_violations(job_, plan);
    if (refused.empty()) {
      refused = switch_violations(job_, request_.current, plan);
    }
    if (!refused.empty()) {
      proposal.reason =
          fmt::format("the plan stays: the best one found is refused: {}", refused.front()) +
          drained_note(now);
      return proposal;
    }
    proposal.improves = true;
    std::set<std::uint32_t> stages;
    double bytes = 0;
    for (const LayerMove& move : best.moves) {
      stages.insert({move.from_stage, move.to_stage});
      bytes += move.bytes;
    }
    proposal.stages_touched.assign(stages.begin(), stages.end());
    proposal.step_after_s = best.step_s;
    proposal.switch_s = best.switch_s;
    proposal.net_gain_s = (request_.expected_episode_s - best.switch_s) * now.step_s / best.step_s -
                          request_.expected_episode_s;
    proposal.change = what_changes(plan);
    proposal.reason = fmt::format(
        "best is to {}: the step goes from {:.3f} s to {:.3f} s (no plan is below {:.3f} s), the "
        "switch takes {:.1f} s and moves {} layers ({:.1f} GB), the gain over {:.0f} s is {:.1f} s",
        proposal.change, now.step_s, best.step_s, proposal.lower_bound_s, best.switch_s,
        best.moves.size(), bytes / 1e9, request_.expected_episode_s, proposal.net_gain_s);
    proposal.reason += drained_note(best);
    proposal.moves = std::move(best.moves);
    plan.parent = request_.current.epoch;
    plan.epoch = Epoch(request_.current.epoch.value() + 1);
    const double healthy_bound = request_.current.predicted.lower_bound_s;
    plan.predicted = predict(evaluator_, plan);
    plan.predicted.lower_bound_s = healthy_bound;
    plan.predicted.gap_ratio =
        healthy_bound > 0 ? plan.predicted.step_time_s / healthy_bound - 1 : 0;
    proposal.plan = std::move(plan);
    return proposal;
  }

  std::string name(std::uint32_t node) const { return job_.cluster.nodes[node].name; }

  /// "put spare a in the place of b, exchange c and d, cut 3 replicas anew, move 4 microbatches".
  std::string what_changes(const Plan& plan) const {
    const Plan& old = request_.current;
    std::set<NodeId> before;
    std::set<NodeId> after;
    std::set<NodeId> elsewhere;
    std::uint32_t cut_anew = 0;
    std::uint32_t recomputing = 0;
    std::uint32_t narrower = 0;
    std::uint32_t microbatches = 0;
    for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
      for (std::uint32_t s = 0; s < plan.stages(); ++s) {
        const Position& from = old.placement[r][s];
        const Position& to = plan.placement[r][s];
        before.insert(from.node);
        after.insert(to.node);
        if (from.node != to.node) {
          elsewhere.insert({from.node, to.node});
        }
        narrower += from.devices.size() != to.devices.size() ? 1 : 0;
      }
      cut_anew += plan.splits_of(r) != old.splits_of(r) ? 1 : 0;
      recomputing += plan.checkpoint_of(r) != old.checkpoint_of(r) ? 1 : 0;
      microbatches += plan.microbatches[r] > old.microbatches[r]
                          ? plan.microbatches[r] - old.microbatches[r]
                          : 0;
    }
    std::vector<std::string> in;
    std::vector<std::string> out;
    std::vector<std::string> moved;
    for (const NodeId node : elsewhere) {
      if (!before.contains(node)) {
        in.push_back(name(node.value()));
      } else if (!after.contains(node)) {
        out.push_back(name(node.value()));
      } else {
        moved.push_back(name(node.value()));
      }
    }
    std::vector<std::string> parts;
    if (!in.empty()) {
      parts.push_back(
          fmt::format("take {} instead of {}", fmt::join(in, " and "), fmt::join(out, " and ")));
    }
    if (!moved.empty()) {
      constexpr std::size_t kNamed = 4;
      parts.push_back(moved.size() <= kNamed
                          ? fmt::format("give {} other stages", fmt::join(moved, " and "))
                          : fmt::format("give {} nodes other stages", moved.size()));
    }
    if (cut_anew > 0) {
      parts.push_back(fmt::format("cut {} of {} replicas anew", cut_anew, plan.replicas()));
    }
    if (narrower > 0) {
      parts.push_back(fmt::format("change the TP width of {} stages", narrower));
    }
    if (microbatches > 0) {
      parts.push_back(fmt::format("move {} microbatches between replicas", microbatches));
    }
    if (parts.empty()) {
      parts.push_back(fmt::format("change what {} replicas recompute", recomputing));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  std::string stay_reason(const Judged& now, const Judged& best) const {
    if (best.step_s < now.step_s * (1 - kGain)) {
      return fmt::format(
          "the plan stays: the step could come from {:.3f} s to {:.3f} s, but the switch takes "
          "{:.1f} s, more than that saves in {:.0f} s",
          now.step_s, best.step_s, best.switch_s, request_.expected_episode_s);
    }
    return fmt::format("the plan stays: nothing found is below {:.3f} s", now.step_s);
  }

  std::string drained_note(const Judged& chosen) const {
    return chosen.drained.empty()
               ? ""
               : fmt::format("; {} drained node(s) stay in use because no healthy spare is free",
                             chosen.drained.size());
  }

  const Job& job_;
  const ReplanRequest& request_;
  const ReplanLimits& limits_;
  const double time_left_s_;
  PlanEvaluator evaluator_;
  Problem problem_;
  Layout layout_;
  LocalSearch search_;
  const double bound_s_;
  Judged now_;          ///< the current plan
  double start_s_ = 0;  ///< what it took to get here
  std::vector<Tried> tried_;
  std::string stopped_;
};

}  // namespace

Result<Proposal> micro_replan(const Job& job, const ReplanRequest& request,
                              const ReplanLimits& limits) {
  return micro_replan(job, request, limits, Mechanisms());
}

Result<Proposal> micro_replan(const Job& job, const ReplanRequest& request,
                              const ReplanLimits& limits, const Mechanisms& mechanisms) {
  const double time_left_s = limits.time_left_s ? limits.time_left_s() : 0;
  const std::uint32_t size = request.current.micro_batch_size;
  if (size != 0 && size != job.graph.micro_batch_size && job.global_batch % size == 0) {
    return micro_replan(with_micro_batch_size(job, size), request, limits, mechanisms);
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
  if (!request.pinned.empty() && request.pinned.size() != job.cluster.nodes.size()) {
    return fail(ErrorCode::kInvalid, "replan: pins for {} nodes, but the cluster has {}",
                request.pinned.size(), job.cluster.nodes.size());
  }
  return MicroReplan(job, request, limits, mechanisms, time_left_s).run();
}

}  // namespace tapas::solver
