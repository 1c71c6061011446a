#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tapas::daemon {

/// When and on which step something began, in the job's own time.
struct StepStamp {
  std::uint64_t step = 0;
  double begin_s = 0;
};

/// Has the mean of a series risen above zero, whenever and by how much? Fed with one value a step,
/// it keeps the largest evidence over all possible first steps: the sum since then in standard
/// errors, sum / sqrt(count + doubt * count^2), where `doubt` is the variance of what the values
/// are measured from, in units of the variance of one value. Without doubt it is the generalised
/// likelihood ratio of a rise of unknown size in noise of known size; with it, that of two samples.
/// A large rise shows within a few steps, a small one within many; no window or size has to be
/// chosen.
///
/// Only starts on the lower convex hull of the cumulative sum can be the best one, with doubt too
/// (the evidence is quasi-convex in sum and count); they are kept as in G. Romano, I. Eckley, P.
/// Fearnhead, G. Rigaill, "Fast Online Changepoint Detection via Functional Pruning CUSUM
/// Statistics", JMLR 24 (2023), for a known level before and rises only. Constant memory; O(1)
/// amortised to keep, O(kStarts) to look.
class Rise {
 public:
  /// Starts since which the mean is below `least` do not count: what rises little for long must not
  /// hide a larger rise that comes later.
  void add(double value, double least, double doubt, const StepStamp& stamp);
  void reset() {
    size_ = 0;
    evidence_ = 0;
  }

  /// In units of the values; divided by their noise it is a number of standard errors. 0 = nothing
  /// rises.
  [[nodiscard]] double evidence() const { return evidence_; }
  /// Steps since the rise began, the first included; 0 = nothing rises.
  [[nodiscard]] std::uint32_t run() const;
  /// Mean of the values since then.
  [[nodiscard]] double mean() const;
  [[nodiscard]] const StepStamp& since() const { return starts_[best_].stamp; }

 private:
  // The hull of n steps of noise has about log n corners; when it is full a middle one goes.
  static constexpr std::size_t kStarts = 12;
  struct Start {
    double sum = 0;           ///< of all values before this start
    std::uint32_t count = 0;  ///< how many they are
    StepStamp stamp;          ///< of the first value after them
  };
  void find_best(double least, double doubt);
  void push(const StepStamp& stamp);

  std::array<Start, kStarts> starts_{};
  std::size_t size_ = 0;
  std::size_t best_ = 0;
  double evidence_ = 0;
  double sum_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace tapas::daemon
