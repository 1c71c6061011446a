#include "tests/replan/annealing.h"

#include "solver/cost/pipeline.h"
#include "tests/replan/parts.h"
#include "tests/replan/value.h"
#include "tests/unit/solver/jobs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace tapas::solver::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kGain = 1e-9;
constexpr double kDrainedNode = 1e6;  // seconds; fewest come first
constexpr std::uint32_t kNone = Parts::kNone;

/// A norm close to the largest that still sees the others.
class Norm {
 public:
  void add(double x) {
    const double x2 = x * x;
    const double x4 = x2 * x2;
    const double x8 = x4 * x4;
    sum_ += x8 * x8;
    largest_ = std::max(largest_, x);
  }
  [[nodiscard]] double value() const { return sum_ > 0 ? std::pow(sum_, 1.0 / 16) : 0; }
  [[nodiscard]] double largest() const { return largest_; }

 private:
  double sum_ = 0;
  double largest_ = 0;
};

/// Who runs what, with the times of all rows kept up to date row by row.
class Layout {
 public:
  struct Row {
    std::vector<std::uint32_t> units;
    std::vector<std::uint32_t> cuts;
    std::uint32_t microbatches = 0;
    std::vector<double> ends_s;
    std::vector<double> params;
    std::vector<StepTail> tails;
    double transfer_s = 0;
    bool changed = false;
  };
  struct Totals {
    double potential = 0;
    double per_useful_step_s = 0;
  };

  Layout(const Job& job, const ReplanRequest& request)
      : job_(job), request_(request), parts_(job, request) {
    const Plan& current = request.current;
    rows_.resize(parts_.replicas());
    for (std::uint32_t r = 0; r < rows_.size(); ++r) {
      Row& row = rows_[r];
      for (std::uint32_t s = 0; s < parts_.stages(); ++s) {
        row.units.push_back(parts_.unit_at(r, s));
      }
      row.cuts = current.splits_of(r);
      row.microbatches = current.microbatches[r];
      row.tails.resize(parts_.stages());
      time_row(r);
    }
    for (std::uint32_t s = 0; s < parts_.stages(); ++s) {
      time_column(s);
    }
    at_.assign(parts_.units().size(), kNone);
    for (std::uint32_t u = 0; u < at_.size(); ++u) {
      at_[u] = parts_.units()[u].home;
    }
  }

  [[nodiscard]] Parts& parts() { return parts_; }
  [[nodiscard]] std::vector<Row>& rows() { return rows_; }
  /// Replica * stages + stage of a unit, or kNone.
  [[nodiscard]] std::uint32_t place_of(std::uint32_t unit) const { return at_[unit]; }
  void put(std::uint32_t unit, std::uint32_t place) {
    at_[unit] = place;
    if (place != kNone) {
      rows_[place / parts_.stages()].units[place % parts_.stages()] = unit;
    }
  }

  /// False when a stage does not fit.
  bool time_row(std::uint32_t r) {
    Row& row = rows_[r];
    const std::uint32_t stages = parts_.stages();
    pipeline_.forward_s.clear();
    pipeline_.backward_s.clear();
    pipeline_.forward_delay_s.clear();
    pipeline_.backward_delay_s.clear();
    row.params.resize(stages);
    for (std::uint32_t s = 0; s < stages; ++s) {
      const LayerRange range{row.cuts[s], s + 1 < stages ? row.cuts[s + 1] : parts_.layers()};
      const Parts::Stage at = parts_.stage(row.units[s], r, range,
                                           in_flight(Schedule::k1f1b, stages, s, row.microbatches));
      if (!at.fits || !parts_.can_receive(row.units[s], r, range)) {
        return false;
      }
      pipeline_.forward_s.push_back(at.forward_s);
      pipeline_.backward_s.push_back(at.backward_s);
      row.params[s] = at.params;
      if (s > 0) {
        const Parts::Delay delay = parts_.delay(row.units[s - 1], row.units[s], range.first);
        pipeline_.forward_delay_s.push_back(delay.forward_s);
        pipeline_.backward_delay_s.push_back(delay.backward_s);
      }
    }
    const auto ends = clock_.ends_s(pipeline_, row.microbatches);
    row.ends_s.assign(ends.begin(), ends.end());
    row.transfer_s = parts_.transfer_s(r, row.units, row.cuts);
    const Plan& current = request_.current;
    row.changed = row.microbatches != current.microbatches[r] || row.cuts != current.splits_of(r);
    for (std::uint32_t s = 0; s < stages && !row.changed; ++s) {
      row.changed = row.units[s] != parts_.unit_at(r, s);
    }
    return true;
  }

  void time_column(std::uint32_t s) {
    column_.clear();
    for (const Row& row : rows_) {
      column_.push_back(row.units[s]);
    }
    const Ring ring = parts_.ring(column_);
    for (Row& row : rows_) {
      row.tails[s] = parts_.tail(ring, row.units[s]);
    }
  }

  [[nodiscard]] Totals totals() const {
    Norm pipes;
    Norm syncs;
    double finished = 0;
    double update = 0;
    double transfer = 0;
    double drained = 0;
    bool changed = false;
    for (const Row& row : rows_) {
      double end = 0;
      for (std::size_t s = 0; s < row.units.size(); ++s) {
        const double sync = row.tails[s].sync_s(row.params[s]);
        syncs.add(sync);
        end = std::max(end, row.ends_s[s]);
        finished = std::max(finished, row.ends_s[s] + sync);
        update = std::max(update, row.tails[s].update_s(row.params[s]));
        drained += parts_.units()[row.units[s]].drained ? kDrainedNode : 0;
      }
      pipes.add(end);
      transfer = std::max(transfer, row.transfer_s);
      changed = changed || row.changed;
    }
    const double pause = job_.switch_pause_s + transfer;
    const double episode = request_.expected_episode_s;
    return {drained + per_useful_step_s(pipes.value() + syncs.value() + update, pause, episode),
            drained + per_useful_step_s(finished + update, changed ? pause : 0, episode)};
  }

  [[nodiscard]] Plan plan() {
    std::vector<std::vector<std::uint32_t>> units;
    std::vector<std::vector<std::uint32_t>> cuts;
    std::vector<std::uint32_t> microbatches;
    for (const Row& row : rows_) {
      units.push_back(row.units);
      cuts.push_back(row.cuts);
      microbatches.push_back(row.microbatches);
    }
    return parts_.plan(units, cuts, microbatches);
  }

  [[nodiscard]] bool may_shift(std::uint32_t r, std::uint32_t cut, int by) const {
    const Row& row = rows_[r];
    const auto pinned = [&](std::uint32_t u) { return parts_.units()[u].pinned; };
    const std::uint32_t last = cut + 1 < parts_.stages() ? row.cuts[cut + 1] : parts_.layers();
    const auto to = static_cast<std::uint32_t>(static_cast<int>(row.cuts[cut]) + by);
    return to > row.cuts[cut - 1] && to < last && !pinned(row.units[cut - 1]) &&
           !pinned(row.units[cut]);
  }

 private:
  const Job& job_;
  const ReplanRequest& request_;
  Parts parts_;
  std::vector<Row> rows_;
  std::vector<std::uint32_t> at_;
  std::vector<std::uint32_t> column_;
  Pipeline pipeline_;
  PipelineClock clock_;
};

/// The layout's plan, or the current one where that is no better or the switch is not allowed.
Plan better_of(const Job& job, const ReplanRequest& request, Plan plan) {
  Judge judge(job, request);
  const bool good = judge.allows(plan) && better(judge.value(plan), judge.value(request.current));
  return good ? std::move(plan) : request.current;
}

class Annealing {
 public:
  Annealing(const Job& job, const ReplanRequest& request, std::uint64_t seed)
      : job_(job), layout_(job, request), draw_(seed), stages_(layout_.parts().stages()) {}

  Plan run(double temperature, const std::function<double()>& spent) {
    Layout::Totals now = layout_.totals();
    double best = now.per_useful_step_s;
    std::vector<Layout::Row> best_rows = layout_.rows();
    const double hot = temperature * now.potential;
    double t = hot;
    for (std::uint32_t k = 0;; ++k) {
      if (k % 32 == 0) {
        const double share = spent();
        if (share >= 1) {
          break;
        }
        t = hot * std::pow(0.01, share);
      }
      if (!move()) {
        undo();
        continue;
      }
      const Layout::Totals next = layout_.totals();
      if (next.per_useful_step_s < best * (1 - kGain)) {
        best = next.per_useful_step_s;
        best_rows = layout_.rows();
      }
      if (next.potential <= now.potential ||
          draw_.between(0.0, 1.0) < std::exp((now.potential - next.potential) / t)) {
        now = next;
      } else {
        undo();
      }
    }
    layout_.rows() = std::move(best_rows);
    return layout_.plan();
  }

 private:
  /// Changes something at random; false when it is not possible or does not fit.
  bool move() {
    touched_.clear();
    exchanged_ = {kNone, kNone};
    const std::uint32_t kind = draw_.between(0U, 3U);
    if (kind <= 1 && job_.capabilities.placement) {
      return exchange();
    }
    if (kind == 3 && job_.capabilities.microbatch_counts && layout_.rows().size() > 1) {
      return give();
    }
    return shift();
  }

  void touch(std::uint32_t r) {
    if (std::none_of(touched_.begin(), touched_.end(),
                     [&](const auto& t) { return t.first == r; })) {
      touched_.emplace_back(r, layout_.rows()[r]);
    }
  }
  bool time_touched() {
    return std::all_of(touched_.begin(), touched_.end(),
                       [&](const auto& t) { return layout_.time_row(t.first); });
  }

  bool exchange() {
    const auto& units = layout_.parts().units();
    const auto last = static_cast<std::uint32_t>(units.size()) - 1;
    const std::uint32_t a = draw_.between(0U, last);
    const std::uint32_t b = draw_.between(0U, last);
    const std::uint32_t at = layout_.place_of(a);
    const std::uint32_t to = layout_.place_of(b);
    if (at == to || units[a].pinned || units[b].pinned) {
      return false;
    }
    exchanged_ = {a, b};
    for (const std::uint32_t place : {at, to}) {
      if (place != kNone) {
        touch(place / stages_);
      }
    }
    swap(a, b);
    if (!time_touched()) {
      return false;
    }
    time_columns(a, b);
    return true;
  }
  void swap(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t at = layout_.place_of(a);
    const std::uint32_t to = layout_.place_of(b);
    layout_.put(a, to);
    layout_.put(b, at);
  }
  void time_columns(std::uint32_t a, std::uint32_t b) {
    for (const std::uint32_t unit : {a, b}) {
      if (layout_.place_of(unit) != kNone) {
        layout_.time_column(layout_.place_of(unit) % stages_);
      }
    }
  }

  bool shift() {
    const auto rows = static_cast<std::uint32_t>(layout_.rows().size());
    if (stages_ < 2) {
      return false;
    }
    const std::uint32_t only = draw_.between(0U, rows - 1);
    const std::uint32_t cut = draw_.between(1U, stages_ - 1);
    const int by = draw_.between(0U, 1U) == 0 ? -1 : 1;
    for (std::uint32_t r = 0; r < rows; ++r) {
      if (r != only && job_.capabilities.replica_splits) {
        continue;
      }
      if (!layout_.may_shift(r, cut, by)) {
        return false;
      }
      touch(r);
      std::uint32_t& at = layout_.rows()[r].cuts[cut];
      at = static_cast<std::uint32_t>(static_cast<int>(at) + by);
    }
    return time_touched();
  }

  bool give() {
    auto& rows = layout_.rows();
    const auto last = static_cast<std::uint32_t>(rows.size()) - 1;
    const std::uint32_t from = draw_.between(0U, last);
    const std::uint32_t to = draw_.between(0U, last);
    if (from == to || rows[from].microbatches < 2) {
      return false;
    }
    touch(from);
    touch(to);
    --rows[from].microbatches;
    ++rows[to].microbatches;
    return time_touched();
  }

  void undo() {
    const auto [a, b] = exchanged_;
    if (a != kNone) {
      swap(a, b);
    }
    for (auto& [r, row] : touched_) {
      layout_.rows()[r] = std::move(row);
    }
    if (a != kNone) {
      time_columns(a, b);
    }
    touched_.clear();
    exchanged_ = {kNone, kNone};
  }

  const Job& job_;
  Layout layout_;
  Draw draw_;
  std::uint32_t stages_;
  std::vector<std::pair<std::uint32_t, Layout::Row>> touched_;
  std::pair<std::uint32_t, std::uint32_t> exchanged_{kNone, kNone};
};

/// Each microbatch to the row that is soonest done with it, from one each.
void share_microbatches(Layout& layout, std::uint32_t total) {
  auto& rows = layout.rows();
  const auto time_with = [&](std::uint32_t r, std::uint32_t m) {
    rows[r].microbatches = m;
    return layout.time_row(r) ? *std::max_element(rows[r].ends_s.begin(), rows[r].ends_s.end())
                              : kInfinity;
  };
  std::vector<std::uint32_t> m(rows.size(), 1);
  std::vector<double> with_one;
  for (std::uint32_t r = 0; r < rows.size(); ++r) {
    with_one.push_back(time_with(r, 2));
  }
  for (std::size_t k = rows.size(); k < total; ++k) {
    const auto r = static_cast<std::uint32_t>(std::min_element(with_one.begin(), with_one.end()) -
                                              with_one.begin());
    ++m[r];
    with_one[r] = time_with(r, m[r] + 1);
  }
  for (std::uint32_t r = 0; r < rows.size(); ++r) {
    time_with(r, m[r]);
  }
}

/// The cuts of `r`, or of all rows at once, whose slowest stage is fastest. Empty when none fits.
std::vector<std::uint32_t> min_max_cuts(Layout& layout, std::uint32_t first_row,
                                        std::uint32_t last_row) {
  Parts& parts = layout.parts();
  const std::uint32_t stages = parts.stages();
  const std::uint32_t layers = parts.layers();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(layers + 1, kInfinity));
  std::vector<std::vector<std::uint32_t>> end(stages, std::vector<std::uint32_t>(layers + 1, 0));
  best[stages][layers] = 0;
  for (std::uint32_t s = stages; s-- > 0;) {
    for (std::uint32_t i = s; i < (s == 0 ? 1 : layers); ++i) {
      for (std::uint32_t e = i + 1; e <= layers; ++e) {
        if (best[s + 1][e] >= best[s][i]) {
          continue;
        }
        double own = 0;
        for (std::uint32_t r = first_row; r < last_row; ++r) {
          const Layout::Row& row = layout.rows()[r];
          const Parts::Stage at = parts.stage(
              row.units[s], r, {i, e}, in_flight(Schedule::k1f1b, stages, s, row.microbatches));
          own = std::max(own, at.fits ? at.total_s() : kInfinity);
        }
        if (std::max(own, best[s + 1][e]) < best[s][i]) {
          best[s][i] = std::max(own, best[s + 1][e]);
          end[s][i] = e;
        }
      }
    }
  }
  std::vector<std::uint32_t> cuts;
  std::uint32_t first = 0;
  for (std::uint32_t s = 0; s < stages && best[0][0] < kInfinity; ++s) {
    cuts.push_back(first);
    first = end[s][first];
  }
  return cuts;
}

}  // namespace

Plan anneal(const Job& job, const ReplanRequest& request, double temperature, std::uint64_t seed,
            const std::function<double()>& spent) {
  return better_of(job, request, Annealing(job, request, seed).run(temperature, spent));
}

Plan greedy_shifts(const Job& job, const ReplanRequest& request,
                   const std::function<bool()>& out_of_time) {
  Layout layout(job, request);
  auto& rows = layout.rows();
  const auto count = static_cast<std::uint32_t>(rows.size());
  const bool tied = !job.capabilities.replica_splits;
  double best = layout.totals().per_useful_step_s;
  std::vector<Layout::Row> best_rows = rows;
  // Tries one change of some rows from the best layout.
  bool gained = false;
  std::vector<Layout::Row> start;
  const auto consider = [&](std::uint32_t first, std::uint32_t last, const auto& change) {
    bool fits = true;
    for (std::uint32_t r = first; r < last && fits; ++r) {
      fits = change(r) && layout.time_row(r);
    }
    const double value = fits ? layout.totals().per_useful_step_s : kInfinity;
    if (value < best * (1 - kGain)) {
      best = value;
      best_rows = rows;
      gained = true;
    }
    std::copy(start.begin() + first, start.begin() + last, rows.begin() + first);
  };
  do {
    gained = false;
    start = rows = best_rows;
    for (std::uint32_t r = 0; r < (tied ? 1 : count); ++r) {
      for (std::uint32_t cut = 1; cut < layout.parts().stages(); ++cut) {
        for (const int by : {-1, 1}) {
          consider(r, tied ? count : r + 1, [&](std::uint32_t row) {
            if (!layout.may_shift(row, cut, by)) {
              return false;
            }
            std::uint32_t& at = rows[row].cuts[cut];
            at = static_cast<std::uint32_t>(static_cast<int>(at) + by);
            return true;
          });
        }
      }
    }
    if (job.capabilities.microbatch_counts) {
      for (std::uint32_t a = 0; a < count; ++a) {
        for (std::uint32_t b = 0; b < count; ++b) {
          if (a == b || start[a].microbatches < 2) {
            continue;
          }
          consider(std::min(a, b), std::max(a, b) + 1, [&](std::uint32_t row) {
            rows[row].microbatches += row == a ? -1U : row == b ? 1U : 0U;
            return true;
          });
        }
      }
    }
  } while (gained && !out_of_time());
  rows = best_rows;
  return better_of(job, request, layout.plan());
}

Plan split_anew(const Job& job, const ReplanRequest& request) {
  Layout layout(job, request);
  const auto count = static_cast<std::uint32_t>(layout.rows().size());
  const bool tied = !job.capabilities.replica_splits;
  for (std::uint32_t r = 0; r < count; r += tied ? count : 1) {
    const std::vector<std::uint32_t> cuts = min_max_cuts(layout, r, tied ? count : r + 1);
    if (cuts.empty()) {
      return request.current;
    }
    for (std::uint32_t k = r; k < (tied ? count : r + 1); ++k) {
      layout.rows()[k].cuts = cuts;
    }
  }
  if (job.capabilities.microbatch_counts) {
    share_microbatches(layout, job.total_microbatches());
  }
  return better_of(job, request, layout.plan());
}

}  // namespace tapas::solver::testing
