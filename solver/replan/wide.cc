#include "solver/replan/local_search.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

// A disturbed layout may be worse by up to this share, and more the longer nothing is found, and
// still be gone on from.
constexpr double kAccept = 0.01;
constexpr std::uint32_t kPatience = 10;   // kicks without gain until they get wilder
constexpr std::uint32_t kFruitless = 60;  // and until they start from the best again
// Splits of kicks this close to where they came from are worth a closer look.
constexpr double kPromising = 0.03;
constexpr std::uint64_t kBranchesOfKick = 1000;
// One kick in so many.
constexpr std::uint32_t kColumns = 8;
constexpr std::uint32_t kCounts = 8;
constexpr double kHot = 0.03;  // temperatures, as a share of the worth
constexpr double kCold = 0.0003;
constexpr std::uint64_t kStretch = 300;  // evaluations of the first turn of each
constexpr std::uint64_t kHomeStretch = 4 * kStretch;
constexpr std::uint64_t kLateStretch = 16 * kStretch;

}  // namespace

bool LocalSearch::give_microbatches(std::uint32_t from) {
  const std::uint32_t many = layout_.microbatches(from);
  const std::uint32_t given = draw(2) == 0 ? many - 1 : draw(many);
  if (given == 0) {
    return false;
  }
  const std::uint32_t to = (from + 1 + draw(problem_.replicas() - 1)) % problem_.replicas();
  layout_.count(from, many - given);
  layout_.count(to, layout_.microbatches(to) + given);
  split_row(from);
  if (!problem_.tied()) {
    split_row(to);
  }
  return true;
}

bool LocalSearch::kick(std::uint32_t exchanges) {
  const std::uint32_t stages = problem_.stages();
  const std::vector<std::uint32_t> places = focus(16, Look::kAll);
  const bool counts = problem_.replicas() > 1 && problem_.job().capabilities.microbatch_counts;
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
    if (stages > 1 && draw(kColumns) == 0) {
      const std::uint32_t other = draw(stages);
      if (!swap_columns(std::min(place % stages, other), std::max(place % stages, other))) {
        return false;
      }
      any = true;
      static_cast<void>(layout_.estimate());
      continue;
    }
    if (counts && draw(kCounts) == 0) {
      // Some layers fit only where few microbatches are in flight.
      if (give_microbatches(place / stages)) {
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

std::uint32_t LocalSearch::draw(std::size_t many) {
  return static_cast<std::uint32_t>(random_() % many);
}

double LocalSearch::uniform() { return static_cast<double>(random_() >> 11U) * 0x1.0p-53; }

void LocalSearch::kicks(std::uint64_t until) {
  std::uint32_t fruitless = 0;
  for (std::uint32_t failed = 0;
       !spent() && layout_.evaluations() < until && failed < kFruitless;) {
    const Snapshot base = snapshot(now_);
    // The longer nothing is found, the farther away it is looked for.
    const std::uint32_t level = fruitless / kPatience;
    if (!kick(1 + draw(3 + level))) {
      layout_.undo();
      ++failed;
      continue;
    }
    failed = 0;
    now_ = layout_.settle();
    layout_.mark();
    record();
    // Its layers are cut exactly if it comes near; the time goes to more nodes.
    descend({1, 6, Look::kAll, 6, /*layers=*/false});
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
    if (cuts[k] <= cuts[k - 1] || cuts[k] >= cuts[k + 1]) {
      return false;
    }
    set_cuts(r, cuts);
    return layout_.changed();
  }
  if (kind == 3 && stages > 2) {
    return rotate(r, place % stages, draw(stages));
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
  double polished_s = kForever;
  // Kicks find what is near soon, annealing what takes many changes at once later.
  for (std::uint64_t stretch = kStretch; !spent(); stretch *= 2) {
    by_potential_ = mechanisms_.potential && draw(2) == 0;
    layout_.allow_transfer(2.0 * draw(4));
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
    return_home();
    columns();
    nodes();
    if (stretch == kHomeStretch || stretch == kLateStretch) {
      // In a short episode little may move: the best may be near the current plan. With more time
      // by the best changes, as the first that help may lead away from it.
      restore(home_);
      polish(stretch == kHomeStretch ? Take::kFirst : Take::kBest);
    }
    if (best_.worth.useful_s < polished_s) {
      restore_best();
      polish(Take::kFirst);
      polished_s = best_.worth.useful_s;
    }
    if (layout_.evaluations() == before) {
      return;  // there is nothing that may change
    }
  }
}

}  // namespace tapas::solver
