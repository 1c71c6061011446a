#include "solver/replan/local_search.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

// Levels to which stages are held down: this far apart, each third first.
constexpr double kLevel = 0.9;
constexpr std::size_t kStride = 3;
constexpr double kRounding = 1e-9;
// A stage with a slow ring gets so few layers that its gradients come in this share of the time
// that those of the others take.
constexpr double kShare = 0.5;

}  // namespace

double LocalSearch::rest_s(std::uint32_t replica, std::uint32_t stage, std::uint32_t layers) const {
  const StageTime& time = layout_.time(replica, stage);
  const std::uint32_t shard = problem_.unit(layout_.unit(replica, stage)).widths[time.width].shard;
  const StepTail& tail = layout_.tail(stage, shard);
  const auto cuts = layout_.cuts(replica);
  const double params = time.params * layers / (cuts[stage + 1] - cuts[stage]);
  return tail.sync_s(params) + tail.update_s(params) + layout_.end_s(replica, stage) -
         layout_.end_s(replica, 0);
}

StageLimit LocalSearch::held(std::uint32_t replica, std::uint32_t stage) const {
  const auto cuts = layout_.cuts(replica);
  double rest = 0;
  for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
    if (s != stage) {
      rest = std::max(rest, rest_s(replica, s, cuts[s + 1] - cuts[s]));
    }
  }
  std::uint32_t most = cuts[stage + 1] - cuts[stage];
  while (most > 1 && rest_s(replica, stage, most) > rest * kShare) {
    --most;
  }
  return {stage, most};
}

bool LocalSearch::has_slow_ring(std::uint32_t unit) const {
  return problem_.unit(unit).home == kNone || nic_slowdown(problem_.unit(unit)) > kSlow;
}

bool LocalSearch::is_slow(std::uint32_t replica, std::uint32_t stage) const {
  const Unit& unit = problem_.unit(layout_.unit(replica, stage));
  return unit.widths[layout_.time(replica, stage).width].slowdown > kSlow;
}

std::uint32_t LocalSearch::to_stage(std::uint32_t unit, std::uint32_t stage, const Block& beside) {
  const auto taken = [&](std::uint32_t r) {
    return std::find(beside.begin(), beside.end(), layout_.unit(r, stage)) != beside.end();
  };
  std::uint32_t row = layout_.place_of(unit) / problem_.stages();
  if (layout_.unit(row, stage) == unit) {
    return row;
  }
  if (taken(row)) {
    row = kNone;
    for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
      if (!taken(r) && (row == kNone || layout_.row_s(r) < layout_.row_s(row))) {
        row = r;
      }
    }
  }
  if (row == kNone || !may_exchange({unit}, {layout_.unit(row, stage)})) {
    return kNone;
  }
  exchange({unit}, {layout_.unit(row, stage)});
  return row;
}

bool LocalSearch::gather() {
  bool improved = false;
  for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
    improved = (mechanisms_.gather && problem_.ring_group(s) == s && gather(s)) || improved;
  }
  return improved;
}

bool LocalSearch::gather(std::uint32_t group) {
  const std::uint32_t stages = problem_.stages();
  Block slow_rings;
  Block slow;
  for (std::uint32_t u = 0; u < problem_.units().size(); ++u) {
    const std::uint32_t place = layout_.place_of(u);
    if (place != kNone && problem_.ring_group(place % stages) == group) {
      if (has_slow_ring(u)) {
        slow_rings.push_back(u);
      } else if (is_slow(place / stages, place % stages)) {
        slow.push_back(u);
      }
    }
  }
  // A stage is as slow for all replicas as for one where they share one split.
  const bool light = !slow_rings.empty();
  if (!light && (!problem_.tied() || slow.size() < 2)) {
    return false;
  }
  const Block& first = light ? slow_rings : slow;
  // The row of the first that got there.
  const auto place_all = [&](const Block& units, std::uint32_t to) {
    std::uint32_t found = kNone;
    for (const std::uint32_t unit : units) {
      const std::uint32_t row = to_stage(unit, to, units);
      found = found == kNone ? row : found;
    }
    return found != kNone && layout_.estimate().possible() ? found : kNone;
  };
  std::vector<std::pair<double, std::uint32_t>> stages_by_row;
  for (std::uint32_t to = 0; to < stages && !spent(); ++to) {
    if (problem_.ring_group(to) != group) {
      continue;
    }
    if (const std::uint32_t row = place_all(first, to); row != kNone) {
      const StageLimit limit = held(row, to);
      split_row(row, std::span(&limit, light ? 1 : 0));
      if (const Worth worth = layout_.estimate(); worth.possible()) {
        stages_by_row.emplace_back(problem_.tied() ? worth.guide_s : layout_.norm(row), to);
      }
    }
    layout_.undo();
  }
  std::sort(stages_by_row.begin(), stages_by_row.end());
  const auto everywhere = [&](const Block& units, std::uint32_t to) {
    const std::uint32_t row = place_all(units, to);
    if (row == kNone) {
      return Worth();
    }
    const StageLimit limit = held(row, to);
    split_all(std::span(&limit, light ? 1 : 0));
    return layout_.estimate();
  };
  Block all = slow_rings;
  all.insert(all.end(), slow.begin(), slow.end());
  Worth least = now_;
  const Block* gathered = nullptr;
  std::uint32_t best = kNone;
  for (const Block* units : std::array<const Block*, 2>{&first, &all}) {
    for (std::size_t k = 0; k < std::min(kEverywhere, stages_by_row.size()) && !spent(); ++k) {
      const std::uint32_t to = stages_by_row[k].second;
      if (const Worth worth = everywhere(*units, to); improves(worth, least)) {
        least = worth;
        gathered = units;
        best = to;
      }
      layout_.undo();
    }
    if (slow.empty() || !light) {
      break;
    }
  }
  return gathered != nullptr && keep_if_better(everywhere(*gathered, best));
}

bool LocalSearch::swap_columns(std::uint32_t a, std::uint32_t b) {
  if (a == b) {
    return false;
  }
  for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
    if (!swap_units(layout_.unit(r, a), layout_.unit(r, b))) {
      return false;
    }
    if (r == 0 || !problem_.tied()) {
      std::vector<std::uint32_t> cuts(layout_.cuts(r).begin(), layout_.cuts(r).end());
      const std::uint32_t longer = cuts[b + 1] - cuts[b] - (cuts[a + 1] - cuts[a]);
      for (std::uint32_t s = a + 1; s <= b; ++s) {
        cuts[s] += longer;
      }
      set_cuts(r, cuts);
    }
  }
  return true;
}

void LocalSearch::swap_harmed_columns() {
  const std::uint32_t stages = problem_.stages();
  for (std::uint32_t s = 0; s < stages; ++s) {
    bool harmed = false;
    for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
      harmed = harmed || is_slow(r, s) || has_slow_ring(layout_.unit(r, s));
    }
    Worth least = now_;
    std::uint32_t best = s;
    for (std::uint32_t to = 0; to < stages && harmed && !spent(); ++to) {
      if (swap_columns(std::min(s, to), std::max(s, to))) {
        if (const Worth worth = layout_.estimate(); improves(worth, least)) {
          least = worth;
          best = to;
        }
      }
      layout_.undo();
    }
    if (best != s) {
      swap_columns(std::min(s, best), std::max(s, best));
      keep_if_better(layout_.estimate());
    }
  }
}

void LocalSearch::columns() {
  for (std::uint32_t b = 1; b < problem_.stages(); ++b) {
    for (std::uint32_t a = 0; a < b && !spent(); ++a) {
      if (swap_columns(a, b)) {
        keep_if_better(layout_.estimate());
      } else {
        layout_.undo();
      }
    }
  }
}

void LocalSearch::relay() {
  const std::uint32_t stages = problem_.stages();
  for (std::uint32_t place = 0; place < stages * problem_.replicas(); ++place) {
    const std::uint32_t home = problem_.home_unit(place);
    const std::uint32_t row = place / stages;
    if (nic_slowdown(problem_.unit(home)) <= kSlow || layout_.place_of(home) == place) {
      continue;
    }
    for (std::uint32_t s = 0; s < stages; ++s) {
      const auto cuts = layout_.cuts(row);
      bool takes = false;
      for (std::uint32_t layer = cuts[s]; layer < cuts[s + 1]; ++layer) {
        takes = takes || problem_.home_stage(row, layer) == place % stages;
      }
      const Block here{layout_.unit(row, s)};
      if (!takes || problem_.home_stage_of(here.front()) == place % stages) {
        continue;
      }
      for (std::uint32_t k = 1; k < problem_.replicas() && !out_of_time(); ++k) {
        const Block there{
            problem_.home_unit((row + k) % problem_.replicas() * stages + place % stages)};
        if (layout_.place_of(there.front()) != kNone && may_exchange(here, there)) {
          exchange(here, there);
          // The slowest of several such NICs decides: each is relayed before the last one gains.
          if (keep_if_no_worse(layout_.exact())) {
            break;
          }
        }
      }
    }
  }
  record();
}

bool LocalSearch::carry() {
  std::vector<bool> seen(problem_.replicas());
  bool improved = false;
  for (std::uint32_t r = layout_.slowest(); mechanisms_.carry && !seen[r] && !spent();
       r = layout_.slowest()) {
    seen[r] = true;
    improved = carry(r) || improved;
  }
  return improved;
}

bool LocalSearch::carry(std::uint32_t replica) {
  Worth least = now_;
  std::optional<Step> best;
  for (std::uint32_t from = 0; from < problem_.stages(); ++from) {
    const Block hand{layout_.unit(replica, from)};
    for (std::uint32_t to = 0; to < problem_.stages() && !spent(); ++to) {
      Step step{hand, {layout_.unit(replica, to)}};
      if (to == from || !is_slow(replica, from) || !may_exchange(hand, step.other)) {
        continue;
      }
      if (const Worth worth = try_step(step); improves(worth, least)) {
        least = worth;
        best = step;
      }
      layout_.undo();
    }
  }
  if (!best) {
    return false;
  }
  apply(*best);
  return keep_if_better(layout_.estimate());
}

bool LocalSearch::thin(std::uint32_t replica) {
  Worth least = now_;
  std::vector<std::uint32_t> best;
  std::vector<StageLimit> limits;
  for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
    if (!mechanisms_.thin || !is_slow(replica, s)) {
      continue;
    }
    const std::uint32_t now = layout_.cuts(replica)[s + 1] - layout_.cuts(replica)[s];
    limits.push_back({s, now});
    std::uint32_t found = now;
    for (std::uint32_t n = now; n >= 1 && !spent(); --n) {
      limits.back().layers = n;
      split_row(replica, limits);
      if (layout_.changed()) {
        if (const Worth worth = layout_.estimate(); improves(worth, least)) {
          least = worth;
          found = n;
          best.assign(layout_.cuts(replica).begin(), layout_.cuts(replica).end());
        }
        layout_.undo();
      }
    }
    limits.back().layers = found;
  }
  if (best.empty()) {
    return false;
  }
  set_cuts(replica, best);
  return keep_if_better(layout_.estimate());
}

bool LocalSearch::thin_columns() {
  const std::uint32_t row = layout_.slowest();
  struct Option {
    double norm = 0;
    StageLimit limit;
  };
  std::vector<Option> options;
  for (std::uint32_t s = 0; s < problem_.stages() && mechanisms_.thin && !spent(); ++s) {
    const StageLimit limit{s, layout_.cuts(row)[s + 1] - layout_.cuts(row)[s] - 1};
    if (limit.layers > 0) {
      layout_.cut(row, split_(layout_, row, std::span(&limit, 1)));
      if (layout_.changed() && layout_.estimate().possible()) {
        options.push_back({layout_.norm(row), limit});
      }
      layout_.undo();
    }
  }
  std::stable_sort(options.begin(), options.end(),
                   [](const Option& a, const Option& b) { return a.norm < b.norm; });
  options.resize(std::min(options.size(), kEverywhere));
  Worth least = now_;
  const Option* best = nullptr;
  for (const Option& option : options) {
    if (spent()) {
      break;
    }
    split_all(std::span(&option.limit, 1));
    if (const Worth worth = layout_.estimate(); improves(worth, least)) {
      least = worth;
      best = &option;
    }
    layout_.undo();
  }
  if (best == nullptr) {
    return false;
  }
  split_all(std::span(&best->limit, 1));
  return keep_if_better(layout_.estimate());
}

/// Takes layers off the stages whose gradients come last, in all replicas, as the gradients of all
/// go over one ring: as many as is best, as the first few may only make the pipelines longer.
bool LocalSearch::lighten(std::uint32_t replica) {
  if (!mechanisms_.lighten || problem_.replicas() == 1) {
    return false;
  }
  const std::uint32_t stages = problem_.stages();
  std::vector<double> levels;
  for (std::uint32_t s = 0; s < stages; ++s) {
    const auto cuts = layout_.cuts(replica);
    for (std::uint32_t n = 1; n <= cuts[s + 1] - cuts[s]; ++n) {
      levels.push_back(rest_s(replica, s, n));
    }
  }
  std::sort(levels.begin(), levels.end(), std::greater<>());
  levels.erase(
      std::unique(levels.begin(), levels.end(), [](double a, double b) { return b > a * kLevel; }),
      levels.end());
  Worth least = now_;
  std::vector<StageLimit> best;
  const auto try_level = [&](std::size_t k) {
    std::vector<StageLimit> limits;
    for (std::uint32_t s = 0; s < stages; ++s) {
      std::uint32_t most = 1;
      while (most < problem_.layers() &&
             rest_s(replica, s, most + 1) <= levels[k] * (1 + kRounding)) {
        ++most;
      }
      limits.push_back({s, most});
    }
    split_all(limits);
    const Worth worth = layout_.estimate();
    const bool gains = improves(worth, least);
    if (gains) {
      least = worth;
      best = std::move(limits);
    }
    layout_.undo();
    return gains;
  };
  std::size_t found = 0;
  for (std::size_t k = kStride, fruitless = 0; k < levels.size() && fruitless < 2 && !spent();
       k += kStride) {
    fruitless = try_level(k) ? 0 : fruitless + 1;
    found = fruitless == 0 ? k : found;
  }
  for (std::size_t k = found + 1; k < std::min(found + kStride, levels.size()) && !spent(); ++k) {
    try_level(k);
  }
  for (std::size_t k = found; k-- > 1 && found - k < kStride && !spent();) {
    try_level(k);
  }
  if (best.empty()) {
    return false;
  }
  split_all(best);
  return keep_if_better(layout_.estimate());
}

}  // namespace tapas::solver
