#include "solver/replan/local_search.h"

#include <algorithm>
#include <vector>

namespace tapas::solver {
namespace {

// More units have too many changes for two of them to be tried together.
constexpr std::size_t kFewUnits = 32;
// Changes that lose least, after which each second one is tried.
constexpr std::size_t kFirst = 16;

}  // namespace

std::vector<LocalSearch::Change> LocalSearch::changes() const {
  const auto units = static_cast<std::uint32_t>(problem_.units().size());
  const std::uint32_t stages = problem_.stages();
  std::vector<Change> all;
  for (std::uint32_t b = 1; b < units; ++b) {
    for (std::uint32_t a = 0; a < b; ++a) {
      all.push_back({Change::Kind::kExchange, a, b});
    }
  }
  for (std::uint32_t place = 0; place < stages * problem_.replicas(); ++place) {
    for (std::uint32_t to = 0; to < stages; ++to) {
      if (to + 1 < place % stages || to > place % stages + 1) {
        all.push_back({Change::Kind::kRotate, place, to});
      }
    }
  }
  for (std::uint32_t b = 1; b < problem_.replicas(); ++b) {
    for (std::uint32_t a = 0; a < b; ++a) {
      all.push_back({Change::Kind::kSwapRows, a, b});
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
      return rotate(change.a / problem_.stages(), change.a % problem_.stages(), change.b);
    case Change::Kind::kSwapRows:
      return swap_rows(change.a, change.b);
  }
  return false;
}

bool LocalSearch::swap_rows(std::uint32_t a, std::uint32_t b) {
  for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
    if (!swap_units(layout_.unit(a, s), layout_.unit(b, s))) {
      return false;
    }
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

void LocalSearch::polish() {
  if (!mechanisms_.polish || !problem_.job().capabilities.placement ||
      problem_.units().size() > kFewUnits) {
    return;
  }
  struct First {
    double useful_s = 0;
    Change change;
  };
  by_potential_ = false;
  const std::vector<Change> all = changes();
  const auto try_change = [&](const Change& change) {
    return make(change) ? layout_.estimate() : Worth();
  };
  for (bool improved = true; improved && !spent();) {
    improved = false;
    std::vector<First> losing;
    for (std::size_t k = 0; k < all.size() && !spent(); ++k) {
      const Worth worth = try_change(all[k]);
      if (worth.possible()) {
        losing.push_back({worth.useful_s, all[k]});
      }
      improved = keep_if_better(worth) || improved;
    }
    std::stable_sort(losing.begin(), losing.end(),
                     [](const First& a, const First& b) { return a.useful_s < b.useful_s; });
    losing.resize(std::min(losing.size(), kFirst));
    const Snapshot base = snapshot(now_);
    for (std::size_t k = 0; k < losing.size() && !improved && !spent(); ++k) {
      static_cast<void>(try_change(losing[k].change));
      now_ = layout_.exact();
      layout_.mark();
      const Snapshot first = snapshot(now_);
      for (std::size_t j = 0; j < all.size() && !improved && !spent(); ++j) {
        const Worth worth = try_change(all[j]);
        if (!better(worth, base.worth)) {
          layout_.undo();
        } else if (keep_if_better(worth) && !better(now_, base.worth)) {
          restore(first);
        } else {
          improved = better(now_, base.worth);
        }
      }
      if (!improved) {
        restore(base);
      }
    }
  }
  by_potential_ = mechanisms_.potential;
}

}  // namespace tapas::solver
