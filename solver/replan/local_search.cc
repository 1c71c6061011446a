#include "solver/replan/local_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

namespace tapas::solver {
namespace {

// Slowdowns up to here are noise: no layer is so small that moving it would help.
constexpr double kSlow = 1.02;
constexpr std::size_t kBreadth[] = {12, 4, 1};
// A disturbed layout may be worse by up to this share and still be gone on from.
constexpr double kAccept = 0.01;
constexpr std::uint32_t kFruitless = 30;

}  // namespace

LocalSearch::LocalSearch(Layout& layout, const ReplanLimits& limits, const Mechanisms& mechanisms)
    : layout_(layout),
      problem_(layout.problem()),
      limits_(limits),
      mechanisms_(mechanisms),
      split_(layout.problem()),
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
  return mechanisms_.potential ? better_guide(a, b) : better(a, b);
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
                           bool measured_only) const {
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
  if (nics > kSlow || !measured_only) {
    if (stage > 0) {
      per_microbatch += layout_.hop_s(replica, stage - 1) - least_hop_s;
    }
    if (stage + 1 < problem_.stages()) {
      per_microbatch += layout_.hop_s(replica, stage) - least_hop_s;
    }
  }
  const double sync = layout_.done_s(replica, stage) - layout_.end_s(replica, stage);
  return per_microbatch * layout_.microbatches(replica) +
         (nics > kSlow ? sync * (1 - 1 / nics) : 0);
}

std::vector<std::uint32_t> LocalSearch::focus(std::size_t most, bool measured_only) {
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
      const double harm = harm_s(r, s, least_hop, measured_only) * weight;
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

void LocalSearch::split_row(std::uint32_t replica, StageLimit limit) {
  set_cuts(replica, split_(layout_, replica, limit));
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
  for (std::uint32_t c = cuts[left] + 1; c < cuts[left + 2]; ++c) {
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
  for (const std::uint32_t place : focus(8, /*measured_only=*/true)) {
    const std::uint32_t r = place / stages;
    const std::uint32_t s = place % stages;
    // The better side first; the other may take some more.
    for (bool changed = true; changed && !spent();) {
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
    Block hand;
    Worth worth;
  };
  std::vector<Need> needs;
  std::vector<Block> idle;
  for (const std::uint32_t place : focus(16)) {
    for (const Block& hand : blocks_of(place)) {
      for (const Block& other : candidates(hand, kSpares, /*idle_only=*/true)) {
        if (std::find(idle.begin(), idle.end(), other) == idle.end()) {
          idle.push_back(other);
        }
      }
      const auto taken = [&](const Need& need) { return need.hand == hand; };
      if (idle.empty() || !may_exchange(hand, idle.front()) || spent() ||
          std::any_of(needs.begin(), needs.end(), taken)) {
        continue;
      }
      apply({hand, idle.front()});
      needs.push_back({hand, layout_.estimate()});
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
          may_exchange(needs[k].hand, idle[next])) {
        apply({needs[k].hand, idle[next++]});
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
    std::vector<std::uint32_t> common = problem_.current().pp_splits;
    common.push_back(problem_.layers());
    set_cuts(r, common);
    keep_if_better(layout_.estimate());
  }
  lighten(layout_.slowest());
  shift_boundaries(layout_.slowest(), 1);
}

/// Takes layers off the stage whose gradients come last: as many as is best, as the first few may
/// only make the other stages longer.
bool LocalSearch::lighten(std::uint32_t replica) {
  std::uint32_t last = 0;
  for (std::uint32_t s = 1; s < problem_.stages(); ++s) {
    last = layout_.done_s(replica, s) > layout_.done_s(replica, last) ? s : last;
  }
  const auto hold_down = [&](std::uint32_t layers) {
    // The gradients of all replicas go over one ring.
    for (std::uint32_t r = 0; r < (problem_.tied() ? 1 : problem_.replicas()); ++r) {
      split_row(r, {last, layers});
    }
    return layout_.estimate();
  };
  Worth least = now_;
  std::uint32_t best = 0;
  for (std::uint32_t n = layout_.cuts(replica)[last + 1] - layout_.cuts(replica)[last];
       n-- > 1 && !spent();) {
    const Worth worth = hold_down(n);
    if (improves(worth, least)) {
      least = worth;
      best = n;
    }
    layout_.undo();
  }
  return best > 0 && keep_if_better(hold_down(best));
}

bool LocalSearch::shift_boundaries(std::uint32_t replica, std::uint32_t longest) {
  const std::uint32_t stages = problem_.stages();
  bool improved = false;
  for (std::uint32_t length = 1; length <= std::min(longest, stages - 1); ++length) {
    for (std::uint32_t first = 1; first + length <= stages; ++first) {
      for (const bool up : {false, true}) {
        if (spent()) {
          return improved;
        }
        std::vector<std::uint32_t> cuts(layout_.cuts(replica).begin(), layout_.cuts(replica).end());
        for (std::uint32_t k = first; k < first + length; ++k) {
          cuts[k] += up ? 1U : ~0U;
        }
        if (cuts[first] <= cuts[first - 1] || cuts[first + length - 1] >= cuts[first + length] ||
            moves_pinned(replica, first, length)) {
          continue;
        }
        set_cuts(replica, cuts);
        improved = keep_if_better(layout_.estimate()) || improved;
      }
    }
  }
  return improved;
}

bool LocalSearch::moves_pinned(std::uint32_t replica, std::uint32_t first,
                               std::uint32_t length) const {
  const std::uint32_t from = problem_.tied() ? 0 : replica;
  const std::uint32_t to = problem_.tied() ? problem_.replicas() : replica + 1;
  for (std::uint32_t r = from; r < to; ++r) {
    for (std::uint32_t s = first - 1; s < first + length; ++s) {
      if (problem_.unit(layout_.unit(r, s)).pinned) {
        return true;
      }
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
  if (mechanisms_.split_touched) {
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
}

bool LocalSearch::chain(const Block& hand, std::uint32_t depth) {
  std::vector<Step> steps;
  std::vector<Step> best;
  Worth least = now_;
  std::vector<std::uint32_t> visited{layout_.place_of(hand.front())};
  for (std::uint32_t level = 0; level < depth && !spent(); ++level) {
    const Layout::Point here = layout_.point();
    const std::vector<std::uint32_t> left = rows_of(hand);
    const double before = norm_of(left);
    Worth goes_on;
    const Block* next = nullptr;
    const std::vector<Block> others = candidates(hand, kBreadth[std::min<std::size_t>(level, 2)]);
    for (const Block& other : others) {
      const std::uint32_t place = layout_.place_of(other.front());
      if (std::find(visited.begin(), visited.end(), place) != visited.end()) {
        continue;
      }
      apply({hand, other});
      const Worth worth = layout_.estimate();
      if (improves(worth, least)) {
        least = worth;
        best = steps;
        best.push_back({hand, other});
      }
      // With an ideal node in the place that the other one left, the chain would have gained.
      const bool gained = place != kNone && worth.possible() &&
                          (!mechanisms_.gain_criterion || norm_of(left) < before);
      if (gained && (next == nullptr || improves(worth, goes_on))) {
        goes_on = worth;
        next = &other;
      }
      layout_.undo(here);
      if (spent()) {
        break;
      }
    }
    if (next == nullptr || level + 1 == depth) {
      break;
    }
    visited.push_back(layout_.place_of(next->front()));
    steps.push_back({hand, *next});
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

bool LocalSearch::descend(std::uint32_t depth, std::size_t places) {
  bool improved = false;
  for (bool changed = true; changed && !spent();) {
    changed = false;
    for (const std::uint32_t place : focus(places)) {
      for (const Block& block : blocks_of(place)) {
        if (spent()) {
          return improved;
        }
        if (problem_.job().capabilities.placement && chain(block, depth)) {
          changed = true;
          break;
        }
      }
    }
    if (!changed) {
      const std::uint32_t slowest = layout_.slowest();
      changed = lighten(slowest) || shift_boundaries(slowest, 1);
    }
    improved = improved || changed;
  }
  return improved;
}

void LocalSearch::nodes() {
  for (bool changed = true; changed && !spent();) {
    descend(mechanisms_.depth, 16);
    changed = mechanisms_.cascades && shift_boundaries(layout_.slowest(), problem_.stages() - 1);
  }
}

void LocalSearch::kicks() {
  const auto uniform = [&] { return static_cast<double>(random_() >> 11U) * 0x1.0p-53; };
  std::uint32_t fruitless = 0;
  std::uint32_t idle = 0;  // kicks in a row that changed nothing: nothing may move
  for (std::uint64_t before = 0; !spent() && idle < kFruitless;) {
    idle = layout_.evaluations() == before ? idle + 1 : 0;
    before = layout_.evaluations();
    const Snapshot base = snapshot(now_);
    const std::vector<std::uint32_t> places = focus(16);
    const std::uint32_t exchanges = 1 + static_cast<std::uint32_t>(random_() % 3);
    for (std::uint32_t k = 0; k < exchanges; ++k) {
      const std::uint32_t all = problem_.stages() * problem_.replicas();
      const auto place = static_cast<std::uint32_t>(!places.empty() && random_() % 4 != 0
                                                        ? places[random_() % places.size()]
                                                        : random_() % all);
      const std::vector<Block> blocks = blocks_of(place);
      const Block& hand = blocks[random_() % blocks.size()];
      const std::vector<Block> others = candidates(hand, kBreadth[0]);
      if (!others.empty()) {
        apply({hand, others[random_() % others.size()]});
        static_cast<void>(layout_.estimate());
      }
    }
    const Worth disturbed = layout_.settle();
    if (!disturbed.possible()) {
      layout_.undo();
      continue;
    }
    now_ = disturbed;
    layout_.mark();
    record();
    descend(1, 8);
    const double u = uniform();
    const bool better_than_base = improves(now_, base.worth);
    fruitless = better_than_base ? 0 : fruitless + 1;
    if (!better_than_base && now_.guide_s > base.worth.guide_s * (1 + kAccept * u * u)) {
      restore(base);
    }
    if (fruitless > kFruitless) {
      restore(best_);
      fruitless = 0;
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
