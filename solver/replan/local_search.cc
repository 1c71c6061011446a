#include "solver/replan/local_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

namespace tapas::solver {
namespace {

// Slowdowns up to here are noise: no layer is so small that moving it would help.
constexpr double kSlow = 1.02;
// A disturbed layout may be worse by up to this share and still be gone on from.
constexpr double kAccept = 0.01;
constexpr std::uint32_t kFruitless = 60;
constexpr std::uint32_t kPatience = 10;
// A healthy node in a slow ring is looked at after the slow one.
constexpr double kVictim = 0.3;
constexpr double kHot = 0.03;  // temperatures, as a share of the worth
constexpr double kCold = 0.0003;
constexpr std::uint64_t kStretch = 1000;
// Splits of kicks this close to where they came from are worth a closer look.
constexpr double kPromising = 0.03;
constexpr std::uint64_t kPairs = 400;
constexpr std::uint64_t kBranches = 20000;
constexpr std::uint64_t kBranchesOfKick = 1000;

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
}

bool LocalSearch::spent() const {
  return layout_.evaluations() >= limits_.evaluations || limits_.stop.stop_requested() ||
         (limits_.out_of_time && limits_.out_of_time());
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
    layout_.cut(r, std::span(to.cuts).subspan(r * (stages + 1), stages + 1));
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

double LocalSearch::harm_s(std::uint32_t replica, std::uint32_t stage, double least_hop_s,
                           Look look) const {
  const Unit& unit = problem_.unit(layout_.unit(replica, stage));
  if (unit.drained) {
    return kForever;
  }
  const StageTime& time = layout_.time(replica, stage);
  const NodeLinks links = problem_.state().links(NodeId(unit.node));
  const double slow = std::max(unit.widths[time.width].slowdown, links.inside);
  double nics = std::max(links.send, links.receive);
  double per_microbatch = slow > kSlow ? time.total_s() * (1 - 1 / slow) : 0;
  for (const PathSlowdown& path : problem_.state().paths) {
    if (path.from.value() == unit.node || path.to.value() == unit.node) {
      nics = std::max(nics, path.factor);
    }
  }
  const bool moved = unit.home != replica * problem_.stages() + stage;
  if (nics > kSlow || look == Look::kAll || (moved && look == Look::kMoved)) {
    if (stage > 0) {
      per_microbatch += layout_.hop_s(replica, stage - 1) - least_hop_s;
    }
    if (stage + 1 < problem_.stages()) {
      per_microbatch += layout_.hop_s(replica, stage) - least_hop_s;
    }
  }
  const double sync = layout_.done_s(replica, stage) - layout_.end_s(replica, stage);
  double slower = nics > kSlow ? 1 - 1 / nics : 0;
  if (look == Look::kAll && slower == 0 && problem_.replicas() > 1) {
    // One of a slow ring, not the one that makes it slow.
    const Problem::Shard& shard = problem_.shards()[unit.widths[time.width].shard];
    slower = kVictim * (1 - layout_.ring(stage).bytes_per_s / shard.ring_bytes_per_s);
  }
  return per_microbatch * layout_.microbatches(replica) + sync * slower;
}

std::vector<std::uint32_t> LocalSearch::focus(std::size_t most, Look look) {
  struct Place {
    double harm = 0;
    std::uint32_t place = 0;
  };
  double slowest = 0;
  double least_hop = kForever;
  for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
    slowest = std::max(slowest, layout_.row_s(r));
    for (std::uint32_t s = 0; s + 1 < problem_.stages(); ++s) {
      least_hop = std::min(least_hop, layout_.hop_s(r, s));
    }
  }
  std::vector<Place> places;
  for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
    const double late = layout_.row_s(r) / slowest;
    const double weight = late * late * late * late;
    for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
      const double harm = harm_s(r, s, least_hop, look) * weight;
      if (harm > 0) {
        places.push_back({harm, r * problem_.stages() + s});
      }
    }
  }
  const std::size_t count = std::min(most, places.size());
  std::partial_sort(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(count),
                    places.end(), [](const Place& a, const Place& b) {
                      return a.harm != b.harm ? a.harm > b.harm : a.place < b.place;
                    });
  std::vector<std::uint32_t> result;
  for (std::size_t k = 0; k < count; ++k) {
    result.push_back(places[k].place);
  }
  return result;
}

std::vector<LocalSearch::Block> LocalSearch::blocks_of(std::uint32_t place) const {
  const std::uint32_t stages = problem_.stages();
  const std::uint32_t unit = layout_.unit(place / stages, place % stages);
  std::vector<Block> blocks{{unit}};
  Block whole;
  for (const std::uint32_t other : problem_.units_of(problem_.unit(unit).node)) {
    if (layout_.place_of(other) != kNone) {
      whole.push_back(other);
    }
  }
  if (whole.size() > 1) {
    blocks.push_back(std::move(whole));
  }
  return blocks;
}

bool LocalSearch::may_exchange(const Block& a, const Block& b) const {
  if (!problem_.job().capabilities.placement || a.size() != b.size()) {
    return false;
  }
  bool idle = false;
  for (std::size_t k = 0; k < a.size(); ++k) {
    if (problem_.unit(a[k]).pinned || problem_.unit(b[k]).pinned || problem_.unit(b[k]).drained ||
        !problem_.interchangeable(a[k], b[k])) {
      return false;
    }
    idle = idle || layout_.place_of(b[k]) == kNone;
  }
  // A spare is used whole or not.
  const auto partly = [&](const Block& block) {
    const std::uint32_t node = problem_.unit(block.front()).node;
    return problem_.job().cluster.nodes[node].spare &&
           block.size() != problem_.units_of(node).size();
  };
  return !idle || (!partly(a) && !partly(b));
}

double LocalSearch::score(std::uint32_t unit, std::uint32_t place) const {
  const std::uint32_t stages = problem_.stages();
  const std::uint32_t r = place / stages;
  const std::uint32_t s = place % stages;
  const auto cuts = layout_.cuts(r);
  const StageTime time =
      problem_.stage_time(unit, r, s, layout_.microbatches(r), {cuts[s], cuts[s + 1]});
  if (!time.fits) {
    return kForever;
  }
  double seconds = time.total_s();
  if (s > 0) {
    const std::uint32_t before = layout_.unit(r, s - 1);
    const std::uint32_t width = layout_.time(r, s - 1).width;
    seconds += problem_.hop(before, width, unit, time.width, cuts[s], true).delay_s +
               problem_.hop(before, width, unit, time.width, cuts[s], false).delay_s;
  }
  if (s + 1 < stages) {
    const std::uint32_t after = layout_.unit(r, s + 1);
    const std::uint32_t width = layout_.time(r, s + 1).width;
    seconds += problem_.hop(unit, time.width, after, width, cuts[s + 1], true).delay_s +
               problem_.hop(unit, time.width, after, width, cuts[s + 1], false).delay_s;
  }
  const NodeLinks links = problem_.state().links(NodeId(problem_.unit(unit).node));
  const double sync = layout_.done_s(r, s) - layout_.end_s(r, s);
  return seconds * layout_.microbatches(r) + sync * std::max(links.send, links.receive);
}

std::vector<LocalSearch::Block> LocalSearch::candidates(const Block& hand, std::size_t most,
                                                        bool idle_only) {
  struct Scored {
    double score = 0;
    Block block;
  };
  const std::uint32_t stages = problem_.stages();
  const std::uint32_t here = layout_.place_of(hand.front());
  const std::uint32_t row = here / stages;
  std::vector<Scored> strata[3];  // idle, the same replica, other replicas
  const auto consider = [&](std::size_t stratum, Block block, double weight) {
    if (may_exchange(hand, block)) {
      double sum = 0;
      for (std::size_t k = 0; k < hand.size(); ++k) {
        sum += score(block[k], layout_.place_of(hand[k]));
      }
      strata[stratum].push_back({sum * weight, std::move(block)});
    }
  };
  // Other units of the same node come with it when the hand is a whole node.
  const auto block_at = [&](std::uint32_t unit) {
    if (hand.size() == 1) {
      return Block{unit};
    }
    Block block;
    for (const std::uint32_t other : problem_.units_of(problem_.unit(unit).node)) {
      if ((layout_.place_of(other) == kNone) == (layout_.place_of(unit) == kNone)) {
        block.push_back(other);
      }
    }
    return block.front() == unit ? block : Block{};  // once per node
  };
  for (std::uint32_t unit = 0; unit < problem_.units().size(); ++unit) {
    if (layout_.place_of(unit) == kNone) {
      consider(0, block_at(unit), 1);
    }
  }
  for (std::uint32_t s = 0; s < stages && !idle_only; ++s) {
    const std::uint32_t unit = layout_.unit(row, s);
    if (problem_.unit(unit).node != problem_.unit(hand.front()).node) {
      consider(1, block_at(unit), 1);
    }
  }
  // Of the other replicas those that can give most and those that are slow anyhow, each with the
  // place of the same stage, to which least has to move, and the place that minds the hand least.
  std::vector<std::uint32_t> rows;
  for (std::uint32_t r = 0; r < problem_.replicas() && !idle_only; ++r) {
    if (r != row) {
      rows.push_back(r);
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [&](std::uint32_t a, std::uint32_t b) {
    return layout_.row_s(a) < layout_.row_s(b);
  });
  const std::size_t each =
      mechanisms_.stratified ? std::max<std::size_t>(most / 3, 1) : rows.size();
  for (std::size_t k = 0; k < rows.size(); ++k) {
    if (k >= each && k + each < rows.size()) {
      continue;
    }
    const std::uint32_t r = rows[k];
    for (std::uint32_t s = 0; s < stages; ++s) {
      if (mechanisms_.stratified && s != here % stages && s != 0 && s + 1 != stages &&
          random_() % stages > 2) {
        continue;
      }
      const std::uint32_t unit = layout_.unit(r, s);
      if (problem_.unit(unit).node != problem_.unit(hand.front()).node) {
        consider(2, block_at(unit), s == here % stages ? 0.999 : 1);
      }
    }
  }
  std::vector<Block> result;
  const auto by_score = [](const Scored& a, const Scored& b) { return a.score < b.score; };
  if (!mechanisms_.stratified) {
    std::vector<Scored> all;
    for (auto& stratum : strata) {
      std::move(stratum.begin(), stratum.end(), std::back_inserter(all));
    }
    std::stable_sort(all.begin(), all.end(), by_score);
    for (std::size_t k = 0; k < std::min(most, all.size()); ++k) {
      result.push_back(std::move(all[k].block));
    }
    return result;
  }
  for (auto& stratum : strata) {
    std::stable_sort(stratum.begin(), stratum.end(), by_score);
  }
  // Turn by turn, so that an empty stratum leaves its share to the others.
  for (std::size_t k = 0; result.size() < most; ++k) {
    bool any = false;
    for (auto& stratum : strata) {
      if (k < stratum.size() && result.size() < most) {
        result.push_back(std::move(stratum[k].block));
        any = true;
      }
    }
    if (!any) {
      break;
    }
  }
  return result;
}

void LocalSearch::exchange(const Block& a, const Block& b) {
  const std::uint32_t stages = problem_.stages();
  for (std::size_t k = 0; k < a.size(); ++k) {
    const std::uint32_t to = layout_.place_of(b[k]);
    const std::uint32_t from = layout_.place_of(a[k]);
    if (from != kNone) {
      layout_.put(from / stages, from % stages, b[k]);
    }
    if (to != kNone) {
      layout_.put(to / stages, to % stages, a[k]);
    }
  }
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

void LocalSearch::balance() {
  now_ = layout_.settle();
  layout_.mark();
  record();
}

bool LocalSearch::pair_cuts(std::uint32_t replica, std::uint32_t left) {
  if (borders_pinned(replica, left + 1)) {
    return false;
  }
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
      layout_.evaluations() + std::max<std::uint64_t>(kPairs, 12 * problem_.replicas());
  for (const std::uint32_t place : focus(8, Look::kMeasured)) {
    const std::uint32_t r = place / stages;
    const std::uint32_t s = place % stages;
    // The better side first; the other may take some more.
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
      Step step{hand, idle.front()};
      const Worth worth = try_step(step);
      needs.push_back({std::move(step), worth});
      layout_.undo();
    }
  }
  std::stable_sort(needs.begin(), needs.end(),
                   [&](const Need& a, const Need& b) { return improves(a.worth, b.worth); });
  needs.resize(std::min(needs.size(), kPlaces));
  // Several may be needed before anything gets better: all ways to give them away are tried.
  Worth least = now_;
  std::uint32_t best = 0;
  const auto give = [&](std::uint32_t chosen) {
    std::size_t next = 0;
    for (std::size_t k = 0; k < needs.size(); ++k) {
      if ((chosen >> k & 1U) != 0 && next < idle.size() &&
          may_exchange(needs[k].step.hand, idle[next])) {
        apply({needs[k].step.hand, idle[next++], needs[k].step.split});
      }
    }
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
  if (best != 0) {
    keep_if_better(give(best));
  }
}

void LocalSearch::rows() {
  std::vector<std::uint32_t> order(problem_.tied() ? 1 : problem_.replicas());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return layout_.row_s(a) > layout_.row_s(b);
  });
  for (const std::uint32_t r : order) {
    if (spent()) {
      return;
    }
    split_row(r);
    keep_if_better(layout_.estimate());
    if (has_pinned(r)) {
      continue;
    }
    std::vector<std::uint32_t> common = problem_.current().pp_splits;
    common.push_back(problem_.layers());
    set_cuts(r, common);
    keep_if_better(layout_.estimate());
  }
  lighten(layout_.slowest());
  shift_boundaries(layout_.slowest());
}

/// Takes layers off the stages whose gradients come last, one to three of them together: as many as
/// is best, as the first few may only make the other stages longer.
bool LocalSearch::lighten(std::uint32_t replica) {
  const std::uint32_t stages = problem_.stages();
  std::vector<std::uint32_t> last(stages);
  std::iota(last.begin(), last.end(), 0U);
  std::stable_sort(last.begin(), last.end(), [&](std::uint32_t a, std::uint32_t b) {
    return layout_.done_s(replica, a) > layout_.done_s(replica, b);
  });
  std::vector<StageLimit> limits;
  const auto hold_down = [&] {
    // The gradients of all replicas go over one ring.
    for (std::uint32_t r = 0; r < (problem_.tied() ? 1 : problem_.replicas()); ++r) {
      split_row(r, limits);
    }
    return layout_.estimate();
  };
  Worth least = now_;
  std::vector<StageLimit> best;
  const std::size_t together = problem_.replicas() > 1 ? 3 : 1;
  for (std::size_t k = 1; k <= std::min<std::size_t>(together, stages); ++k) {
    std::uint32_t most = 0;
    for (std::size_t j = 0; j < k; ++j) {
      const auto cuts = layout_.cuts(replica);
      most = std::max(most, cuts[last[j] + 1] - cuts[last[j]]);
    }
    for (std::uint32_t n = most; n-- > 1 && !spent();) {
      limits.clear();
      for (std::size_t j = 0; j < k; ++j) {
        limits.push_back({last[j], n});
      }
      const Worth worth = hold_down();
      if (improves(worth, least)) {
        least = worth;
        best = limits;
      }
      layout_.undo();
    }
  }
  limits = best;
  return !best.empty() && keep_if_better(hold_down());
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

bool LocalSearch::shift_boundaries(std::uint32_t replica) {
  bool improved = false;
  const std::uint32_t first = replica == kNone ? 0 : replica;
  const std::uint32_t last = replica == kNone && !problem_.tied() ? problem_.replicas() : first + 1;
  for (std::uint32_t k = 1; k < problem_.stages(); ++k) {
    for (const bool up : {false, true}) {
      if (spent()) {
        return improved;
      }
      for (std::uint32_t r = first; r < last; ++r) {
        std::vector<std::uint32_t> cuts(layout_.cuts(r).begin(), layout_.cuts(r).end());
        cuts[k] += up ? 1U : ~0U;
        if (cuts[k] > cuts[k - 1] && cuts[k] < cuts[k + 1] && !borders_pinned(r, k)) {
          set_cuts(r, cuts);
        }
      }
      improved = (layout_.changed() && keep_if_better(layout_.estimate())) || improved;
    }
  }
  return improved;
}

bool LocalSearch::borders_pinned(std::uint32_t replica, std::uint32_t boundary) const {
  const std::uint32_t from = problem_.tied() ? 0 : replica;
  const std::uint32_t to = problem_.tied() ? problem_.replicas() : replica + 1;
  for (std::uint32_t r = from; r < to; ++r) {
    if (problem_.unit(layout_.unit(r, boundary - 1)).pinned ||
        problem_.unit(layout_.unit(r, boundary)).pinned) {
      return true;
    }
  }
  return false;
}

std::vector<std::uint32_t> LocalSearch::rows_of(const Block& block) const {
  std::vector<std::uint32_t> rows;
  for (const std::uint32_t unit : block) {
    if (layout_.place_of(unit) != kNone) {
      rows.push_back(layout_.place_of(unit) / problem_.stages());
    }
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

double LocalSearch::norm_of(const std::vector<std::uint32_t>& rows) const {
  double norm = 0;
  for (const std::uint32_t r : rows) {
    norm += layout_.norm(r);
  }
  return norm;
}

void LocalSearch::apply(const Step& step) {
  exchange(step.hand, step.other);
  if (step.split) {
    split_rows(step);
  }
}

void LocalSearch::split_rows(const Step& step) {
  std::vector<std::uint32_t> rows = rows_of(step.hand);
  const std::vector<std::uint32_t> others = rows_of(step.other);
  rows.insert(rows.end(), others.begin(), others.end());
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  if (problem_.tied()) {
    rows.resize(1);
  }
  for (const std::uint32_t r : rows) {
    split_row(r);
  }
}

Worth LocalSearch::try_step(Step& step) {
  exchange(step.hand, step.other);
  const Worth as_cut = layout_.estimate();
  step.split = false;
  if (!mechanisms_.split_touched) {
    return as_cut;
  }
  split_rows(step);
  if (!layout_.changed()) {
    return as_cut;
  }
  const Worth cut_anew = layout_.estimate();
  step.split = improves(cut_anew, as_cut);
  return step.split ? cut_anew : as_cut;
}

Worth LocalSearch::better_cut(std::uint32_t replica) {
  const Worth as_cut = layout_.estimate();
  const std::vector<std::uint32_t> old(layout_.cuts(replica).begin(), layout_.cuts(replica).end());
  split_row(replica);
  if (!layout_.changed()) {
    return as_cut;
  }
  const Worth cut_anew = layout_.estimate();
  if (improves(cut_anew, as_cut)) {
    return cut_anew;
  }
  set_cuts(replica, old);
  return layout_.estimate();
}

bool LocalSearch::has_pinned(std::uint32_t replica) const {
  for (std::uint32_t k = 1; k < problem_.stages(); ++k) {
    if (borders_pinned(replica, k)) {
      return true;
    }
  }
  return false;
}

bool LocalSearch::chain(const Block& hand, const Effort& effort) {
  std::vector<Step> steps;
  std::vector<Step> best;
  Worth least = now_;
  std::vector<std::uint32_t> visited{layout_.place_of(hand.front())};
  for (std::uint32_t level = 0; level < effort.depth && !spent(); ++level) {
    const Layout::Point here = layout_.point();
    const std::vector<std::uint32_t> left = rows_of(hand);
    const double before = norm_of(left);
    Worth goes_on;
    std::optional<Step> next;
    const std::vector<Block> others =
        candidates(hand, std::max<std::size_t>(effort.breadth >> 2 * level, 1));
    for (const Block& other : others) {
      const std::uint32_t place = layout_.place_of(other.front());
      if (std::find(visited.begin(), visited.end(), place) != visited.end()) {
        continue;
      }
      Step step{hand, other};
      const Worth worth = try_step(step);
      if (improves(worth, least)) {
        least = worth;
        best = steps;
        best.push_back(step);
      }
      // With an ideal node in the place that the other one left, the chain would have gained.
      const bool gained = place != kNone && worth.possible() &&
                          (!mechanisms_.gain_criterion || norm_of(left) < before);
      if (gained && (!next || improves(worth, goes_on))) {
        goes_on = worth;
        next = step;
      }
      layout_.undo(here);
      if (spent()) {
        break;
      }
    }
    if (!next || level + 1 == effort.depth) {
      break;
    }
    visited.push_back(layout_.place_of(next->other.front()));
    steps.push_back(*next);
    apply(steps.back());
    static_cast<void>(layout_.estimate());
  }
  layout_.undo();
  if (best.empty()) {
    return false;
  }
  for (const Step& step : best) {
    apply(step);
  }
  return keep_if_better(layout_.estimate());
}

bool LocalSearch::descend(const Effort& effort) {
  bool improved = false;
  for (bool changed = true; changed && !spent();) {
    changed = false;
    for (const std::uint32_t place : focus(effort.places, effort.look)) {
      for (const Block& block : blocks_of(place)) {
        if (spent()) {
          return improved;
        }
        if (problem_.job().capabilities.placement && chain(block, effort)) {
          changed = true;
          break;
        }
      }
    }
    changed = changed || lighten(layout_.slowest()) || shift_boundaries(layout_.slowest());
    improved = improved || changed;
  }
  return improved;
}

bool LocalSearch::rotate(std::uint32_t replica, std::uint32_t from, std::uint32_t to) {
  if (from == to) {
    return false;
  }
  for (std::uint32_t s = from; s != to;) {
    const std::uint32_t next = s < to ? s + 1 : s - 1;
    const Block a{layout_.unit(replica, s)};
    const Block b{layout_.unit(replica, next)};
    if (!may_exchange(a, b) || !may_exchange(b, a)) {
      return false;
    }
    exchange(a, b);
    s = next;
  }
  return true;
}

/// Every node of the row that the step waits for goes to every other place of it, those between
/// move up.
bool LocalSearch::reorder() {
  const std::uint32_t stages = problem_.stages();
  const std::uint32_t row = layout_.slowest();
  for (std::uint32_t from = 0; from < stages; ++from) {
    for (std::uint32_t to = 0; to < stages; ++to) {
      // Neighbours that change places are an exchange.
      if (from == to || from + 1 == to || to + 1 == from || spent()) {
        continue;
      }
      if (rotate(row, from, to) && keep_if_better(better_cut(row))) {
        return true;
      }
      layout_.undo();
    }
  }
  return false;
}

void LocalSearch::nodes() {
  for (Worth before; better(best_.worth, before) && !spent();) {
    before = best_.worth;
    descend({mechanisms_.depth, 16, Look::kMoved, 12});
    if (mechanisms_.exact_split) {
      split_exactly(kBranches);
    }
    if (problem_.replicas() > 1) {
      shift_boundaries(kNone);
    }
    if (mechanisms_.reorder && problem_.job().capabilities.placement) {
      reorder();
    }
    if (!better(best_.worth, before)) {
      descend({mechanisms_.depth, 16, Look::kAll, 12});
    }
  }
}

bool LocalSearch::kick(std::uint32_t exchanges) {
  const std::uint32_t stages = problem_.stages();
  const auto draw = [&](std::size_t many) { return static_cast<std::uint32_t>(random_() % many); };
  const std::vector<std::uint32_t> places = focus(16, Look::kAll);
  bool any = false;
  for (std::uint32_t k = 0; k < exchanges; ++k) {
    const bool focused = !places.empty() && draw(4) != 0;
    const std::uint32_t place =
        focused ? places[draw(places.size())] : draw(std::size_t{stages} * problem_.replicas());
    if (stages > 2 && draw(4) == 0) {
      const std::uint32_t to = draw(stages);
      if (to != place % stages) {
        if (!rotate(place / stages, place % stages, to)) {
          return false;
        }
        any = true;
        static_cast<void>(layout_.estimate());
      }
      continue;
    }
    const std::vector<Block> blocks = blocks_of(place);
    const Block& hand = blocks[draw(blocks.size())];
    const std::vector<Block> others = candidates(hand, 12);
    if (!others.empty()) {
      apply({hand, others[draw(others.size())], draw(2) == 0});
      any = true;
      static_cast<void>(layout_.estimate());
    }
  }
  return any && layout_.estimate().possible();
}

double LocalSearch::uniform() { return static_cast<double>(random_() >> 11U) * 0x1.0p-53; }

void LocalSearch::kicks(std::uint64_t until) {
  std::uint32_t fruitless = 0;
  for (std::uint32_t failed = 0;
       !spent() && layout_.evaluations() < until && failed < kFruitless;) {
    const Snapshot base = snapshot(now_);
    // The longer nothing is found, the farther away it is looked for.
    const std::uint32_t level = fruitless / kPatience;
    if (!kick(1 + static_cast<std::uint32_t>(random_() % (3 + level)))) {
      layout_.undo();
      ++failed;
      continue;
    }
    failed = 0;
    now_ = layout_.settle();
    layout_.mark();
    record();
    descend({1, 3, Look::kAll, 4});
    if (mechanisms_.exact_split && now_.guide_s < base.worth.guide_s * (1 + kPromising)) {
      split_exactly(kBranchesOfKick);
    }
    const bool gained = improves(now_, base.worth);
    fruitless = gained ? 0 : fruitless + 1;
    const double u = uniform();
    if (!gained && now_.guide_s > base.worth.guide_s * (1 + kAccept * (1 + level) * u * u)) {
      restore(base);
    }
    if (fruitless > kFruitless) {
      restore(best_);
      fruitless = 0;
    }
  }
}

bool LocalSearch::wander() {
  const std::uint32_t stages = problem_.stages();
  const auto draw = [&](std::size_t many) { return static_cast<std::uint32_t>(random_() % many); };
  const std::uint32_t place = draw(std::size_t{stages} * problem_.replicas());
  const std::uint32_t r = place / stages;
  const bool placement = problem_.job().capabilities.placement;
  const std::uint32_t kind = placement ? draw(8) : 0;
  if (kind < 3) {
    if (stages == 1) {
      return false;
    }
    const std::uint32_t k = 1 + draw(stages - 1);
    std::vector<std::uint32_t> cuts(layout_.cuts(r).begin(), layout_.cuts(r).end());
    cuts[k] += draw(2) == 0 ? 1U : ~0U;
    if (cuts[k] <= cuts[k - 1] || cuts[k] >= cuts[k + 1] || borders_pinned(r, k)) {
      return false;
    }
    set_cuts(r, cuts);
    return true;
  }
  if (kind == 3 && stages > 2) {
    return rotate(r, place % stages, draw(stages)) && layout_.changed();
  }
  const std::vector<Block> blocks = blocks_of(place);
  const Block& hand = blocks[draw(blocks.size())];
  const std::uint32_t unit = draw(problem_.units().size());
  Block other{unit};
  if (hand.size() > 1) {
    other = problem_.units_of(problem_.unit(unit).node);
  }
  if (problem_.unit(unit).node == problem_.unit(hand.front()).node || !may_exchange(hand, other)) {
    return false;
  }
  apply({hand, std::move(other), kind == 4});
  return true;
}

void LocalSearch::anneal(std::uint64_t until) {
  const std::uint64_t start = layout_.evaluations();
  restore(best_);
  for (std::uint32_t failed = 0; !spent() && layout_.evaluations() < until && failed < 1000;) {
    if (!wander()) {
      layout_.undo();
      ++failed;
      continue;
    }
    failed = 0;
    const Worth worth = layout_.estimate();
    const double done =
        static_cast<double>(layout_.evaluations() - start) / static_cast<double>(until - start);
    const double temperature = kHot * std::pow(kCold / kHot, done);
    const double change =
        by_potential_ ? worth.guide_s / now_.guide_s : worth.useful_s / now_.useful_s;
    if (worth.possible() && worth.drained <= now_.drained &&
        uniform() < std::exp((1 - change) / temperature)) {
      now_ = layout_.settle();
      layout_.mark();
      record();
    } else {
      layout_.undo();
    }
  }
}

void LocalSearch::wide() {
  // Kicks find what is near soon, annealing what takes many changes at once later.
  for (std::uint64_t stretch = kStretch; !spent(); stretch *= 2) {
    by_potential_ = mechanisms_.potential && random_() % 2 == 0;
    layout_.allow_transfer(static_cast<double>(random_() % 4) * 2);
    now_ = layout_.exact();
    const std::uint64_t before = layout_.evaluations();
    if (mechanisms_.kicks && problem_.job().capabilities.placement) {
      kicks(before + stretch);
    }
    if (mechanisms_.annealing) {
      anneal(layout_.evaluations() + stretch);
    }
    by_potential_ = mechanisms_.potential;
    layout_.allow_transfer(1);
    restore(best_);
    nodes();
    if (layout_.evaluations() == before) {
      return;  // there is nothing that may change
    }
  }
}

void LocalSearch::trim() {
  restore(best_);
  for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
    std::vector<std::uint32_t> home = problem_.current().splits_of(r);
    home.push_back(problem_.layers());
    if (!std::equal(home.begin(), home.end(), layout_.cuts(r).begin())) {
      set_cuts(r, home);
      const Worth worth = layout_.exact();
      if (worth.possible() && !better(now_, worth)) {
        now_ = worth;
        layout_.mark();
      } else {
        layout_.undo();
      }
    }
  }
  if (!better(best_.worth, now_)) {
    best_ = snapshot(now_);
  }
}

}  // namespace tapas::solver
