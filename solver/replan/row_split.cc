#include "solver/replan/row_split.h"

#include <algorithm>

namespace tapas::solver {

void RowSplit::set_holders(const Layout& layout, std::uint32_t replica) {
  const std::uint32_t first = problem_.tied() ? 0 : replica;
  const std::uint32_t last = problem_.tied() ? problem_.replicas() : replica + 1;
  holders_.resize(problem_.stages());
  pinned_.assign(problem_.stages(), false);
  for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
    holders_[s].clear();
    for (std::uint32_t r = first; r < last; ++r) {
      const Holder holder{layout.unit(r, s), r, layout.microbatches(r)};
      pinned_[s] = pinned_[s] || problem_.unit(holder.unit).pinned;
      // Equal units need to be asked once.
      if (std::none_of(holders_[s].begin(), holders_[s].end(), [&](const Holder& other) {
            return other.microbatches == holder.microbatches &&
                   problem_.alike(other.unit, other.replica, holder.unit, holder.replica);
          })) {
        holders_[s].push_back(holder);
      }
    }
  }
}

double RowSplit::time_s(std::uint32_t stage, std::uint32_t first, std::uint32_t last) {
  if (first >= last || last - first > most_[stage]) {
    return kForever;
  }
  double slowest = 0;
  for (const Holder& holder : holders_[stage]) {
    const StageTime time =
        problem_.stage_time(holder.unit, holder.replica, stage, holder.microbatches, {first, last});
    const bool fits =
        time.fits && problem_.fits_switch(holder.unit, holder.replica, time.width, {first, last});
    slowest = std::max(slowest, fits ? time.total_s() : kForever);
  }
  return slowest;
}

std::uint32_t RowSplit::taker(std::uint32_t from, double limit_s) {
  std::uint32_t best = kNone;
  double best_s = limit_s;
  for (std::uint32_t to = from + 1; to < problem_.stages() && !pinned_[to]; ++to) {
    const double time = time_s(to, cuts_[to] - 1, cuts_[to + 1]);
    if (time < best_s) {
      best_s = time;
      best = to;
    }
    if (!(time_s(to, cuts_[to] - 1, cuts_[to + 1] - 1) < limit_s)) {
      break;
    }
  }
  for (std::uint32_t to = from; to-- > 0 && !pinned_[to];) {
    const double time = time_s(to, cuts_[to], cuts_[to + 1] + 1);
    if (time < best_s) {
      best_s = time;
      best = to;
    }
    if (!(time_s(to, cuts_[to] + 1, cuts_[to + 1] + 1) < limit_s)) {
      break;
    }
  }
  return best;
}

const std::vector<std::uint32_t>& RowSplit::operator()(const Layout& layout, std::uint32_t replica,
                                                       std::span<const StageLimit> limits) {
  set_holders(layout, replica);
  most_.assign(problem_.stages(), problem_.layers());
  for (const StageLimit& limit : limits) {
    most_[limit.stage] = limit.layers;
  }
  cuts_.assign(layout.cuts(replica).begin(), layout.cuts(replica).end());
  times_.resize(problem_.stages());
  for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
    times_[s] = time_s(s, cuts_[s], cuts_[s + 1]);
  }
  for (;;) {
    const auto from =
        static_cast<std::uint32_t>(std::max_element(times_.begin(), times_.end()) - times_.begin());
    if (pinned_[from] || cuts_[from + 1] - cuts_[from] < 2) {
      return cuts_;
    }
    const std::uint32_t to = taker(from, times_[from]);
    if (to == kNone) {
      return cuts_;
    }
    for (std::uint32_t s = from + 1; s <= to; ++s) {
      --cuts_[s];
    }
    for (std::uint32_t s = to + 1; s <= from; ++s) {
      ++cuts_[s];
    }
    for (std::uint32_t s = std::min(from, to); s <= std::max(from, to); ++s) {
      times_[s] = time_s(s, cuts_[s], cuts_[s + 1]);
    }
  }
}

}  // namespace tapas::solver
