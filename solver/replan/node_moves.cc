#include "solver/replan/local_search.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace tapas::solver {
namespace {

// A healthy node in a slow ring is looked at after the slow one.
constexpr double kVictim = 0.3;

}  // namespace

double LocalSearch::nic_slowdown(const Unit& unit) const {
  const NodeLinks links = problem_.state().links(NodeId(unit.node));
  double slowest = std::max(links.send, links.receive);
  for (const PathSlowdown& path : problem_.state().paths) {
    if (path.from.value() == unit.node || path.to.value() == unit.node) {
      slowest = std::max(slowest, path.factor);
    }
  }
  return slowest;
}

double LocalSearch::harm_s(std::uint32_t replica, std::uint32_t stage, double least_hop_s,
                           Look look) const {
  const Unit& unit = problem_.unit(layout_.unit(replica, stage));
  if (unit.drained) {
    return kForever;
  }
  const StageTime& time = layout_.time(replica, stage);
  const double slow =
      std::max(unit.widths[time.width].slowdown, problem_.state().links(NodeId(unit.node)).inside);
  const double nics = nic_slowdown(unit);
  double per_microbatch = slow > kSlow ? time.total_s() * (1 - 1 / slow) : 0;
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
          draw(stages) > 2) {
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
    static_cast<void>(layout_.estimate());  // rings are those of the new nodes
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
    const std::uint32_t row = layout_.slowest();
    changed = changed ||
              (effort.layers && (thin(row) || lighten(row) || thin_columns() || move_layers(row)));
    improved = improved || changed;
  }
  return improved;
}

bool LocalSearch::swap_units(std::uint32_t a, std::uint32_t b) {
  if (!may_exchange({a}, {b}) || !may_exchange({b}, {a})) {
    return false;
  }
  exchange({a}, {b});
  return true;
}

bool LocalSearch::rotate(std::uint32_t replica, std::uint32_t from, std::uint32_t to) {
  if (from == to) {
    return false;
  }
  for (std::uint32_t s = from; s != to;) {
    const std::uint32_t next = s < to ? s + 1 : s - 1;
    if (!swap_units(layout_.unit(replica, s), layout_.unit(replica, next))) {
      return false;
    }
    s = next;
  }
  return true;
}

}  // namespace tapas::solver
