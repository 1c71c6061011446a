#pragma once

#include "daemon/core/rise.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace tapas::daemon {

/// How much deviation counts, from a job's noise. All in natural-log units: 0.05 is about 5 %.
struct Sensitivity {
  double slack = 0;  ///< deviation that healthy devices differ by; never adds up to an alarm
  double clip = 0;   ///< beyond the slack one step counts as at most this
  double noise = 0;  ///< of one step, as far as it is believed

  /// `sigma` is the measured noise of one step; even clear deviations need `steps` steps, so
  /// `steps` - 1 spikes in a row never alarm.
  [[nodiscard]] static Sensitivity of(double sigma, std::uint32_t steps, double slack);
};

/// Noise of one step from differences between consecutive steps: needs no baseline and is not
/// moved by a lasting shift. Log units.
class NoiseEstimate {
 public:
  /// `typical_difference`: median over ranks (or one value) of |x[t] - x[t-1]|.
  void add(double typical_difference);
  void restart() { count_ = 0; }
  [[nodiscard]] double sigma() const { return sigma_; }

 private:
  double sigma_ = 0;
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
  Level(std::uint32_t learn_steps, double spread) : learn_steps_(learn_steps), spread_(spread) {}

  /// What others that do the same say the series should be; 0 until told.
  void expect(double usual) { usual_ = usual; }

  /// New session or new work: learn again. A blame and the baseline it refers to stay.
  void restart();
  void observe(double value, const Sensitivity& sensitivity, const StepStamp& stamp);

  [[nodiscard]] bool learning() const { return seen_ < learn_steps_; }
  [[nodiscard]] double baseline() const { return baseline_; }
  /// Lower median of the latest values.
  [[nodiscard]] double recent() const { return recent(kRing); }
  /// How often a baseline was learnt.
  [[nodiscard]] std::uint32_t times_learnt() const { return times_learnt_; }
  /// Not blamed, and the alarm level is reached.
  [[nodiscard]] bool alarmed() const { return alarmed_; }
  /// The alarm is no run of spikes: the latest values lie above the slack, too.
  [[nodiscard]] bool holds(const Sensitivity& sensitivity) const;
  /// Alarmed, or nearer to `level` above the baseline than to the baseline, and beyond the noise.
  [[nodiscard]] bool lies_at(double level, const Sensitivity& sensitivity) const;
  /// Latest deviation from the baseline, robust: the median of up to eight steps since the change,
  /// the mean of clipped steps when so many were needed that it lies in the noise.
  [[nodiscard]] double deviation() const;
  /// First step of the present deviation and how many steps ago it began.
  [[nodiscard]] const StepStamp& since() const { return up_.since(); }
  [[nodiscard]] std::uint32_t run() const { return up_.run(); }
  /// How sure the deviation is, in standard errors beyond the slack.
  [[nodiscard]] double confidence() const { return noise_ > 0 ? up_.evidence() / noise_ : 0; }

  /// Takes deviation() as the level of a culprit.
  void blame();
  /// The same with a given level; the ring of values is kept.
  void blame(double level);
  void clear();
  /// Forgets the alarm, not the baseline: it did not hold.
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
  /// Lower median of the last `count` values.
  [[nodiscard]] double recent(std::size_t count) const;

  std::uint32_t learn_steps_;
  double spread_;
  double usual_ = 0;
  std::uint32_t seen_ = 0;
  double baseline_ = 0;
  std::array<double, kRing> ring_{};  ///< raw values
  std::size_t ring_size_ = 0;
  std::size_t ring_next_ = 0;
  std::uint32_t times_learnt_ = 0;
  Rise up_;    ///< beyond the slack; of a blamed series, back towards the baseline
  Rise down_;  ///< faster than the baseline
  double slack_ = 0;
  double noise_ = 0;
  std::uint32_t blamed_steps_ = 0;
  bool alarmed_ = false;
  bool blamed_ = false;
  bool recovered_ = false;
  double level_ = 0;
};

}  // namespace tapas::daemon
