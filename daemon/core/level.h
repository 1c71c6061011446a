#pragma once

#include "daemon/core/rise.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tapas::daemon {

/// How much deviation counts, from a job's noise. All in natural-log units: 0.05 is about 5 %.
struct Sensitivity {
  double noise = 0;         ///< of one step, as far as it is believed
  std::uint32_t steps = 3;  ///< that even a clear deviation needs: one less in a row never alarm
  std::uint32_t small_steps = 3;  ///< the same of one no larger than many lone spikes are
  double slack = 0;               ///< deviation that never adds up to an alarm
  double wander = 0;              ///< healthy series move about their level by this, slowly
  double evidence = 6.5;          ///< standard errors that make an alarm
  double least = 0;               ///< a rise that is on average less than this is not told

  /// `sigma` is the measured noise of one step.
  [[nodiscard]] static Sensitivity of(double sigma, std::uint32_t steps, double slack);
  /// Of `series` that are watched at the same time, which all have their chance of a false alarm.
  [[nodiscard]] Sensitivity among(std::uint32_t series) const;
};

/// Noise of one step from differences between consecutive steps: needs no baseline and is not
/// moved by a lasting shift. Log units.
class NoiseEstimate {
 public:
  /// `typical_difference`: median over ranks (or one value) of |x[t] - x[t-1]|.
  void add(double typical_difference);
  void restart() {
    count_ = 0;
    burst_ = 0;
  }
  [[nodiscard]] double sigma() const { return sigma_; }
  /// The same, but work that turns uneven shows at once.
  [[nodiscard]] double at_once() const { return std::max(sigma_, burst_); }

 private:
  double sigma_ = 0;
  double burst_ = 0;
  std::uint32_t count_ = 0;
};

/// Streaming change detection on one series of log ratios: a rank's compute against its equals, a
/// stage's against the job, the job's step time. Constant memory, no look-ahead.
///
/// Learns a baseline, then looks for a Rise of what exceeds it. The baseline is frozen soon, so a
/// slow drift cannot pull it along; a series that lastingly got faster learns again. Once blamed,
/// the series is watched for the way back.
class Level {
 public:
  /// `spread`: how far above its usual value a healthy series may lie. Whoever learns more than
  /// that is slow from the start, by all of it: the usual value becomes the baseline.
  /// `typical`: standard deviation of healthy series around the usual value, where it is known;
  /// what little is learnt in noise is drawn towards the usual value accordingly.
  Level(std::uint32_t learn_steps, double spread,
        double typical = std::numeric_limits<double>::infinity())
      : learn_steps_(learn_steps), spread_(spread), typical_(typical) {}

  /// What others that do the same say the series should be; 0 until told.
  void expect(double usual) { usual_ = usual; }
  /// Another spread.
  void allow(double spread) { spread_ = spread; }

  /// New session or new work: learn again. A blame and the baseline it refers to stay.
  void restart();
  void observe(double value, const Sensitivity& sensitivity, const StepStamp& stamp);

  [[nodiscard]] bool learning() const { return seen_ < learn_steps_; }
  [[nodiscard]] double baseline() const { return baseline_; }
  /// Of one step: the common one, or the series' own where that is larger.
  [[nodiscard]] double noise() const { return noise_; }
  /// Standard error of the baseline.
  [[nodiscard]] double error() const;
  /// Lower median of the latest values, of all that are kept (eight) or of the last `count`.
  [[nodiscard]] double recent() const { return recent(kRing); }
  [[nodiscard]] double recent(std::size_t count) const;
  /// How often a baseline was learnt.
  [[nodiscard]] std::uint32_t times_learnt() const { return times_learnt_; }
  /// Not blamed, and the alarm level is reached.
  [[nodiscard]] bool alarmed() const { return alarmed_; }
  /// The alarm is no run of spikes: the latest values lie above the slack, too; of a series that is
  /// slow from the start above the spread.
  [[nodiscard]] bool holds(const Sensitivity& sensitivity) const;
  /// Alarmed, or nearer to `level` above the baseline than to the baseline, and beyond the noise.
  [[nodiscard]] bool lies_at(double level, const Sensitivity& sensitivity) const;
  /// Latest deviation from the baseline, robust: the median of up to eight steps since the change,
  /// the mean of clipped steps when so many were needed that it lies in the noise.
  [[nodiscard]] double deviation() const;
  /// None of the latest values lies nearer to the baseline than to their median.
  [[nodiscard]] bool steady() const;
  /// First step of the present deviation and how many steps ago it began.
  [[nodiscard]] const StepStamp& since() const { return up_.since(); }
  [[nodiscard]] std::uint32_t run() const { return up_.run(); }
  /// How sure the deviation is, in standard errors beyond the slack.
  [[nodiscard]] double confidence() const { return sure(up_); }

  /// Half way to an alarm or, blamed, to its recovery, and by more than so many standard errors.
  [[nodiscard]] bool rising(double errors) const;

  /// Takes deviation() as the level of a culprit.
  void blame();
  /// The same with a given level; the ring of values is kept.
  void blame(double level);
  /// The same before anything is learnt, where both are known from elsewhere.
  void restore(double baseline, double level);
  void clear();
  /// Forgets the alarm: it did not hold. The baseline stays, unless the alarm was that the series
  /// is slow from the start: that is learnt again.
  void dismiss();
  [[nodiscard]] bool blamed() const { return blamed_; }
  /// Deviation of the blamed series from its baseline; 0 when not blamed.
  [[nodiscard]] double level() const { return blamed_ ? level_ : 0; }
  /// Blamed, but back at the baseline.
  [[nodiscard]] bool recovered() const { return recovered_; }
  /// Blamed, and the level is another one than when it was blamed.
  [[nodiscard]] bool moved(const Sensitivity& sensitivity) const;

 private:
  static constexpr std::size_t kRing = 8;
  [[nodiscard]] bool among_equals() const { return typical_ < std::numeric_limits<double>::max(); }
  /// Of many, each step is weighed by the noise known then, which a rise of one does not change.
  /// The noise of a single series grows with the edge of its own rise, and falls again: the noise
  /// known last counts.
  [[nodiscard]] double unit_of_evidence() const { return among_equals() ? noise_ : 1; }
  /// When all turn noisy at once, what counted before still counts in units of the noise of then.
  [[nodiscard]] double past_noise() const;
  [[nodiscard]] double past_unit() const { return among_equals() ? past_noise() : 1; }
  [[nodiscard]] double sure(const Rise& rise) const {
    return noise_ > 0 ? rise.evidence() * unit_of_evidence() / noise_ : 0;
  }
  void learn_noise(double value, double noise);
  void learn();
  void refine(double deviation);
  /// The most that a step counts where so many make an alarm.
  [[nodiscard]] double clip(std::uint32_t steps, const Sensitivity& sensitivity) const;
  /// Variance of the baseline and of the way that healthy series go, over that of one step.
  [[nodiscard]] double doubt(const Sensitivity& sensitivity) const;
  /// Standard errors of an alarm, more while the noise is not well known.
  [[nodiscard]] double needed(const Sensitivity& sensitivity) const;
  /// The usual value tells as much about the baseline as so many values.
  [[nodiscard]] double prior_steps() const { return noise_ * noise_ / (typical_ * typical_); }

  std::uint32_t learn_steps_;
  double spread_;
  double typical_;
  double usual_ = 0;
  std::uint32_t seen_ = 0;
  double baseline_ = 0;
  double known_ = 0;                  ///< from so many independent values
  std::array<double, kRing> ring_{};  ///< raw values
  std::size_t ring_size_ = 0;
  std::size_t ring_next_ = 0;
  std::uint32_t times_learnt_ = 0;
  Rise up_;    ///< beyond the slack; of a blamed series, back towards the baseline
  Rise down_;  ///< faster than the baseline
  double slack_ = 0;
  double noise_ = 0;
  double difference_ = 0;  ///< mean distance of consecutive values
  std::uint32_t differences_ = 0;
  std::uint32_t blamed_steps_ = 0;
  bool from_start_ = false;  ///< learnt to lie beyond the spread
  bool alarmed_ = false;
  bool blamed_ = false;
  bool recovered_ = false;
  double level_ = 0;
};

}  // namespace tapas::daemon
