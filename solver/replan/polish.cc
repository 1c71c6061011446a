#include "solver/replan/local_search.h"

#include <algorithm>
#include <vector>

namespace tapas::solver {
namespace {

// With more units there are too many changes for two of them to be tried together.
constexpr std::size_t kFewUnits = 32;
// Changes that lose least, after which each second one is tried.
constexpr std::size_t kFirst = 16;

}  // namespace

std::vector<LocalSearch::Change> LocalSearch::changes(Take take) const {
  using Kind = Change::Kind;
  const auto units = static_cast<std::uint32_t>(problem_.units().size());
  const std::uint32_t stages = problem_.stages();
  const std::uint32_t replicas = problem_.replicas();
  std::vector<Change> all;
  for (std::uint32_t b = 1; b < units; ++b) {
    for (std::uint32_t a = 0; a < b; ++a) {
      all.push_back({Kind::kExchange, a, b});
    }
  }
  for (std::uint32_t place = 0; place < stages * replicas; ++place) {
    const std::uint32_t from = place % stages;
    for (std::uint32_t to = 0; to < stages; ++to) {
      if (to + 1 < from || to > from + 1) {
        all.push_back({Kind::kRotate, from, to, place / stages});
      }
    }
  }
  for (std::uint32_t b = 1; b < replicas; ++b) {
    for (std::uint32_t a = 0; a < b; ++a) {
      all.push_back({Kind::kSwapRows, 0, stages - 1, a, b});
    }
  }
  if (take == Take::kFirst) {
    return all;
  }
  for (std::uint32_t from = 0; from < stages; ++from) {
    for (std::uint32_t to = 0; to < stages; ++to) {
      for (std::uint32_t r = 0; r < replicas; ++r) {
        for (std::uint32_t other = 0; other < r && from <= to && to - from + 1 < stages; ++other) {
          all.push_back({Kind::kSwapRows, from, to, other, r});
        }
        if (from != to && (r == 0 || !problem_.tied())) {
          all.push_back({Kind::kLayer, from, to, r});
        }
      }
      if (from != to && !problem_.tied()) {
        all.push_back({Kind::kLayers, from, to});
      }
    }
  }
  return all;
}

bool LocalSearch::make(const Change& change) {
  switch (change.kind) {
    case Change::Kind::kExchange: {
      const bool idle = layout_.place_of(change.a) == kNone;
      const Block hand{idle ? change.b : change.a};
      const Block other{idle ? change.a : change.b};
      if (layout_.place_of(hand.front()) == kNone || !may_exchange(hand, other)) {
        return false;
      }
      exchange(hand, other);
      return true;
    }
    case Change::Kind::kRotate:
      return rotate(change.replica, change.a, change.b);
    case Change::Kind::kSwapRows:
      return swap_rows(change.replica, change.other, change.a, change.b);
    case Change::Kind::kLayer:
      return move_layer(change.replica, change.a, change.b);
    case Change::Kind::kLayers:
      for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
        if (!move_layer(r, change.a, change.b)) {
          return false;
        }
      }
      return true;
  }
  return false;
}

bool LocalSearch::swap_rows(std::uint32_t a, std::uint32_t b, std::uint32_t first,
                            std::uint32_t last) {
  for (std::uint32_t s = first; s <= last; ++s) {
    if (!swap_units(layout_.unit(a, s), layout_.unit(b, s))) {
      return false;
    }
  }
  if (last - first + 1 < problem_.stages()) {
    return true;
  }
  if (!problem_.tied()) {
    const std::vector<std::uint32_t> cuts(layout_.cuts(a).begin(), layout_.cuts(a).end());
    set_cuts(a, {layout_.cuts(b).begin(), layout_.cuts(b).end()});
    set_cuts(b, cuts);
  }
  const std::uint32_t count = layout_.microbatches(a);
  layout_.count(a, layout_.microbatches(b));
  layout_.count(b, count);
  return true;
}

bool LocalSearch::move_layer(std::uint32_t replica, std::uint32_t from, std::uint32_t to) {
  const auto cuts = layout_.cuts(replica);
  if (cuts[from + 1] - cuts[from] < 2) {
    return false;
  }
  set_cuts(replica, layer_moved(replica, from, to));
  return layout_.changed();
}

void LocalSearch::polish(Take take) {
  if (!mechanisms_.polish || !problem_.job().capabilities.placement ||
      problem_.units().size() > kFewUnits) {
    return;
  }
  struct First {
    double useful_s = 0;
    Change change;
  };
  by_potential_ = false;
  const std::vector<Change> all = changes(take);
  const auto try_change = [&](const Change& change) {
    return make(change) ? layout_.estimate() : Worth();
  };
  for (bool improved = true; improved && !spent();) {
    improved = false;
    std::vector<First> firsts;
    for (std::size_t k = 0; k < all.size() && !spent(); ++k) {
      const Worth worth = try_change(all[k]);
      if (worth.possible()) {
        firsts.push_back({worth.useful_s, all[k]});
      }
      if (take == Take::kFirst) {
        improved = keep_if_better(worth) || improved;
      } else {
        layout_.undo();
      }
    }
    std::stable_sort(firsts.begin(), firsts.end(),
                     [](const First& a, const First& b) { return a.useful_s < b.useful_s; });
    firsts.resize(std::min(firsts.size(), kFirst));
    const Snapshot base = snapshot(now_);
    Snapshot least = base;
    const auto keep_least = [&] {
      if (const Worth worth = layout_.settle(); better(worth, least.worth)) {
        least = snapshot(worth);
        improved = true;
      }
    };
    const auto goes_on = [&] { return !spent() && (take == Take::kBest || !improved); };
    for (std::size_t k = 0; k < firsts.size() && goes_on(); ++k) {
      static_cast<void>(try_change(firsts[k].change));
      keep_least();
      layout_.mark();
      for (std::size_t j = 0; j < all.size() && goes_on(); ++j) {
        if (better(try_change(all[j]), least.worth)) {
          keep_least();
        }
        layout_.undo();
      }
      restore(base);
    }
    restore(least);
    record();
  }
  by_potential_ = mechanisms_.potential;
}

}  // namespace tapas::solver
