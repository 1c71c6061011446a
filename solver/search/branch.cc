#include "solver/search/branch.h"

#include <algorithm>

namespace tapas::solver {
namespace {

// What the bounds of a partial row cost, in microbatches of one stage.
constexpr std::uint64_t kNodeWork = 8;

class Branch {
 public:
  Branch(RowCosts& costs, RowTimes& times, std::uint32_t stages, double cutoff_s,
         std::uint64_t budget, const std::stop_token& stop)
      : costs_(costs),
        times_(times),
        problem_(costs.problem()),
        stages_(stages),
        budget_(budget),
        stop_(stop),
        best_s_(cutoff_s),
        work_before_(times.work()),
        reach_(costs, stages, cutoff_s) {
    count_reach();
  }

  Branched run() {
    result_.complete = true;
    bound_s_ = kNever;
    extend(0, budget_of(problem_), {});
    result_.bound_s = std::min(bound_s_, best_s_);
    result_.step_s = result_.row ? best_s_ : kNever;
    result_.work = work_ + times_.work() - work_before_;
    return std::move(result_);
  }

 private:
  /// `chosen`: what one microbatch takes in the stages chosen so far, links apart.
  void extend(std::uint32_t first, const Devices& left, const Before& chosen) {
    const auto stage = static_cast<std::uint32_t>(row_.cuts.size());
    const std::uint32_t behind = stages_ - 1 - stage;
    const std::uint32_t layers = problem_.layers();
    const Before before = costs_.with_hops(chosen, stage);
    for (std::uint32_t kind = 0; kind < problem_.kinds.size(); ++kind) {
      const GroupKind& group = problem_.kinds[kind];
      if (left[group.pool] < group.width()) {
        continue;
      }
      Devices rest = left;
      rest[group.pool] -= group.width();
      for (std::uint32_t end = behind == 0 ? layers : first + 1; end + behind <= layers; ++end) {
        const LayerRange range{first, end};
        if (costs_.bound_s(kind, behind, range, before) >= best_s_) {
          break;  // longer stages only more so
        }
        if (behind > 0 && !reach_.possible(behind - 1, end, rest)) {
          continue;
        }
        const StageFit* fit = costs_.fit(kind, behind, range);
        if (fit == nullptr || costs_.exact_bound_s(kind, behind, range, before) >= best_s_) {
          continue;
        }
        ++result_.nodes;
        work_ += stages_ * kNodeWork;
        if (work_ + times_.work() - work_before_ > budget_ ||
            (result_.nodes % 1024 == 0 && stop_.stop_requested())) {
          result_.complete = false;
        }
        if (!result_.complete) {
          return;
        }
        row_.cuts.push_back(first);
        row_.kinds.push_back(kind);
        if (behind == 0) {
          judge();
        } else {
          extend(end, rest, costs_.after(chosen, *fit, kind));
        }
        row_.cuts.pop_back();
        row_.kinds.pop_back();
        if (!result_.complete) {
          return;
        }
      }
    }
  }

  void judge() {
    const double least = times_.least_step_s(row_, best_s_);
    if (least >= best_s_) {
      return;
    }
    const double step = times_.best_step_s(row_);
    bound_s_ = std::min(bound_s_, least);
    if (step < best_s_) {
      best_s_ = step;
      result_.row = row_;
      reach_ = ReachMixed(costs_, stages_, best_s_);
      count_reach();
    }
  }

  void count_reach() {
    work_ += std::uint64_t{stages_} * problem_.layers() * problem_.kinds.size();
  }

  RowCosts& costs_;
  RowTimes& times_;
  const RowProblem& problem_;
  const std::uint32_t stages_;
  const std::uint64_t budget_;
  const std::stop_token& stop_;
  double best_s_;
  double bound_s_ = 0;
  std::uint64_t work_ = 0;
  const std::uint64_t work_before_;
  ReachMixed reach_;
  Row row_;
  Branched result_;
};

}  // namespace

Branched branch(RowCosts& costs, RowTimes& times, std::uint32_t stages, double cutoff_s,
                std::uint64_t budget, const std::stop_token& stop) {
  return Branch(costs, times, stages, cutoff_s, budget, stop).run();
}

}  // namespace tapas::solver
