#include "tests/detect/rules.h"

#include "base/median.h"
#include "daemon/core/watch.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <utility>

namespace tapas::daemon::testing {
namespace {

class Detector : public Rule {
 public:
  explicit Detector(const Trace& trace) : trace_(trace), watch_(trace.cluster().device_count()) {
    watch_.follow(trace.roles());
  }
  std::string name() const override { return "this"; }
  void new_session() override { watch_.new_session(); }

  std::optional<Call> observe(const WholeStep& step) override {
    if (!watch_.observe(step)) {
      return std::nullopt;
    }
    static_cast<void>(watch_.take_moved());
    static_cast<void>(watch_.take_recovered());
    static_cast<void>(watch_.take_recovered_stages());
    static_cast<void>(watch_.take_job_recovered());
    static_cast<void>(watch_.take_rotating_recovered());
    static_cast<void>(watch_.take_input_recovered());
    if (!watch_.verdict_due()) {
      return std::nullopt;
    }
    const Verdict verdict = attribute(watch_.findings(), trace_.roles(), trace_.cluster());
    if (verdict.cause == Cause::kNothing) {
      return std::nullopt;
    }
    take_note(watch_, verdict);
    Call call{verdict.cause, {}, verdict.stages, verdict.sentence};
    const auto& named = verdict.cause == Cause::kInput ? verdict.late : verdict.culprits;
    for (const Culprit& culprit : named) {
      call.ranks.insert(call.ranks.end(), culprit.ranks.begin(), culprit.ranks.end());
    }
    std::sort(call.ranks.begin(), call.ranks.end());
    return call;
  }

 private:
  const Trace& trace_;
  Watch watch_;
};

/// Keeps the last steps of every rank's compute, and what was said before.
class Windowed : public Rule {
 public:
  Windowed(const Trace& trace, std::size_t steps)
      : roles_(trace.roles()), steps_(steps), compute_(trace.cluster().device_count()) {}
  void new_session() override {
    for (auto& values : compute_) {
      values.clear();
    }
  }

 protected:
  void keep(const WholeStep& step) {
    for (std::size_t rank = 0; rank < compute_.size(); ++rank) {
      if (compute_[rank].size() == steps_) {
        compute_[rank].erase(compute_[rank].begin());
      }
      compute_[rank].push_back(step.ranks[rank].compute_s);
    }
  }
  [[nodiscard]] bool full() const { return compute_.front().size() == steps_; }
  /// The ranks whose median in the window `slow` finds slow among those of their stage, ascending.
  template <typename Slow>
  [[nodiscard]] std::vector<RankId> ranks_that_are(Slow slow) const {
    std::vector<double> all;
    for (std::vector<double> values : compute_) {
      all.push_back(lower_median(values));
    }
    std::vector<RankId> ranks;
    for (const std::vector<RankId>& stage : roles_.by_stage()) {
      std::vector<double> group;
      for (const RankId rank : stage) {
        group.push_back(all[rank.value()]);
      }
      std::sort(group.begin(), group.end());
      std::copy_if(stage.begin(), stage.end(), std::back_inserter(ranks),
                   [&](RankId rank) { return slow(all[rank.value()], group); });
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }
  /// A call when some of the ranks were not named the last time.
  std::optional<Call> speak(std::vector<RankId> ranks) {
    const bool fresh = !std::includes(named_.begin(), named_.end(), ranks.begin(), ranks.end());
    named_ = std::move(ranks);
    return fresh ? std::optional(Call{Cause::kDevice, named_, {}, name()}) : std::nullopt;
  }

 private:
  const Roles& roles_;
  std::size_t steps_;
  std::vector<std::vector<double>> compute_;
  std::vector<RankId> named_;
};

/// One report for every so many steps: `slow` looks at the medians of a stage.
class Reporting : public Windowed {
 public:
  static constexpr std::uint64_t kEvery = 16;
  Reporting(const Trace& trace, std::string name,
            bool (*slow)(double own, const std::vector<double>&))
      : Windowed(trace, kEvery), name_(std::move(name)), slow_(slow) {}
  std::string name() const override { return name_; }

  std::optional<Call> observe(const WholeStep& step) override {
    keep(step);
    if (step.step % kEvery != 0 || !full()) {
      return std::nullopt;
    }
    return speak(ranks_that_are(slow_));
  }

 private:
  std::string name_;
  bool (*slow_)(double own, const std::vector<double>& sorted);
};

/// Bayesian online change point detection (Adams, MacKay 2007): normal values of unknown mean and
/// variance, one change in kHazard steps. Scaled by the first values.
class ChangePoints {
 public:
  /// True when a change some steps ago has become sure; `run`: steps since then.
  bool add(double value, std::size_t& run) {
    if (scale_ == 0) {
      scale_ = value;
    }
    const double x = value / scale_;
    std::vector<State> grown;
    State fresh;
    fresh.weight = 0;
    double total = 0;
    for (const State& state : states_) {
      const double likelihood = state.weight * predictive(state, x);
      fresh.weight += likelihood / kHazard;
      State next = state;
      next.weight = likelihood * (1 - 1 / kHazard);
      next.learn(x);
      grown.push_back(next);
      total += likelihood;
    }
    grown.insert(grown.begin(), fresh);
    if (grown.size() > kMost) {
      grown.resize(kMost);
    }
    for (State& state : grown) {
      state.weight = total > 0 ? state.weight / total : 0;
    }
    if (total <= 0) {
      grown = {State{}};
    }
    states_ = std::move(grown);
    ++count_;
    // Sure: the run is short against all values seen, and more steps than one.
    double recent = 0;
    std::size_t best = 0;
    for (std::size_t r = 0; r < states_.size(); ++r) {
      recent += r <= kRecent ? states_[r].weight : 0;
      best = states_[r].weight > states_[best].weight ? r : best;
    }
    run = best;
    const bool sure = recent > kSure && count_ > 2 * kRecent && best > 0;
    const bool rises = sure && !was_sure_;
    was_sure_ = sure;
    return rises;
  }
  void reset() { *this = ChangePoints(); }

 private:
  static constexpr double kHazard = 250;
  static constexpr std::size_t kMost = 300;
  static constexpr std::size_t kRecent = 10;
  static constexpr double kSure = 0.9;
  /// Normal-gamma; index in states_ = length of the run.
  struct State {
    double weight = 1;
    double mean = 1;
    double kappa = 0.1;
    double alpha = 1;
    double beta = 1e-3;
    void learn(double x) {
      beta += kappa * (x - mean) * (x - mean) / (2 * (kappa + 1));
      mean += (x - mean) / (kappa + 1);
      kappa += 1;
      alpha += 0.5;
    }
  };
  static double predictive(const State& s, double x) {
    const double degrees = 2 * s.alpha;
    const double variance = s.beta * (s.kappa + 1) / (s.alpha * s.kappa);
    const double square = (x - s.mean) * (x - s.mean) / variance;
    return std::exp(std::lgamma((degrees + 1) / 2) - std::lgamma(degrees / 2) -
                    0.5 * std::log(degrees * std::numbers::pi * variance) -
                    (degrees + 1) / 2 * std::log1p(square / degrees));
  }
  std::vector<State> states_ = {State{}};
  double scale_ = 0;
  std::size_t count_ = 0;
  bool was_sure_ = false;
};

class ChangePointRule : public Windowed {
 public:
  explicit ChangePointRule(const Trace& trace) : Windowed(trace, kMean) {}
  std::string name() const override { return "change point, then 10 % over its group"; }
  void new_session() override {
    Windowed::new_session();
    points_.reset();
    walls_.clear();
  }

  std::optional<Call> observe(const WholeStep& step) override {
    keep(step);
    const double wall_s = step.ranks.front().wall_s;
    walls_.push_back(wall_s);
    if (walls_.size() > 2 * kHistory) {
      walls_.erase(walls_.begin(), walls_.begin() + kHistory);
    }
    std::size_t run = 0;
    if (!points_.add(wall_s, run) || run >= walls_.size()) {
      return std::nullopt;
    }
    const auto edge = walls_.end() - static_cast<std::ptrdiff_t>(run);
    const auto first = edge - std::min<std::ptrdiff_t>(edge - walls_.begin(), 50);
    if (mean(edge, walls_.end()) < 1.1 * mean(first, edge)) {
      return std::nullopt;
    }
    std::vector<RankId> ranks = ranks_that_are([](double own, const std::vector<double>& sorted) {
      return own > 1.1 * sorted[(sorted.size() - 1) / 2];
    });
    if (ranks.empty()) {
      return Call{Cause::kJobWide, {}, {}, name()};
    }
    return Call{Cause::kDevice, std::move(ranks), {}, name()};
  }

 private:
  static constexpr std::size_t kMean = 5;
  static constexpr std::size_t kHistory = 400;
  static double mean(std::vector<double>::iterator begin, std::vector<double>::iterator end) {
    double sum = 0;
    for (auto at = begin; at != end; ++at) {
      sum += *at;
    }
    return begin == end ? 0 : sum / static_cast<double>(end - begin);
  }
  ChangePoints points_;
  std::vector<double> walls_;
};

}  // namespace

std::unique_ptr<Rule> detector(const Trace& trace) { return std::make_unique<Detector>(trace); }

std::unique_ptr<Rule> twice_the_median(const Trace& trace) {
  return std::make_unique<Reporting>(trace, "2x the median",
                                     [](double own, const std::vector<double>& sorted) {
                                       return own > 2 * sorted[(sorted.size() - 1) / 2];
                                     });
}

std::unique_ptr<Rule> relative_score(const Trace& trace) {
  return std::make_unique<Reporting>(
      trace, "score below 0.75",
      [](double own, const std::vector<double>& sorted) { return sorted.front() < 0.75 * own; });
}

std::unique_ptr<Rule> change_point(const Trace& trace) {
  return std::make_unique<ChangePointRule>(trace);
}

}  // namespace tapas::daemon::testing
