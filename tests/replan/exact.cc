#include "tests/replan/exact.h"

#include "base/check.h"
#include "solver/cost/pipeline.h"
#include "tests/replan/parts.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tapas::solver::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;
constexpr std::size_t kMostStages = 8;
constexpr double kRaise = 1.03;
constexpr double kGiveUp = 1e3;
// Bounds are compared with this slack, so that rounding prunes nothing.
constexpr double kSlack = 1 + 1e-12;

/// A replica's row: who runs which layers.
struct Option {
  std::uint32_t mask = 0;  ///< units
  std::array<std::uint8_t, kMostStages> units{};
  std::array<std::uint8_t, kMostStages> cuts{};
  std::uint32_t most = 0;  ///< microbatches that may still lead to a better plan
  std::uint32_t drained = 0;
  double transfer_s = 0;
};

/// Rows of the same units.
struct Group {
  std::uint32_t mask = 0;
  std::uint32_t most = 0;  ///< of all its rows
  std::uint32_t drained = 0;
  std::vector<Option> options;
};

class Search {
 public:
  Search(const Job& job, const ReplanRequest& request, const Plan& known, std::uint64_t effort)
      : job_(job),
        request_(request),
        parts_(job, request),
        judge_(job, request),
        replicas_(parts_.replicas()),
        stages_(parts_.stages()),
        layers_(parts_.layers()),
        total_(job.total_microbatches()),
        units_(static_cast<std::uint32_t>(parts_.units().size())),
        effort_(effort) {
    TAPAS_CHECK(stages_ <= kMostStages && units_ <= 16 && !job.overlap_gradients,
                "{} stages on {} nodes", stages_, units_);
    best_.plan = request.current;
    best_.value = judge_.value(request.current);
    if (const Value value = judge_.value(known); better(value, best_.value)) {
      TAPAS_CHECK(judge_.allows(known), "the known plan is not allowed");
      best_.plan = known;
      best_.value = value;
    }
    fill_tables();
  }

  Exact run() {
    std::size_t sound = 0;
    for (const Parts::Unit& unit : parts_.units()) {
      sound += unit.drained ? 0 : 1;
    }
    const std::size_t needed = std::size_t{replicas_} * stages_;
    drained_ = needed > sound ? needed - sound : 0;
    for (; drained_ <= best_.value.drained_in_use; ++drained_) {
      // The effort grows steeply with what is allowed, so that is raised until a plan turns up.
      const double start = least_possible_s();
      for (ceiling_s_ = start; best_.proven; ceiling_s_ *= kRaise) {
        if (ceiling_s_ > start * kGiveUp) {
          ceiling_s_ = kInfinity;
        }
        solve_all();
        const bool level = best_.value.drained_in_use == drained_;
        if (ceiling_s_ == kInfinity || (level && best_.value.per_useful_step_s <= ceiling_s_)) {
          break;
        }
      }
    }
    return std::move(best_);
  }

 private:
  // --- pieces -----------------------------------------------------------------------------------

  void fill_tables() {
    const std::uint32_t kinds = job_.capabilities.recompute ? 1 : replicas_;
    stage_.resize(kinds * units_ * stages_ * (layers_ + 1) * (layers_ + 1));
    for (std::uint32_t r = 0; r < kinds; ++r) {
      for (std::uint32_t u = 0; u < units_; ++u) {
        for (std::uint32_t held = 1; held <= stages_; ++held) {
          for (std::uint32_t i = 0; i < layers_; ++i) {
            for (std::uint32_t e = i + 1; e <= layers_; ++e) {
              stage_[index(r, u, held, i, e)] = parts_.stage(u, r, {i, e}, held);
            }
          }
        }
      }
    }
    can_receive_.resize(replicas_ * units_ * (layers_ + 1) * (layers_ + 1));
    for (std::uint32_t r = 0; r < replicas_; ++r) {
      for (std::uint32_t u = 0; u < units_; ++u) {
        for (std::uint32_t i = 0; i < layers_; ++i) {
          for (std::uint32_t e = i + 1; e <= layers_; ++e) {
            can_receive_[((r * units_ + u) * (layers_ + 1) + i) * (layers_ + 1) + e] =
                parts_.can_receive(u, r, {i, e});
          }
        }
      }
    }
    delay_.resize(units_ * units_ * (layers_ + 1));
    for (std::uint32_t u = 0; u < units_; ++u) {
      for (std::uint32_t v = 0; v < units_; ++v) {
        for (std::uint32_t l = 1; l < layers_ && u != v; ++l) {
          delay_[(u * units_ + v) * (layers_ + 1) + l] = parts_.delay(u, v, l);
        }
      }
    }
    // What layers l.. take at least on any units, and a crossing between two stages.
    least_tail_.assign(layers_ + 1, 0);
    least_hop_ = kInfinity;
    for (std::uint32_t l = layers_; l-- > 0;) {
      double least = kInfinity;
      for (std::uint32_t u = 0; u < units_; ++u) {
        for (std::uint32_t r = 0; r < kinds; ++r) {
          const Parts::Stage& alone = stage_[index(r, u, 1, l, l + 1)];
          least = std::min(least, alone.fits ? alone.total_s() : kInfinity);
        }
        for (std::uint32_t v = 0; v < units_ && l > 0; ++v) {
          const Parts::Delay& hop = delay(u, v, l);
          least_hop_ = u == v ? least_hop_ : std::min(least_hop_, hop.forward_s + hop.backward_s);
        }
      }
      least_tail_[l] = least_tail_[l + 1] + least;
    }
    arrival_.resize(replicas_ * units_ * (layers_ + 1));
    for (std::uint32_t r = 0; r < replicas_; ++r) {
      for (std::uint32_t u = 0; u < units_; ++u) {
        double sum = 0;
        for (std::uint32_t l = 0; l < layers_; ++l) {
          sum += parts_.arrival_s(r, u, l);
          arrival_[(r * units_ + u) * (layers_ + 1) + l + 1] = sum;
        }
      }
    }
    // The best that any ring through a unit may bring.
    best_tail_.assign(units_, {kInfinity, kInfinity, kInfinity, kInfinity});
    for (std::uint32_t mask = 0; mask < (1U << units_); ++mask) {
      if (static_cast<std::uint32_t>(std::popcount(mask)) != replicas_) {
        continue;
      }
      for (std::uint32_t u = 0; u < units_; ++u) {
        if ((mask >> u & 1U) != 0) {
          const StepTail tail = parts_.tail(ring(mask), u);
          StepTail& best = best_tail_[u];
          best.fixed_s = std::min(best.fixed_s, tail.fixed_s);
          best.per_param_s = std::min(best.per_param_s, tail.per_param_s);
          best.update_fixed_s = std::min(best.update_fixed_s, tail.update_fixed_s);
          best.update_per_param_s = std::min(best.update_per_param_s, tail.update_per_param_s);
        }
      }
    }
  }

  [[nodiscard]] std::size_t index(std::uint32_t r, std::uint32_t u, std::uint32_t held,
                                  std::uint32_t i, std::uint32_t e) const {
    const std::uint32_t kind = job_.capabilities.recompute ? 0 : r;
    return (((std::size_t{kind} * units_ + u) * stages_ + held - 1) * (layers_ + 1) + i) *
               (layers_ + 1) +
           e;
  }
  [[nodiscard]] const Parts::Stage& stage(std::uint32_t r, std::uint32_t u, std::uint32_t s,
                                          std::uint32_t m, std::uint32_t i, std::uint32_t e) const {
    return stage_[index(r, u, in_flight(Schedule::k1f1b, stages_, s, m), i, e)];
  }
  [[nodiscard]] const Parts::Delay& delay(std::uint32_t u, std::uint32_t v,
                                          std::uint32_t layer) const {
    return delay_[(u * units_ + v) * (layers_ + 1) + layer];
  }

  /// A ring visits its nodes in the cluster's order, whichever replicas they are of.
  const Ring& ring(std::uint32_t mask) {
    const auto [it, added] = rings_.try_emplace(mask);
    if (added) {
      std::vector<std::uint32_t> column;
      for (std::uint32_t u = 0; u < units_; ++u) {
        if ((mask >> u & 1U) != 0) {
          column.push_back(u);
        }
      }
      it->second = parts_.ring(column);
    }
    return it->second;
  }

  [[nodiscard]] bool may_stand(std::uint32_t u, std::uint32_t r, std::uint32_t s) const {
    const std::uint32_t here = r * stages_ + s;
    const std::uint32_t at = parts_.unit_at(r, s);
    if (u == at) {
      return true;
    }
    return job_.capabilities.placement && !parts_.units()[u].pinned && !parts_.units()[at].pinned &&
           parts_.units()[u].home != here &&
           !(parts_.units()[u].drained && parts_.units()[u].home == Parts::kNone) &&
           job_.cluster.device_type_of(parts_.units()[u].node).collective_library ==
               job_.cluster.device_type_of(parts_.units()[at].node).collective_library;
  }
  [[nodiscard]] bool may_hold(std::uint32_t u, std::uint32_t r, std::uint32_t s, std::uint32_t i,
                              std::uint32_t e) const {
    const LayerRange now = stage_layers(request_.current, r, s, layers_);
    return can_receive_[((r * units_ + u) * (layers_ + 1) + i) * (layers_ + 1) + e] &&
           (!parts_.units()[parts_.unit_at(r, s)].pinned || (now.first == i && now.last == e));
  }

  /// The longest step that is still looked for after a switch with this transfer.
  [[nodiscard]] double limit_s(double transfer) const {
    const double best =
        best_.value.drained_in_use > drained_ ? kInfinity : best_.value.per_useful_step_s;
    return std::min(best, ceiling_s_) / request_.calibration /
           per_useful_step_s(1, job_.switch_pause_s + transfer, request_.expected_episode_s);
  }

  /// No changed plan takes less per useful step.
  double least_possible_s() {
    double microbatches_per_s = 0;
    double slowest = 0;
    for (std::uint32_t r = 0; r < replicas_; ++r) {
      tied_ = nullptr;
      const double rest = fill_rest(r, 1);
      microbatches_per_s += 1 / rest;
      slowest = std::max(slowest, rest * request_.current.microbatches[r]);
    }
    const double step = job_.capabilities.microbatch_counts ? total_ / microbatches_per_s : slowest;
    return request_.calibration *
           per_useful_step_s(step, job_.switch_pause_s, request_.expected_episode_s);
  }

  void solve_all() {
    if (job_.capabilities.replica_splits) {
      solve(nullptr);
      return;
    }
    std::vector<std::uint32_t> cuts{0};
    each_cut(cuts);
  }

  // --- rows -------------------------------------------------------------------------------------

  void each_cut(std::vector<std::uint32_t>& cuts) {
    if (cuts.size() == stages_) {
      solve(&cuts);
      return;
    }
    const auto left = static_cast<std::uint32_t>(stages_ - cuts.size());
    for (std::uint32_t next = cuts.back() + 1; next + left <= layers_; ++next) {
      cuts.push_back(next);
      each_cut(cuts);
      cuts.pop_back();
    }
  }

  /// `cuts`: of all replicas, or null for each its own.
  void solve(const std::vector<std::uint32_t>* cuts) {
    tied_ = cuts;
    const bool free = job_.capabilities.microbatch_counts;
    std::vector<std::uint32_t> most(replicas_, total_ - replicas_ + 1);
    for (std::uint32_t r = 0; r < replicas_; ++r) {
      if (free) {
        const double rest = fill_rest(r, 1);
        const double fitting = limit_s(0) * kSlack / rest;
        most[r] = fitting < most[r] ? static_cast<std::uint32_t>(fitting) : most[r];
      } else {
        most[r] = request_.current.microbatches[r];
      }
    }
    groups_.assign(replicas_, {});
    for (std::uint32_t r = 0; r < replicas_; ++r) {
      std::uint32_t others = 0;
      for (std::uint32_t k = 0; k < replicas_; ++k) {
        others += k == r ? 0 : most[k];
      }
      if (most[r] + others < total_) {
        return;
      }
      least_ = others < total_ ? total_ - others : 1;
      most_ = most[r];
      fill_rest(r, least_);
      row_ = r;
      found_.clear();
      Option option;
      extend(option, 0, 0, {});
      if (found_.empty()) {
        return;
      }
      groups_[r] = grouped();
      most[r] = groups_[r].front().most;
    }
    chosen_.assign(replicas_, nullptr);
    chosen_groups_.assign(replicas_, nullptr);
    combine(0, 0, 0, 0);
  }

  /// found_ by units, the most microbatches first.
  std::vector<Group> grouped() {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Option& a, const Option& b) { return a.units < b.units; });
    std::vector<Group> groups;
    for (Option& option : found_) {
      if (groups.empty() || groups.back().options.front().units != option.units) {
        groups.push_back({option.mask, 0, option.drained, {}});
      }
      groups.back().most = std::max(groups.back().most, option.most);
      groups.back().options.push_back(option);
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group& a, const Group& b) { return a.most > b.most; });
    return groups;
  }

  /// rest_[s][i]: what the slowest of stages s.. takes at least for layers i...
  double fill_rest(std::uint32_t r, std::uint32_t m) {
    for (std::uint32_t i = 0; i <= layers_; ++i) {
      rest_[stages_][i] = i == layers_ ? 0 : kInfinity;
    }
    for (std::uint32_t s = stages_; s-- > 0;) {
      for (std::uint32_t i = 0; i <= layers_; ++i) {
        rest_[s][i] = kInfinity;
        for (std::uint32_t e = i + 1; e <= layers_; ++e) {
          if (rest_[s + 1][e] >= rest_[s][i]) {
            continue;
          }
          double least = kInfinity;
          for (std::uint32_t u = 0; u < units_; ++u) {
            const Parts::Stage& at = stage(r, u, s, m, i, e);
            if (at.fits && may_stand(u, r, s) && may_hold(u, r, s, i, e)) {
              least = std::min(least, at.total_s());
            }
          }
          rest_[s][i] = std::min(rest_[s][i], std::max(least, rest_[s + 1][e]));
        }
      }
    }
    return rest_[0][0];
  }

  /// Of the stages placed so far. `forward`: when the first microbatch leaves the last of them;
  /// `around`: that and its way back from there.
  /// `beside`: what the fullest stage so far adds to a microbatch's way through all stages.
  struct Prefix {
    double forward = 0;
    double around = 0;
    double beside = 0;
    double first_sync = 0;
    double update = 0;
    double transfer = 0;
  };
  void extend(Option& option, std::uint32_t s, std::uint32_t first, const Prefix& before) {
    if (s == stages_) {
      finish(option, before.update);
      return;
    }
    if (++steps_ > effort_) {
      best_.proven = false;
      return;
    }
    const std::uint32_t left = stages_ - s - 1;
    for (std::uint32_t u = 0; u < units_; ++u) {
      if ((option.mask >> u & 1U) != 0 || !may_stand(u, row_, s)) {
        continue;
      }
      const bool drained = parts_.units()[u].drained;
      if (option.drained + (drained ? 1 : 0) > drained_) {
        continue;
      }
      double arrives = before.forward;
      double way = before.around;
      if (s > 0) {
        const Parts::Delay& hop = delay(option.units[s - 1], u, first);
        arrives += hop.forward_s;
        way += hop.forward_s + hop.backward_s;
      }
      const std::uint32_t lowest = s + 1 == stages_ ? layers_ : first + 1;
      const double* arrived = &arrival_[(row_ * units_ + u) * (layers_ + 1)];
      for (std::uint32_t e = lowest; e + left <= layers_; ++e) {
        if (tied_ != nullptr && e != (s + 1 < stages_ ? (*tied_)[s + 1] : layers_)) {
          continue;
        }
        const Parts::Stage& at = stage(row_, u, s, least_, first, e);
        if (!at.fits || !may_hold(u, row_, s, first, e)) {
          continue;
        }
        const double sync = best_tail_[u].sync_s(at.params);
        const double busy = least_ * at.total_s();
        // A stage's first backward waits for the way through the stages behind it, beside which it
        // runs forwards.
        const double beside =
            (least_ - 1) * at.total_s() - std::min(left, least_ - 1) * at.forward_s;
        const Prefix next{arrives + at.forward_s,
                          way + at.total_s(),
                          std::max(before.beside, beside),
                          s == 0 ? sync : before.first_sync,
                          std::max(before.update, best_tail_[u].update_s(at.params)),
                          std::max(before.transfer, arrived[e] - arrived[first])};
        const double hops = left > 0 ? left * least_hop_ : 0;
        const double bound =
            std::max({arrives + busy + sync, way + busy + next.first_sync,
                      next.around + least_ * rest_[s + 1][e] + next.first_sync,
                      next.around + hops + least_tail_[e] + next.beside + next.first_sync}) +
            next.update;
        if (bound > limit_s(next.transfer) * kSlack) {
          continue;
        }
        option.mask |= 1U << u;
        option.units[s] = static_cast<std::uint8_t>(u);
        option.cuts[s] = static_cast<std::uint8_t>(first);
        option.drained += drained ? 1 : 0;
        extend(option, s + 1, e, next);
        option.mask &= ~(1U << u);
        option.drained -= drained ? 1 : 0;
      }
    }
  }

  [[nodiscard]] std::uint32_t end_of(const Option& option, std::uint32_t s) const {
    return s + 1 < stages_ ? option.cuts[s + 1] : layers_;
  }

  /// The row's part of the step, from first forward to last synchronisation; infinite when it does
  /// not fit.
  double row_s(const Option& option, std::uint32_t r, std::uint32_t m,
               const std::array<StepTail, kMostStages>& tails) {
    Pipeline& p = pipeline_;
    p.forward_s.clear();
    p.backward_s.clear();
    p.forward_delay_s.clear();
    p.backward_delay_s.clear();
    std::array<double, kMostStages> sync{};
    for (std::uint32_t s = 0; s < stages_; ++s) {
      const Parts::Stage& at = stage(r, option.units[s], s, m, option.cuts[s], end_of(option, s));
      if (!at.fits) {
        return kInfinity;
      }
      p.forward_s.push_back(at.forward_s);
      p.backward_s.push_back(at.backward_s);
      sync[s] = tails[s].sync_s(at.params);
      if (s > 0) {
        const Parts::Delay& hop = delay(option.units[s - 1], option.units[s], option.cuts[s]);
        p.forward_delay_s.push_back(hop.forward_s);
        p.backward_delay_s.push_back(hop.backward_s);
      }
    }
    double end = 0;
    const auto ends = clock_.ends_s(p, m);
    for (std::uint32_t s = 0; s < stages_; ++s) {
      end = std::max(end, ends[s] + sync[s]);
    }
    return end;
  }

  /// The most microbatches within the limit, up to option.most, 0 when there are none: a row's
  /// time grows with them.
  std::uint32_t most_within(const Option& option, std::uint32_t r, double limit) {
    if (!job_.capabilities.microbatch_counts) {
      return row_s(option, r, option.most, tails_[r]) <= limit ? option.most : 0;
    }
    std::uint32_t low = 0;
    std::uint32_t high = option.most + 1;
    while (high - low > 1) {
      const std::uint32_t m = (low + high) / 2;
      (row_s(option, r, m, tails_[r]) <= limit ? low : high) = m;
    }
    return low;
  }

  void finish(Option& option, double update) {
    std::array<std::uint32_t, kMostStages> row{};
    std::array<std::uint32_t, kMostStages> cuts{};
    tails_.resize(replicas_);
    for (std::uint32_t s = 0; s < stages_; ++s) {
      row[s] = option.units[s];
      cuts[s] = option.cuts[s];
      tails_[row_][s] = best_tail_[option.units[s]];
    }
    option.transfer_s =
        parts_.transfer_s(row_, std::span(row).first(stages_), std::span(cuts).first(stages_));
    const double limit = (limit_s(option.transfer_s) - update) * kSlack;
    option.most = most_;
    if (row_s(option, row_, least_, tails_[row_]) > limit) {
      return;
    }
    option.most = most_within(option, row_, limit);
    if (option.most < least_ || option.most == 0) {
      return;
    }
    if (replicas_ == 1) {
      // At once: what it finds prunes the rest. The only ring is the best.
      if (option.drained == drained_) {
        chosen_.assign(1, &option);
        evaluate(update_s(option, row_), option.transfer_s);
      }
      return;
    }
    found_.push_back(option);
  }

  // --- rows together ----------------------------------------------------------------------------

  void combine(std::uint32_t r, std::uint32_t used, std::uint32_t most, std::uint32_t drained) {
    if (r == replicas_) {
      if (drained == drained_) {
        choose_cuts();
      }
      return;
    }
    if (++steps_ > effort_) {
      best_.proven = false;
      return;
    }
    std::uint32_t rest = 0;
    for (std::uint32_t k = r + 1; k < replicas_; ++k) {
      rest += groups_[k].front().most;
    }
    for (const Group& group : groups_[r]) {
      if (most + group.most + rest < total_) {
        return;  // the others take still less
      }
      if ((group.mask & used) == 0 && drained + group.drained <= drained_) {
        chosen_groups_[r] = &group;
        combine(r + 1, used | group.mask, most + group.most, drained + group.drained);
      }
    }
  }

  /// With the units of all rows, rings are known: rows by what they really take.
  void choose_cuts() {
    tails_.resize(replicas_);
    for (std::uint32_t s = 0; s < stages_; ++s) {
      std::uint32_t column = 0;
      for (const Group* group : chosen_groups_) {
        column |= 1U << group->options.front().units[s];
      }
      const Ring& of = ring(column);
      for (std::uint32_t r = 0; r < replicas_; ++r) {
        tails_[r][s] = parts_.tail(of, chosen_groups_[r]->options.front().units[s]);
      }
    }
    candidates_.assign(replicas_, {});
    std::uint32_t most = 0;
    for (std::uint32_t r = 0; r < replicas_; ++r) {
      for (const Option& option : chosen_groups_[r]->options) {
        ++steps_;
        Candidate candidate{&option, update_s(option, r), 0};
        const double limit = (limit_s(option.transfer_s) - candidate.update_s) * kSlack;
        candidate.most = most_within(option, r, limit);
        if (candidate.most > 0) {
          candidates_[r].push_back(candidate);
        }
      }
      if (candidates_[r].empty()) {
        return;
      }
      std::stable_sort(candidates_[r].begin(), candidates_[r].end(),
                       [](const Candidate& a, const Candidate& b) { return a.most > b.most; });
      most += candidates_[r].front().most;
    }
    if (most >= total_) {
      choose_row(0, 0, 0, 0);
    }
  }

  void choose_row(std::uint32_t r, std::uint32_t most, double update, double transfer) {
    if (r == replicas_) {
      evaluate(update, transfer);
      return;
    }
    std::uint32_t rest = 0;
    for (std::uint32_t k = r + 1; k < replicas_; ++k) {
      rest += candidates_[k].front().most;
    }
    for (const Candidate& candidate : candidates_[r]) {
      if (most + candidate.most + rest < total_) {
        return;
      }
      chosen_[r] = candidate.option;
      choose_row(r + 1, most + candidate.most, std::max(update, candidate.update_s),
                 std::max(transfer, candidate.option->transfer_s));
    }
  }

  double update_s(const Option& option, std::uint32_t r) const {
    double update = 0;
    for (std::uint32_t s = 0; s < stages_; ++s) {
      const double params =
          stage(r, option.units[s], s, 1, option.cuts[s], end_of(option, s)).params;
      update = std::max(update, tails_[r][s].update_s(params));
    }
    return update;
  }

  /// chosen_ with tails_: the best microbatches.
  void evaluate(double update, double transfer) {
    ++best_.looked_at;
    const double limit = (limit_s(transfer) - update) * kSlack;
    std::vector<std::uint32_t> m(replicas_, 1);
    double slowest = 0;
    if (job_.capabilities.microbatch_counts) {
      std::uint32_t most = 0;
      for (std::uint32_t r = 0; r < replicas_; ++r) {
        most += most_within(*chosen_[r], r, limit);
      }
      if (most < total_) {
        return;
      }
      // Each microbatch to the row that is soonest done with it: exact, as times only grow.
      std::vector<double> with_one(replicas_);
      for (std::uint32_t r = 0; r < replicas_; ++r) {
        slowest = std::max(slowest, row_s(*chosen_[r], r, 1, tails_[r]));
        with_one[r] = row_s(*chosen_[r], r, 2, tails_[r]);
      }
      for (std::uint32_t k = replicas_; k < total_; ++k) {
        const auto r = static_cast<std::uint32_t>(
            std::min_element(with_one.begin(), with_one.end()) - with_one.begin());
        slowest = std::max(slowest, with_one[r]);
        ++m[r];
        with_one[r] = row_s(*chosen_[r], r, m[r] + 1, tails_[r]);
      }
    } else {
      m = request_.current.microbatches;
      for (std::uint32_t r = 0; r < replicas_; ++r) {
        slowest = std::max(slowest, row_s(*chosen_[r], r, m[r], tails_[r]));
      }
    }
    keep_if_better((slowest + update) * request_.calibration, transfer, m);
  }

  void keep_if_better(double step_s, double transfer, const std::vector<std::uint32_t>& m) {
    Value value;
    value.drained_in_use = drained_;
    value.step_s = step_s;
    value.switch_s = job_.switch_pause_s + transfer;
    value.per_useful_step_s =
        per_useful_step_s(step_s, value.switch_s, request_.expected_episode_s);
    if (step_s == kInfinity || !better(value, best_.value)) {
      return;
    }
    std::vector<std::vector<std::uint32_t>> rows(replicas_);
    std::vector<std::vector<std::uint32_t>> cuts(replicas_);
    for (std::uint32_t r = 0; r < replicas_; ++r) {
      for (std::uint32_t s = 0; s < stages_; ++s) {
        rows[r].push_back(chosen_[r]->units[s]);
        cuts[r].push_back(chosen_[r]->cuts[s]);
      }
    }
    Plan plan = parts_.plan(rows, cuts, m);
    if (!judge_.allows(plan)) {
      return;
    }
    const Value judged = judge_.value(plan);
    if (judged.switch_s == 0) {
      return;  // the current plan, which is known
    }
    TAPAS_CHECK(std::abs(judged.step_s / value.step_s - 1) < kRounding &&
                    std::abs(judged.switch_s - value.switch_s) < kRounding * judged.switch_s &&
                    judged.drained_in_use == value.drained_in_use,
                "the pieces add up to a step of {} s and a switch of {} s, the evaluator says {} "
                "and {}",
                value.step_s, value.switch_s, judged.step_s, judged.switch_s);
    best_.plan = std::move(plan);
    best_.value = judged;
  }

  const Job& job_;
  const ReplanRequest& request_;
  Parts parts_;
  Judge judge_;
  std::uint32_t replicas_;
  std::uint32_t stages_;
  std::uint32_t layers_;
  std::uint32_t total_;
  std::uint32_t units_;
  std::uint64_t effort_;
  Exact best_;
  std::uint64_t steps_ = 0;
  double ceiling_s_ = kInfinity;  ///< per useful step, of the plans looked for
  std::size_t drained_ = 0;       ///< nodes in use in the plans looked for
  std::vector<Parts::Stage> stage_;
  std::vector<bool> can_receive_;  ///< [replica][unit][first layer][end]
  std::vector<Parts::Delay> delay_;
  std::vector<double> least_tail_;   ///< [layer]
  double least_hop_ = 0;             ///< both ways
  std::vector<double> arrival_;      ///< [replica][unit][layer]: to bring the layers before
  std::vector<StepTail> best_tail_;  ///< [unit]
  std::unordered_map<std::uint32_t, Ring> rings_;
  std::array<std::array<double, 64>, kMostStages + 1> rest_{};
  const std::vector<std::uint32_t>* tied_ = nullptr;
  std::uint32_t row_ = 0;
  std::uint32_t least_ = 1;
  std::uint32_t most_ = 1;
  std::vector<Option> found_;
  std::vector<std::vector<Group>> groups_;  ///< [replica]
  std::vector<const Group*> chosen_groups_;
  std::vector<std::array<StepTail, kMostStages>> tails_;  ///< [replica][stage]
  /// A row whose rings are known.
  struct Candidate {
    const Option* option = nullptr;
    double update_s = 0;
    std::uint32_t most = 0;
  };
  std::vector<std::vector<Candidate>> candidates_;
  std::vector<const Option*> chosen_;
  Pipeline pipeline_;
  PipelineClock clock_;
};

}  // namespace

Exact exact_optimum(const Job& job, const ReplanRequest& request, const Plan& known,
                    std::uint64_t effort) {
  return Search(job, request, known, effort).run();
}

}  // namespace tapas::solver::testing
