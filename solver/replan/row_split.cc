#include "solver/replan/row_split.h"

#include <algorithm>
#include <cstddef>

namespace tapas::solver {
namespace {

constexpr double kGain = 1e-9;

}  // namespace

bool RowSplit::Cost::below(const Cost& other) const {
  return unfit != other.unfit ? unfit < other.unfit : step_s < other.step_s * (1 - kGain);
}

void RowSplit::Terms::raise_to(const Terms& other) {
  pipeline_s = std::max(pipeline_s, other.pipeline_s);
  rest_s = std::max(rest_s, other.rest_s);
  update_s = std::max(update_s, other.update_s);
}

void RowSplit::set_holders(const Layout& layout, std::uint32_t replica) {
  const std::uint32_t stages = problem_.stages();
  const std::uint32_t first = problem_.tied() ? 0 : replica;
  const std::uint32_t last = problem_.tied() ? problem_.replicas() : replica + 1;
  holders_.resize(stages);
  pinned_.assign(stages, false);
  hop_s_.assign(stages, 0);
  for (std::uint32_t s = 0; s < stages; ++s) {
    holders_[s].clear();
    for (std::uint32_t r = first; r < last; ++r) {
      const Holder holder{layout.unit(r, s), r, layout.microbatches(r)};
      pinned_[s] = pinned_[s] || problem_.unit(holder.unit).pinned;
      // Equal units need to be asked once.
      if (std::none_of(holders_[s].begin(), holders_[s].end(), [&](const Holder& other) {
            return other.microbatches >= holder.microbatches &&
                   problem_.alike(other.unit, other.replica, holder.unit, holder.replica);
          })) {
        holders_[s].push_back(holder);
      }
    }
    if (s > 0) {
      const std::uint32_t before = layout.unit(replica, s - 1);
      const std::uint32_t here = layout.unit(replica, s);
      hop_s_[s - 1] = problem_.hop(before, 0, here, 0, cuts_[s], true).delay_s +
                      problem_.hop(before, 0, here, 0, cuts_[s], false).delay_s;
    }
  }
}

RowSplit::Stage RowSplit::stage(std::uint32_t stage, LayerRange range) {
  const std::uint32_t layers = range.last - range.first;
  Stage worst;
  for (const Holder& holder : holders_[stage]) {
    const StageTime time =
        problem_.stage_time(holder.unit, holder.replica, stage, holder.microbatches, range);
    if (!time.fits) {
      return {.microbatches = holder.microbatches, .unfit = layers};
    }
    if (holder.microbatches * time.total_s() >= worst.microbatches * worst.total_s()) {
      const std::uint32_t m = holder.microbatches;
      const std::uint32_t shard = problem_.unit(holder.unit).widths[time.width].shard;
      const StepTail& tail = layout_->tail(stage, shard);
      worst = {m,
               std::min(warm_up(problem_.current().schedule, problem_.stages(), stage, m), m - 1),
               time.forward_s,
               time.backward_s,
               tail.sync_s(time.params),
               tail.update_s(time.params),
               layers - std::min(layers, most_[stage])};
    }
  }
  return worst;
}

RowSplit::Terms RowSplit::terms(const Stage& as, double before_s, double later_s, double drain_s) {
  const double idle =
      least_wait_s(as.microbatches, as.warm_up, as.forward_s, as.backward_s, later_s);
  return {before_s + as.microbatches * as.total_s() + idle, as.sync_s - drain_s, as.update_s};
}

RowSplit::Cost RowSplit::survey() {
  const std::uint32_t stages = problem_.stages();
  unfit_ = 0;
  double before = 0;
  double drain = 0;
  for (std::uint32_t s = 0; s < stages; ++s) {
    unfit_ += stage_[s].unfit;
    before_s_[s] = before;
    drain_s_[s] = drain;
    before += stage_[s].total_s() + hop_s_[s];
    drain += stage_[s].backward_s;
  }
  Terms largest;
  for (std::uint32_t s = 0; s < stages; ++s) {
    later_s_[s] = before - before_s_[s] - stage_[s].total_s();
    terms_[s] = terms(stage_[s], before_s_[s], later_s_[s], drain_s_[s]);
    below_[s] = largest;
    largest.raise_to(terms_[s]);
  }
  const Cost cost{unfit_, largest.step_s()};
  largest = {};
  for (std::uint32_t s = stages; s-- > 0;) {
    above_[s] = largest;
    largest.raise_to(terms_[s]);
  }
  return cost;
}

std::array<std::uint32_t, 3> RowSplit::givers() const {
  std::array<std::uint32_t, 3> worst{};
  for (std::uint32_t s = 0; s < problem_.stages(); ++s) {
    if (stage_[s].unfit > 0) {
      return {s, kNone, kNone};
    }
    worst[0] = terms_[s].pipeline_s > terms_[worst[0]].pipeline_s ? s : worst[0];
    worst[1] = terms_[s].rest_s > terms_[worst[1]].rest_s ? s : worst[1];
    worst[2] = terms_[s].update_s > terms_[worst[2]].update_s ? s : worst[2];
  }
  // Each once.
  worst[2] = worst[2] == worst[0] || worst[2] == worst[1] ? kNone : worst[2];
  worst[1] = worst[1] == worst[0] ? kNone : worst[1];
  return worst;
}

std::uint32_t RowSplit::taker(std::uint32_t from, Cost& limit) {
  std::uint32_t best = kNone;
  for (const bool up : {true, false}) {
    const Stage giver = stage(from, {cuts_[from] + (up ? 0 : 1), cuts_[from + 1] - (up ? 1 : 0)});
    const double less = giver.total_s() - stage_[from].total_s();
    const double less_backward = giver.backward_s - stage_[from].backward_s;
    Terms between;
    for (std::uint32_t to = up ? from + 1 : from - 1; to < problem_.stages() && !pinned_[to];
         up ? ++to : --to) {
      const Stage& taker = longer(to, up);
      const double more = taker.total_s() - stage_[to].total_s();
      const double more_backward = taker.backward_s - stage_[to].backward_s;
      // Of the earlier and the later of the two stages.
      const double first = up ? less : more;
      const double second = up ? more : less;
      const double first_backward = up ? less_backward : more_backward;
      const std::uint32_t a = std::min(from, to);
      const std::uint32_t b = std::max(from, to);
      const auto shifted = [](Terms t, double pipeline, double rest) {
        t.pipeline_s += pipeline;
        t.rest_s -= rest;
        return t;
      };
      // A stage waits for all that is behind it at its first backward and again at its last.
      Terms all = shifted(below_[a], 2 * (first + second), 0);
      all.raise_to(terms(up ? giver : taker, before_s_[a], later_s_[a] + second, drain_s_[a]));
      all.raise_to(shifted(between, first + 2 * second, first_backward));
      all.raise_to(terms(up ? taker : giver, before_s_[b] + first, later_s_[b],
                         drain_s_[b] + first_backward));
      all.raise_to(shifted(above_[b], first + second, less_backward + more_backward));
      const Cost cost{unfit_ - stage_[from].unfit - stage_[to].unfit + giver.unfit + taker.unfit,
                      all.step_s()};
      if (cost.below(limit)) {
        limit = cost;
        best = to;
      }
      between.raise_to(terms_[to]);
    }
  }
  return best;
}

const RowSplit::Stage& RowSplit::longer(std::uint32_t stage, bool front) {
  std::optional<Stage>& known = longer_[stage][front ? 1 : 0];
  if (!known) {
    known =
        this->stage(stage, {cuts_[stage] - (front ? 1 : 0), cuts_[stage + 1] + (front ? 0 : 1)});
  }
  return *known;
}

void RowSplit::move(std::uint32_t from, std::uint32_t to) {
  for (std::uint32_t s = from + 1; s <= to; ++s) {
    --cuts_[s];
  }
  for (std::uint32_t s = to + 1; s <= from; ++s) {
    ++cuts_[s];
  }
  for (std::uint32_t s = std::min(from, to); s <= std::max(from, to); ++s) {
    stage_[s] = stage(s, {cuts_[s], cuts_[s + 1]});
    longer_[s] = {};
  }
}

void RowSplit::load(const Layout& layout, std::uint32_t replica,
                    std::span<const StageLimit> limits) {
  const std::uint32_t stages = problem_.stages();
  layout_ = &layout;
  most_.assign(stages, problem_.layers());
  for (const StageLimit& limit : limits) {
    most_[limit.stage] = limit.layers;
  }
  cuts_.assign(layout.cuts(replica).begin(), layout.cuts(replica).end());
  set_holders(layout, replica);
  stage_.resize(stages);
  longer_.assign(stages, {});
  for (std::vector<double>* list : {&before_s_, &later_s_, &drain_s_}) {
    list->resize(stages);
  }
  for (std::vector<Terms>* list : {&terms_, &below_, &above_}) {
    list->resize(stages);
  }
  for (std::uint32_t s = 0; s < stages; ++s) {
    stage_[s] = stage(s, {cuts_[s], cuts_[s + 1]});
  }
}

std::array<std::uint32_t, 3> RowSplit::critical(const Layout& layout, std::uint32_t replica) {
  load(layout, replica, {});
  static_cast<void>(survey());
  return givers();
}

const std::vector<std::uint32_t>& RowSplit::operator()(const Layout& layout, std::uint32_t replica,
                                                       std::span<const StageLimit> limits) {
  load(layout, replica, limits);
  for (Cost now = survey();;) {
    std::uint32_t from = kNone;
    std::uint32_t to = kNone;
    Cost limit = now;
    for (const std::uint32_t giver : givers()) {
      if (giver != kNone && !pinned_[giver] && cuts_[giver + 1] - cuts_[giver] > 1) {
        if (const std::uint32_t best = taker(giver, limit); best != kNone) {
          from = giver;
          to = best;
        }
      }
    }
    if (to == kNone) {
      return cuts_;
    }
    move(from, to);
    const Cost then = survey();
    if (!then.below(now)) {  // layers that passed through a stage changed it
      move(to, from);
      return cuts_;
    }
    now = then;
  }
}

}  // namespace tapas::solver
