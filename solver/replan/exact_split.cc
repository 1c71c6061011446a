#include "solver/replan/exact_split.h"

#include <algorithm>
#include <cmath>

namespace tapas::solver {

ExactSplit::ExactSplit(Problem& problem) : problem_(problem), least_(problem.layers() + 1, 0) {
  for (std::uint32_t l = 0; l < problem.layers(); ++l) {
    double least = kForever;
    for (const Problem::Shard& shard : problem.shards()) {
      const LayerTimes& t = (*shard.table)[l].times;
      least = std::min(least, t.forward_s + t.backward_s + t.forward_comm_s + t.backward_comm_s);
    }
    least_[l + 1] = least_[l] + least;
  }
}

void ExactSplit::set_stages(const Layout& layout, std::uint32_t replica) {
  const std::uint32_t stages = problem_.stages();
  const std::uint32_t first = problem_.tied() ? 0 : replica;
  const std::uint32_t last = problem_.tied() ? problem_.replicas() : replica + 1;
  rows_.assign(stages, {});
  fastest_.assign(stages, kForever);
  pinned_.assign(stages, false);
  capacity_.assign(stages + 1, 0);
  microbatches_ = layout.microbatches(first);
  for (std::uint32_t r = first; r < last; ++r) {
    microbatches_ = std::min(microbatches_, layout.microbatches(r));
  }
  for (std::uint32_t s = stages; s-- > 0;) {
    double slowest = 0;
    for (std::uint32_t r = first; r < last; ++r) {
      const Unit& unit = problem_.unit(layout.unit(r, s));
      pinned_[s] = pinned_[s] || unit.pinned;
      double fastest = kForever;
      for (const Unit::Width& width : unit.widths) {
        fastest = std::min({fastest, width.slowdown, problem_.inside(layout.unit(r, s))});
      }
      fastest_[s] = std::min(fastest_[s], fastest);
      slowest = std::max(slowest, fastest);
      if (std::none_of(rows_[s].begin(), rows_[s].end(), [&](std::uint32_t other) {
            return problem_.alike(layout.unit(other, s), other, layout.unit(r, s), r) &&
                   layout.microbatches(other) == layout.microbatches(r);
          })) {
        rows_[s].push_back(r);
      }
    }
    capacity_[s] = capacity_[s + 1] + 1 / slowest;
  }
}

StageTime ExactSplit::time_of(std::uint32_t stage, LayerRange range) {
  StageTime slowest;
  for (const std::uint32_t r : rows_[stage]) {
    const std::uint32_t unit = layout_->unit(r, stage);
    const StageTime time = problem_.stage_time(unit, r, stage, layout_->microbatches(r), range);
    if (!time.fits) {
      return {};
    }
    if (!slowest.fits || time.total_s() > slowest.total_s()) {
      slowest = time;
    }
  }
  return slowest;
}

double ExactSplit::bound_s(std::uint32_t stage, const StageTime& time, double before_s,
                           double later_s) const {
  const std::uint32_t m = microbatches_;
  const std::uint32_t warm =
      std::min(warm_up(problem_.current().schedule, problem_.stages(), stage, m), m - 1);
  return m * time.total_s() + least_wait_s(m, warm, time.forward_s, time.backward_s, later_s) +
         before_s;
}

void ExactSplit::time_whole() {
  if (problem_.tied()) {
    for (std::uint32_t r = 0; r < problem_.replicas(); ++r) {
      layout_->cut(r, cuts_);
    }
  } else {
    layout_->cut(replica_, cuts_);
  }
  const Worth worth = layout_->estimate();
  if (better(worth, found_.worth)) {
    found_.worth = worth;
    found_.cuts = cuts_;
  }
  layout_->undo();
  if ((*spent_)()) {
    left_ = 0;
  }
}

void ExactSplit::branch(std::uint32_t stage, double before_s) {
  const std::uint32_t stages = problem_.stages();
  const std::uint32_t first = cuts_[stage];
  if (stage + 1 == stages) {
    const StageTime time = time_of(stage, {first, problem_.layers()});
    if ((!pinned_[stage] || first == old_[stage]) && time.fits &&
        bound_s(stage, time, before_s, 0) * charge_ < found_.worth.useful_s) {
      time_whole();
    }
    return;
  }
  const auto consider = [&](std::uint32_t last) {
    constexpr std::uint64_t kAskEvery = 64;  // branches are cheaper than a look at the clock
    if (left_ == 0 || (left_ % kAskEvery == 0 && (*spent_)())) {
      left_ = 0;
      return;
    }
    --left_;
    if (pinned_[stage] && (first != old_[stage] || last != old_[stage + 1])) {
      return;
    }
    const StageTime time = time_of(stage, {first, last});
    if (!time.fits) {
      return;
    }
    const double rest = least_.back() - least_[last];
    // Where all rows share the split, the slowest of each stage are not of one row.
    double trip = 0;
    double own = (least_[last] - least_[first]) * fastest_[stage];
    if (!problem_.tied()) {
      const std::uint32_t here = layout_->unit(replica_, stage);
      const std::uint32_t next = layout_->unit(replica_, stage + 1);
      trip = problem_.hop(here, 0, next, 0, last, true).delay_s +
             problem_.hop(here, 0, next, 0, last, false).delay_s;
      own = time.total_s();
    }
    const double then = before_s + own + trip;
    // The slowest of the stages behind takes at least its share by speed.
    const double behind = then + microbatches_ * rest / capacity_[stage + 1];
    if (std::max(bound_s(stage, time, before_s, rest + trip), behind) * charge_ >=
        found_.worth.useful_s) {
      return;
    }
    cuts_[stage + 1] = last;
    branch(stage + 1, then);
  };
  // From the cut it has outwards: good splits early make the bound cut more.
  const std::uint32_t least = first + 1;
  const std::uint32_t most = problem_.layers() - (stages - 1 - stage);
  const std::uint32_t wish = std::clamp(old_[stage + 1], least, most);
  consider(wish);
  for (std::uint32_t away = 1; away <= most - least; ++away) {
    if (wish + away <= most) {
      consider(wish + away);
    }
    if (wish >= least + away) {
      consider(wish - away);
    }
  }
}

ExactSplit::Found ExactSplit::operator()(Layout& layout, std::uint32_t replica, const Worth& now,
                                         std::uint64_t most, const std::function<bool()>& spent) {
  layout_ = &layout;
  spent_ = &spent;
  replica_ = replica;
  set_stages(layout, replica);
  old_.assign(layout.cuts(replica).begin(), layout.cuts(replica).end());
  cuts_ = old_;
  charge_ = layout.least_charge(replica);
  left_ = most;
  found_ = {old_, now, false};
  if (now.useful_s == kForever) {
    return found_;
  }
  // Microbatches may leave the row for as much time as the others have.
  if (problem_.job().capabilities.microbatch_counts) {
    std::uint32_t leave = 0;
    for (std::uint32_t r = 0; r < problem_.replicas() && !problem_.tied(); ++r) {
      const double room = now.useful_s / charge_ - layout.row_s(r);
      leave += r != replica && room > 0 ? static_cast<std::uint32_t>(room / layout.period_s(r)) : 0;
    }
    microbatches_ -= std::min(leave, microbatches_ - 1);
    if (problem_.tied() && problem_.replicas() > 1) {
      microbatches_ = 1;
    }
  }
  branch(0, 0);
  found_.proven = left_ > 0;
  return found_;
}

}  // namespace tapas::solver
