#include "solver/replan/local_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

namespace tapas::solver {
namespace {

// Timed replicas that pairs may take, or 3 for each where that is more.
constexpr std::uint64_t kPairs = 100;
constexpr std::uint64_t kBranches = 20000;
// A clock of processor time takes as long to read as a row to time: it is asked after so many.
constexpr std::uint32_t kUnasked = 8;
// Spares that leave more than this share of the time may not be needed.
constexpr double kDispensable = 0.75;

}  // namespace

LocalSearch::LocalSearch(Layout& layout, const ReplanLimits& limits, const Mechanisms& mechanisms)
    : layout_(layout),
      problem_(layout.problem()),
      limits_(limits),
      mechanisms_(mechanisms),
      by_potential_(mechanisms.potential),
      split_(layout.problem()),
      exact_(layout.problem()),
      random_(limits.seed) {
  now_ = layout_.exact();
  layout_.mark();
  best_ = snapshot(now_);
  home_ = best_;
}

bool LocalSearch::spent() {
  return layout_.evaluations() >= limits_.evaluations || limits_.stop.stop_requested() ||
         out_of_time();
}

bool LocalSearch::out_of_time() {
  if (!late_ && limits_.time_left_s &&
      (++not_asked_ == kUnasked || layout_.evaluations() >= ask_at_)) {
    late_ = limits_.time_left_s() <= kept_s_;
    not_asked_ = 0;
    ask_at_ = layout_.evaluations() + kUnasked;
  }
  return late_;
}

std::string LocalSearch::why_spent() const {
  if (layout_.evaluations() >= limits_.evaluations) {
    return fmt::format("{} replicas were timed", limits_.evaluations);
  }
  return limits_.stop.stop_requested() ? "it was told to stop" : "its time was up";
}

bool LocalSearch::improves(const Worth& a, const Worth& b) const {
  return by_potential_ ? better_guide(a, b) : better(a, b);
}

LocalSearch::Snapshot LocalSearch::snapshot(const Worth& worth) const {
  Snapshot now{{}, {}, {}, worth};
  for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
    for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
      now.units.push_back(layout_.unit(r, s));
    }
    now.cuts.insert(now.cuts.end(), layout_.cuts(r).begin(), layout_.cuts(r).end());
    now.counts.push_back(layout_.microbatches(r));
  }
  return now;
}

void LocalSearch::restore(const Snapshot& to) {
  const std::uint32_t stages = problem_.stages();
  for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
    for (std::uint32_t s = 0; s < stages; ++s) {
      if (layout_.unit(r, s) != to.units[r * stages + s]) {
        layout_.put(r, s, to.units[r * stages + s]);
      }
    }
    layout_.cut(r, std::span(to.cuts).subspan(std::size_t{r} * (stages + 1), stages + 1));
    layout_.count(r, to.counts[r]);
  }
  now_ = layout_.exact();
  layout_.mark();
}

void LocalSearch::restore_best() { restore(best_); }

void LocalSearch::record() {
  if (better(now_, best_.worth)) {
    best_ = snapshot(now_);
  }
}

bool LocalSearch::keep_if_better(const Worth& estimate) {
  if (improves(estimate, now_)) {
    const Worth exact = layout_.settle();
    if (improves(exact, now_)) {
      now_ = exact;
      layout_.mark();
      record();
      return true;
    }
  }
  layout_.undo();
  return false;
}

void LocalSearch::set_cuts(std::uint32_t replica, const std::vector<std::uint32_t>& cuts) {
  const std::uint32_t first = problem_.tied() ? 0 : replica;
  const std::uint32_t last = problem_.tied() ? problem_.replicas() : replica + 1;
  const auto old = layout_.cuts(replica);
  for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
    for (std::uint32_t r = first; r < last; ++r) {
      if ((cuts[s] != old[s] || cuts[s + 1] != old[s + 1]) &&
          problem_.unit(layout_.unit(r, s)).pinned) {
        return;
      }
    }
  }
  for (std::uint32_t r = first; r < last; ++r) {
    layout_.cut(r, cuts);
  }
}

void LocalSearch::split_row(std::uint32_t replica, std::span<const StageLimit> limits) {
  set_cuts(replica, split_(layout_, replica, limits));
}

void LocalSearch::split_all(std::span<const StageLimit> limits) {
  struct Split {
    std::uint32_t replica = 0;
    std::vector<std::uint32_t> before;
    std::vector<std::uint32_t> after;
  };
  std::vector<Split> splits;
  for (std::uint32_t r = 0; r < (problem_.tied() ? 1 : problem_.replicas()); ++r) {
    const auto alike = [&](const Split& other) {
      bool all = layout_.microbatches(r) == layout_.microbatches(other.replica) &&
                 std::equal(other.before.begin(), other.before.end(), layout_.cuts(r).begin());
      for (std::uint32_t s = 0; s < problem_.stages() && all; ++s) {
        all = problem_.alike(layout_.unit(r, s), r, layout_.unit(other.replica, s), other.replica);
      }
      return all;
    };
    const auto known = std::find_if(splits.begin(), splits.end(), alike);
    if (known != splits.end()) {
      set_cuts(r, known->after);
    } else {
      splits.push_back({r, {layout_.cuts(r).begin(), layout_.cuts(r).end()}, {}});
      splits.back().after = split_(layout_, r, limits);
      set_cuts(r, splits.back().after);
    }
  }
}

void LocalSearch::balance() {
  now_ = layout_.settle();
  layout_.mark();
  record();
}

bool LocalSearch::pair_cuts(std::uint32_t replica, std::uint32_t left) {
  std::vector<std::uint32_t> cuts(layout_.cuts(replica).begin(), layout_.cuts(replica).end());
  const std::uint32_t old = cuts[left + 1];
  std::uint32_t best = old;
  Worth least = now_;
  for (std::uint32_t c = cuts[left] + 1; c < cuts[left + 2] && !spent(); ++c) {
    if (c == old) {
      continue;
    }
    cuts[left + 1] = c;
    set_cuts(replica, cuts);
    const Worth worth = layout_.estimate();
    if (improves(worth, least)) {
      least = worth;
      best = c;
    }
    layout_.undo();
  }
  if (best == old) {
    return false;
  }
  cuts[left + 1] = best;
  set_cuts(replica, cuts);
  return keep_if_better(layout_.estimate());
}

void LocalSearch::pairs() {
  const std::uint32_t stages = problem_.stages();
  // Where all share one split every cut is timed for all of them.
  const std::uint64_t end =
      layout_.evaluations() + std::max<std::uint64_t>(kPairs, 3ULL * problem_.replicas());
  for (const std::uint32_t place : focus(3, Look::kMeasured)) {
    const std::uint32_t r = place / stages;
    const std::uint32_t s = place % stages;
    // Both sides, as long as one of them takes some more.
    for (bool changed = layout_.evaluations() < end; changed && !spent();) {
      changed = (s > 0 && pair_cuts(r, s - 1));
      changed = (s + 1 < stages && pair_cuts(r, s)) || changed;
    }
  }
}

void LocalSearch::spares() {
  if (!problem_.job().capabilities.placement) {
    return;
  }
  constexpr std::size_t kPlaces = 6;
  constexpr std::size_t kSpares = 3;
  struct Need {
    Step step;  ///< with the best of the spares
    Worth worth;
    /// Replicas that are cut anew, with their cuts.
    std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> rows;
  };
  std::vector<Need> needs;
  std::vector<Block> idle;
  for (const std::uint32_t place : focus(16, Look::kMoved)) {
    for (const Block& hand : blocks_of(place)) {
      for (const Block& other : candidates(hand, kSpares, /*idle_only=*/true)) {
        if (std::find(idle.begin(), idle.end(), other) == idle.end()) {
          idle.push_back(other);
        }
      }
      const auto taken = [&](const Need& need) { return need.step.hand == hand; };
      if (idle.empty() || !may_exchange(hand, idle.front()) || spent() ||
          std::any_of(needs.begin(), needs.end(), taken)) {
        continue;
      }
      Need need{{hand, idle.front()}, {}, {}};
      need.worth = try_step(need.step);
      for (const std::uint32_t r : rows_of(idle.front())) {
        if (need.step.split && !problem_.tied()) {
          need.rows.emplace_back(
              r, std::vector<std::uint32_t>(layout_.cuts(r).begin(), layout_.cuts(r).end()));
        }
      }
      needs.push_back(std::move(need));
      layout_.undo();
    }
  }
  needs.resize(std::min(needs.size(), kPlaces));
  // Several may be needed before anything gets better: all ways to give them away are tried.
  Worth least = now_;
  std::uint32_t best = 0;
  const auto give = [&](std::uint32_t chosen) {
    std::size_t next = 0;
    for (std::size_t k = 0; k < needs.size(); ++k) {
      const Need& need = needs[k];
      if ((chosen >> k & 1U) != 0 && next < idle.size() &&
          may_exchange(need.step.hand, idle[next])) {
        exchange(need.step.hand, idle[next++]);
        for (const auto& [row, cuts] : need.rows) {
          set_cuts(row, cuts);
        }
      }
    }
    const Worth worth = layout_.estimate();
    if (!problem_.tied()) {
      return worth;
    }
    split_row(0);
    return layout_.estimate();
  };
  for (std::uint32_t chosen = 1; chosen < 1U << needs.size() && !spent(); ++chosen) {
    const auto count = static_cast<std::size_t>(std::popcount(chosen));
    if (count <= std::min(kSpares, idle.size())) {
      const Worth worth = count == 1
                              ? needs[static_cast<std::size_t>(std::countr_zero(chosen))].worth
                              : give(chosen);
      if (improves(worth, least)) {
        least = worth;
        best = chosen;
      }
      layout_.undo();
    }
  }
  const Snapshot without = snapshot(now_);
  if (best != 0 && keep_if_better(give(best)) &&
      now_.guide_s > without.worth.guide_s * kDispensable) {
    without_spares_ = without;
  }
}

void LocalSearch::replicas() {
  rows();
  if (without_spares_ && !spent()) {
    // A spare far away makes rings slow: rows at their best may do better without it.
    const Snapshot with = snapshot(now_);
    restore(*without_spares_);
    rows();
    if (improves(with.worth, now_)) {
      restore(with);
    }
  }
}

void LocalSearch::rows() {
  const std::uint32_t stages = problem_.stages();
  std::vector<std::uint32_t> order;
  for (const std::uint32_t place : focus(16, Look::kMoved)) {
    const std::uint32_t r = problem_.tied() ? 0 : place / stages;
    if (std::find(order.begin(), order.end(), r) == order.end()) {
      order.push_back(r);
    }
  }
  for (const std::uint32_t r : order) {
    if (spent()) {
      return;
    }
    split_row(r);
    keep_if_better(layout_.estimate());
    thin(r);
    if (problem_.tied()) {
      // Counts suit the cuts they were moved for: other cuts need them even.
      for (std::uint32_t k = 0; k < problem_.replicas(); ++k) {
        layout_.count(k, problem_.current().microbatches[k]);
      }
      split_row(r);
      keep_if_better(layout_.estimate());
    }
  }
  split_all({});
  keep_if_better(layout_.estimate());
  std::vector<std::uint32_t> common = problem_.current().pp_splits;
  common.push_back(problem_.layers());
  for (std::uint32_t r = 0; r < problem_.replicas() && !spent(); ++r) {
    set_cuts(r, common);
  }
  keep_if_better(layout_.estimate());
  lighten(layout_.slowest());
  const bool gathered = gather();
  if (problem_.tied()) {
    // One split is as slow for all as for one: where the slow column stands matters most.
    swap_harmed_columns();
  }
  if (carry() || gathered) {
    lighten(layout_.slowest());
  }
  while (thin_columns() || move_layers(layout_.slowest())) {
  }
}

/// The best split of the row that the step waits for.
bool LocalSearch::split_exactly(std::uint64_t branches) {
  const std::uint32_t row = layout_.slowest();
  const ExactSplit::Found found = exact_(layout_, row, now_, branches, [this] { return spent(); });
  set_cuts(row, found.cuts);
  const Worth worth = layout_.settle();
  if (!better(worth, now_)) {
    layout_.undo();
    return false;
  }
  now_ = worth;
  layout_.mark();
  record();
  return true;
}

std::vector<std::uint32_t> LocalSearch::layer_moved(std::uint32_t replica, std::uint32_t from,
                                                    std::uint32_t to) const {
  std::vector<std::uint32_t> cuts(layout_.cuts(replica).begin(), layout_.cuts(replica).end());
  for (std::uint32_t s = std::min(from, to) + 1; s <= std::max(from, to); ++s) {
    cuts[s] += from < to ? ~0U : 1U;
  }
  return cuts;
}

bool LocalSearch::move_layers(std::uint32_t replica) {
  const std::uint32_t stages = problem_.stages();
  std::vector<std::vector<std::uint32_t>> options;
  for (const std::uint32_t from : split_.critical(layout_, replica)) {
    for (std::uint32_t to = 0; from != kNone && to < stages; ++to) {
      if (from != to && layout_.cuts(replica)[from + 1] - layout_.cuts(replica)[from] > 1) {
        options.push_back(layer_moved(replica, from, to));
      }
    }
  }
  return cut_as_best(replica, options);
}

bool LocalSearch::cut_as_best(std::uint32_t replica,
                              const std::vector<std::vector<std::uint32_t>>& options) {
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t k = 0; k < options.size() && !spent(); ++k) {
    layout_.cut(replica, options[k]);
    if (layout_.changed() && layout_.estimate().possible()) {
      order.emplace_back(layout_.norm(replica), k);
    }
    layout_.undo();
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), kEverywhere));
  Worth least = now_;
  const std::vector<std::uint32_t>* best = nullptr;
  for (std::size_t k = 0; k < order.size() && !spent(); ++k) {
    const std::vector<std::uint32_t>& cuts = options[order[k].second];
    set_cuts(replica, cuts);
    if (layout_.changed()) {
      if (const Worth worth = layout_.estimate(); improves(worth, least)) {
        least = worth;
        best = &cuts;
      }
      layout_.undo();
    }
  }
  if (best == nullptr) {
    return false;
  }
  set_cuts(replica, *best);
  return keep_if_better(layout_.estimate());
}

void LocalSearch::nodes() {
  for (Worth before; better(best_.worth, before) && !spent();) {
    before = best_.worth;
    descend({mechanisms_.depth, 16, Look::kMoved, 12});
    if (mechanisms_.exact_split) {
      split_exactly(kBranches);
    }
    if (!better(best_.worth, before)) {
      descend({mechanisms_.depth, 16, Look::kAll, 12});
    }
  }
}

void LocalSearch::return_home() {
  for (std::uint32_t place = 0; place < problem_.stages() * problem_.replicas(); ++place) {
    const Block here{layout_.unit(place / problem_.stages(), place % problem_.stages())};
    const Block home{problem_.home_unit(place)};
    if (here == home || !may_exchange(here, home)) {
      continue;
    }
    if (out_of_time()) {
      return;
    }
    exchange(here, home);
    keep_if_no_worse(layout_.exact());
  }
  record();
}

bool LocalSearch::keep_if_no_worse(const Worth& exact) {
  if (!exact.possible() || better(now_, exact)) {
    layout_.undo();
    return false;
  }
  now_ = exact;
  layout_.mark();
  return true;
}

void LocalSearch::cut_as_home(std::uint32_t replica) {
  std::vector<std::uint32_t> home = problem_.current().splits_of(replica);
  home.push_back(problem_.layers());
  const auto is_home = [&] {
    return std::equal(home.begin(), home.end(), layout_.cuts(replica).begin());
  };
  if (is_home() || out_of_time()) {
    return;
  }
  set_cuts(replica, home);
  keep_if_no_worse(layout_.exact());
  for (std::uint32_t k = 1; k < problem_.stages() && !is_home() && !out_of_time(); ++k) {
    std::vector<std::uint32_t> cuts(layout_.cuts(replica).begin(), layout_.cuts(replica).end());
    if (cuts[k] != home[k] && cuts[k - 1] < home[k] && home[k] < cuts[k + 1]) {
      cuts[k] = home[k];
      set_cuts(replica, cuts);
      keep_if_no_worse(layout_.exact());
    }
  }
}

void LocalSearch::trim() {
  restore(best_);
  relay();
  return_home();
  for (std::uint32_t r = 0; r < (problem_.tied() ? 1 : problem_.replicas()); ++r) {
    cut_as_home(r);
  }
  if (!better(best_.worth, now_)) {
    best_ = snapshot(now_);
  }
}

}  // namespace tapas::solver
