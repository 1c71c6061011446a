#include "solver/replan/row_repair.h"

#include "solver/cost/pipeline.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

// Differences below this share are rounding, not gains.
constexpr double kGain = 1e-9;

}  // namespace

double RowRepair::row_time_s(const Plan& plan, std::uint32_t replica) {
  ++evaluated_;
  return evaluator_.class_time_s(evaluator_.class_of(evaluator_.pipeline_of(plan, replica, state_)),
                                 plan.microbatches[replica]);
}

double RowRepair::scope_time_s(const Plan& plan, Scope scope) {
  double slowest = 0;
  for (std::uint32_t r = scope.first; r < scope.last; ++r) {
    slowest = std::max(slowest, row_time_s(plan, r));
  }
  return slowest;
}

bool RowRepair::make_fit(Plan& plan, Scope scope, std::uint32_t stage, bool recompute) {
  for (std::uint32_t r = scope.first; r < scope.last; ++r) {
    const MemoryRule rule = evaluator_.rule_of(plan, r, stage);
    if (evaluator_.memory_bytes(plan, r, stage) <= rule.capacity_bytes) {
      continue;
    }
    if (!recompute) {
      return false;
    }
    const LayerTable& table = evaluator_.table(evaluator_.sharding_of(plan, r, stage));
    const LayerRange range = stage_layers(plan, r, stage, table.layers());
    const auto fit = fit_stage(
        table, rule, range, in_flight(plan.schedule, plan.stages(), stage, plan.microbatches[r]));
    if (!fit) {
      return false;
    }
    std::vector<bool> needed(table.layers(), false);
    mark_recomputed(table, range, *fit, needed);
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      plan.checkpoint[l] = plan.checkpoint[l] || needed[l];
    }
    if (evaluator_.memory_bytes(plan, r, stage) > rule.capacity_bytes) {
      return false;
    }
  }
  return true;
}

bool RowRepair::cut_pair(Plan& plan, Scope scope, std::uint32_t left, bool recompute) {
  const std::uint32_t layers = evaluator_.job().graph.layer_count();
  const bool tied = !evaluator_.job().capabilities.replica_splits;
  std::vector<std::uint32_t>& cuts = tied ? plan.pp_splits : plan.replica_splits[scope.first];
  if (cuts.empty()) {
    cuts = plan.pp_splits;
  }
  const std::uint32_t begin = cuts[left];
  const std::uint32_t end = left + 2 < plan.stages() ? cuts[left + 2] : layers;
  const std::uint32_t old_cut = cuts[left + 1];
  const std::vector<bool> old_flags = plan.checkpoint;
  // A cut may only lie where both sides keep one TP width.
  const std::uint16_t width_left = plan.tp_width[begin];
  const std::uint16_t width_right = plan.tp_width[old_cut];
  std::uint32_t best_cut = old_cut;
  std::vector<bool> best_flags = old_flags;
  double best = scope_time_s(plan, scope);
  for (std::uint32_t cut = begin + 1; cut < end; ++cut) {
    if (cut == old_cut || width_left != width_right) {
      continue;
    }
    cuts[left + 1] = cut;
    if (make_fit(plan, scope, left, recompute) && make_fit(plan, scope, left + 1, recompute)) {
      const double time = scope_time_s(plan, scope);
      if (time < best * (1 - kGain)) {
        best = time;
        best_cut = cut;
        best_flags = plan.checkpoint;
      }
    }
    plan.checkpoint = old_flags;
  }
  cuts[left + 1] = best_cut;
  plan.checkpoint = best_flags;
  return best_cut != old_cut;
}

void RowRepair::cut_pairs(Plan& plan, bool recompute) {
  const bool tied = !evaluator_.job().capabilities.replica_splits;
  const std::uint32_t stages = plan.stages();
  if (!tied && plan.replica_splits.empty()) {
    plan.replica_splits.resize(plan.replicas());
  }
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    const Scope scope = tied ? Scope{0, plan.replicas()} : Scope{r, r + 1};
    std::vector<std::uint32_t> slow;
    for (std::uint32_t s = 0; s < stages; ++s) {
      if (evaluator_.slowdown(state_, plan.placement[r][s]) > kSlow) {
        slow.push_back(s);
      }
    }
    // Each round solves every pair of every slow stage once; several slow stages in a row may
    // push layers on in more than one round.
    bool changed = !slow.empty();
    for (std::size_t round = 0; changed && round <= slow.size(); ++round) {
      changed = false;
      for (const std::uint32_t s : slow) {
        Plan other = plan;
        const bool right = s + 1 < stages && cut_pair(plan, scope, s, recompute);
        const bool left = s > 0 && cut_pair(other, scope, s - 1, recompute);
        if (left && (!right || scope_time_s(other, scope) < scope_time_s(plan, scope))) {
          plan = std::move(other);
        }
        changed = changed || left || right;
      }
    }
    if (!tied && plan.replica_splits[r] == plan.pp_splits) {
      plan.replica_splits[r].clear();
    }
  }
  if (std::all_of(plan.replica_splits.begin(), plan.replica_splits.end(),
                  [](const auto& cuts) { return cuts.empty(); })) {
    plan.replica_splits.clear();
  }
}

void RowRepair::balance_microbatches(Plan& plan) {
  const std::uint32_t replicas = plan.replicas();
  std::vector<std::size_t> classes(replicas);
  std::vector<double> time(replicas);      // with the present count
  std::vector<double> with_one(replicas);  // with one more
  const auto refresh = [&](std::uint32_t r) {
    time[r] = evaluator_.class_time_s(classes[r], plan.microbatches[r]);
    with_one[r] = evaluator_.class_time_s(classes[r], plan.microbatches[r] + 1);
  };
  for (std::uint32_t r = 0; r < replicas; ++r) {
    ++evaluated_;
    classes[r] = evaluator_.class_of(evaluator_.pipeline_of(plan, r, state_));
    refresh(r);
  }
  std::vector<bool> full(replicas, false);  // one more would not fit its memory
  for (;;) {
    const auto donor =
        static_cast<std::uint32_t>(std::max_element(time.begin(), time.end()) - time.begin());
    std::uint32_t taker = donor;
    for (std::uint32_t r = 0; r < replicas; ++r) {
      if (r != donor && !full[r] && (taker == donor || with_one[r] < with_one[taker])) {
        taker = r;
      }
    }
    if (taker == donor || plan.microbatches[donor] < 2 ||
        with_one[taker] >= time[donor] * (1 - kGain)) {
      return;
    }
    ++plan.microbatches[taker];
    for (std::uint32_t s = 0; s < plan.stages() && !full[taker]; ++s) {
      full[taker] = evaluator_.memory_bytes(plan, taker, s) >
                    evaluator_.rule_of(plan, taker, s).capacity_bytes;
    }
    if (full[taker]) {
      --plan.microbatches[taker];
      continue;
    }
    --plan.microbatches[donor];
    refresh(taker);
    refresh(donor);
  }
}

}  // namespace tapas::solver
