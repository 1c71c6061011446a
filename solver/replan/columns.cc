#include "solver/replan/local_search.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
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
// Of the shifts of a unit so many are looked at in all replicas.
constexpr std::size_t kEverywhere = 2;

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

Worth LocalSearch::try_shift(Shift& shift, bool everywhere) {
  const auto [row, from, to] = std::tuple(shift.row, shift.from, shift.to);
  exchange({layout_.unit(row, from)}, {layout_.unit(row, to)});
  if (shift.layers == Shift::Layers::kSwapped) {
    const std::uint32_t a = std::min(from, to);
    const std::uint32_t b = std::max(from, to);
    for (std::uint32_t r = 0; r < (problem_.tied() ? 1 : problem_.replicas()); ++r) {
      if (everywhere || problem_.tied() || r == row) {
        std::vector<std::uint32_t> cuts(layout_.cuts(r).begin(), layout_.cuts(r).end());
        const std::uint32_t longer = cuts[b + 1] - cuts[b] - (cuts[a + 1] - cuts[a]);
        for (std::uint32_t s = a + 1; s <= b; ++s) {
          cuts[s] += longer;
        }
        set_cuts(r, cuts);
      }
    }
    return layout_.estimate();
  }
  if (!layout_.estimate().possible()) {
    return {};
  }
  if (shift.layers == Shift::Layers::kRow) {
    split_row(row);
    return layout_.estimate();
  }
  if (shift.most == 0) {
    const auto cuts = layout_.cuts(row);
    double rest = 0;
    for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
      if (s != to) {
        rest = std::max(rest, rest_s(row, s, cuts[s + 1] - cuts[s]));
      }
    }
    shift.most = cuts[to + 1] - cuts[to];
    while (shift.most > 1 && rest_s(row, to, shift.most) > rest * kShare) {
      --shift.most;
    }
  }
  const StageLimit limit{to, shift.most};
  if (everywhere) {
    split_all(std::span(&limit, 1));
  } else {
    split_row(row, std::span(&limit, 1));
  }
  return layout_.estimate();
}

bool LocalSearch::was_idle(std::uint32_t unit) const {
  return problem_.unit(unit).home == kNone && layout_.place_of(unit) != kNone;
}

bool LocalSearch::carry() {
  const std::uint32_t stages = problem_.stages();
  std::vector<std::uint32_t> units;
  for (const std::uint32_t place : focus(16, Look::kMeasured)) {
    units.push_back(layout_.unit(place / stages, place % stages));
  }
  for (std::uint32_t u = 0; u < problem_.units().size(); ++u) {
    if (was_idle(u) && std::find(units.begin(), units.end(), u) == units.end()) {
      units.push_back(u);
    }
  }
  bool improved = false;
  for (const std::uint32_t unit : units) {
    const std::uint32_t row = layout_.place_of(unit) / stages;
    const std::uint32_t from = layout_.place_of(unit) % stages;
    const bool slow_ring = was_idle(unit) || nic_slowdown(problem_.unit(unit)) > kSlow;
    Worth least = now_;
    std::optional<Shift> best;
    std::vector<std::pair<double, Shift>> options;
    const auto look = [&](Shift shift) {
      const Worth worth = try_shift(shift, true);
      if (improves(worth, least)) {
        least = worth;
        best = shift;
      }
      layout_.undo();
    };
    for (std::uint32_t to = 0; to < stages && !spent(); ++to) {
      if (to == from || !may_exchange({unit}, {layout_.unit(row, to)})) {
        continue;
      }
      if (slow_ring) {
        const auto cuts = layout_.cuts(row);
        const bool light = cuts[from + 1] - cuts[from] + 1 < cuts[to + 1] - cuts[to];
        Shift shift{row, from, to, light ? Shift::Layers::kSwapped : Shift::Layers::kHeld};
        if (try_shift(shift, false).possible()) {
          options.emplace_back(layout_.row_s(row), shift);
        }
        layout_.undo();
      } else if (row == layout_.slowest()) {
        look({row, from, to, Shift::Layers::kRow});
      }
    }
    std::stable_sort(options.begin(), options.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t k = 0; k < std::min(kEverywhere, options.size()) && !spent(); ++k) {
      look(options[k].second);
    }
    improved = (best && keep_if_better(try_shift(*best, true))) || improved;
  }
  return improved;
}

/// Takes layers off the stages whose gradients come last, in all replicas, as the gradients of all
/// go over one ring: as many as is best, as the first few may only make the pipelines longer.
bool LocalSearch::lighten(std::uint32_t replica) {
  if (problem_.replicas() == 1) {
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
