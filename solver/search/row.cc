#include "solver/search/row.h"

#include "solver/cost/pipeline.h"

#include <algorithm>

namespace tapas::solver {
namespace {

double plain_s(const LayerCost& cost) {
  return cost.times.forward_s + cost.times.backward_s + cost.times.forward_comm_s +
         cost.times.backward_comm_s;
}

std::uint64_t scrambled(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

/// Bytes of a range when everything is recomputed: grows with the range.
double floor_bytes(const LayerCost& sum, const MemoryRule& rule, std::uint32_t held) {
  return sum.params * rule.state_bytes_per_param + held * sum.input_bytes;
}

/// All forward work again is less than this share of forward and backward.
constexpr double kEverything = 1;

}  // namespace

RowCosts::RowCosts(const RowProblem& problem) : problem_(problem) {
  const std::uint32_t layers = problem.layers();
  before_.assign(layers + 1, {});
  near_s_ = far_s_ = busy_s_ = least_sync_s_ = kNever;
  for (const GroupKind& kind : problem.kinds) {
    near_s_ = std::min(near_s_, kind.near_s);
    far_s_ = std::min(far_s_, kind.far_s);
    busy_s_ = std::min(busy_s_, kind.busy_s);
    least_sync_s_ = std::min(least_sync_s_, problem.overlap_gradients ? 0 : kind.tail.sync_s(0));
    near_in_a_row_ = std::max(near_in_a_row_, kind.node_devices / kind.width());
    std::vector<std::uint64_t>& content = content_.emplace_back(layers + 1, 0);
    for (std::uint32_t l = 0; l < layers; ++l) {
      content[l + 1] = content[l] + scrambled(kind.table->type(l));
    }
  }
  for (std::uint32_t l = 0; l < layers; ++l) {
    Before least{kNever, kNever};
    for (const GroupKind& kind : problem.kinds) {
      const LayerCost& cost = (*kind.table)[l];
      least.forward_s = std::min(least.forward_s, cost.times.forward_s + cost.times.forward_comm_s);
      least.both_s = std::min(least.both_s, plain_s(cost));
    }
    before_[l + 1] = {before_[l].forward_s + least.forward_s, before_[l].both_s + least.both_s};
  }
}

double RowCosts::round_trips_s(std::uint32_t hops) const {
  // A node has room for some stages of a row only, so some of the links leave it.
  const std::uint32_t far = hops / near_in_a_row_;
  return 2 * (far * far_s_ + (hops - far) * near_s_ + hops * busy_s_);
}

Before RowCosts::with_hops(const Before& before, std::uint32_t hops) const {
  const double trips = round_trips_s(hops);
  return {before.forward_s + trips / 2, before.both_s + trips};
}

Before RowCosts::least_before(std::uint32_t layer, std::uint32_t hops) const {
  return with_hops(before_[layer], hops);
}

Before RowCosts::after(const Before& before, const StageFit& fit, std::uint32_t kind) const {
  const double sends = problem_.kinds[kind].busy_s;
  return {before.forward_s + fit.forward_s + fit.forward_comm_s + sends,
          before.both_s + fit.total_s() + 2 * sends};
}

double RowCosts::mixed_bound_s(std::uint32_t stages, std::uint32_t devices) const {
  // Stage b takes at least before + after + (m - warm / 2) tau: the mean of what it takes without
  // its waits and with both of them. The mean over stages, each weighted by its devices, is at
  // least tau of all layers once and (m - 1 - warm / 2) times their share of the devices' time.
  const double m = problem_.microbatches;
  const double warm = std::min<double>(stages - 1, m - 1);
  const double share = (m - 1 - warm / 2) / devices;
  double bound = round_trips_s(stages - 1);
  for (std::uint32_t l = 0; l < problem_.layers(); ++l) {
    double least = kNever;
    for (const GroupKind& kind : problem_.kinds) {
      least = std::min(least, plain_s((*kind.table)[l]) * (1 + share * kind.width()));
    }
    bound += least;
  }
  return std::max(bound, m * before_.back().both_s / stages);
}

const StageFit* RowCosts::cached_fit(std::uint32_t kind, std::uint32_t behind, LayerRange range,
                                     bool limited) {
  const std::uint32_t held = in_flight(problem_.schedule, behind + 1, 0, problem_.microbatches);
  const Key key{content_[kind][range.last] - content_[kind][range.first], kind, held, limited};
  const auto [it, added] = known_.try_emplace(key);
  if (added) {
    MemoryRule rule = problem_.kinds[kind].rule;
    rule.recompute_ratio = limited ? rule.recompute_ratio : kEverything;
    if (auto found = fit_stage(*problem_.kinds[kind].table, rule, range, held)) {
      it->second = {true, std::move(*found)};
    }
  }
  return it->second.fits ? &it->second.fit : nullptr;
}

const StageFit* RowCosts::fit(std::uint32_t kind, std::uint32_t behind, LayerRange range) {
  return cached_fit(kind, behind, range, /*limited=*/true);
}

double RowCosts::bound_with(std::uint32_t kind, std::uint32_t behind, const LayerCost& sum,
                            LayerRange range, double backward_s, const Before& before) const {
  const GroupKind& group = problem_.kinds[kind];
  const double sends = behind > 0 ? group.busy_s : 0;
  const double forward = sum.times.forward_s + sum.times.forward_comm_s + sends;
  const double backward = backward_s + sends;
  const double later = before_.back().both_s - before_[range.last].both_s + round_trips_s(behind);
  const std::uint32_t m = problem_.microbatches;
  const std::uint32_t warm = std::min(warm_up(problem_.schedule, behind + 1, 0, m), m - 1);
  const double idle = least_wait_s(m, warm, forward, backward, later);
  // Overlapped, a stage's synchronisation may end with its last backward.
  const double sync = problem_.overlap_gradients ? 0 : group.tail.sync_s(sum.params);
  // The stage's own end and synchronisation, or the end of the first stage, to which the last
  // gradient still has to go.
  const double own = before.forward_s + sync;
  const double first_stage = before.both_s + least_sync_s_;
  return m * (forward + backward) + idle + std::max(own, first_stage) +
         group.tail.update_s(sum.params);
}

double RowCosts::bound_of(std::uint32_t kind, std::uint32_t behind, LayerRange range,
                          const Before& before, bool limited) {
  const GroupKind& group = problem_.kinds[kind];
  const LayerCost sum = group.table->sum(range);
  const std::uint32_t held = in_flight(problem_.schedule, behind + 1, 0, problem_.microbatches);
  if (floor_bytes(sum, group.rule, held) > group.rule.capacity_bytes) {
    return kNever;
  }
  double backward = sum.times.backward_s + sum.times.backward_comm_s;
  if (sum.params * group.rule.state_bytes_per_param + held * sum.stash_bytes + sum.work_bytes >
      group.rule.capacity_bytes) {
    const StageFit* stage = cached_fit(kind, behind, range, limited);
    if (stage == nullptr) {
      return kNever;
    }
    backward = stage->backward_s + stage->backward_comm_s - stage->saved_s;
  }
  return bound_with(kind, behind, sum, range, backward, before);
}

double RowCosts::bound_s(std::uint32_t kind, std::uint32_t behind, LayerRange range,
                         const Before& before) {
  return bound_of(kind, behind, range, before, /*limited=*/false);
}

double RowCosts::exact_bound_s(std::uint32_t kind, std::uint32_t behind, LayerRange range,
                               const Before& before) {
  return bound_of(kind, behind, range, before, /*limited=*/true);
}

}  // namespace tapas::solver
