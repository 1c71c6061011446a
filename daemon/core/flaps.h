#pragma once

#include "daemon/core/rise.h"

#include <cstdint>

namespace tapas::daemon {

/// A rank that is slow in some of its steps only, two or three of ten, and healthy in between: no
/// level rises. Counts the steps in which it is far off: a cumulative sum of the likelihood ratio
/// of "one step in five" against "one in fifty", which lone spikes and pauses do not exceed.
/// Constant memory.
class Flaps {
 public:
  /// `excess`: how far above its baseline the rank lies, log; `far`: that is more than noise.
  void add(double excess, bool far, const StepStamp& stamp);
  /// Another alarm explains it, or it is no rank's fault.
  void reset() { *this = Flaps(); }

  /// Not blamed, and sure that the rank is far off again and again, but not always.
  [[nodiscard]] bool alarmed() const;
  /// On its way to that.
  [[nodiscard]] bool suspect() const;
  void blame() { blamed_ = true; }
  [[nodiscard]] bool blamed() const { return blamed_; }
  /// Not far off for so long that it has ended.
  [[nodiscard]] bool calm() const;

  /// Of the steps since the first, and how far off the rank is in them.
  [[nodiscard]] double share() const { return static_cast<double>(hits_) / run_; }
  [[nodiscard]] double height() const { return height_ / hits_; }
  /// In standard errors.
  [[nodiscard]] double confidence() const;
  [[nodiscard]] const StepStamp& since() const { return since_; }
  [[nodiscard]] std::uint32_t run() const { return run_; }

 private:
  double score_ = 0;
  double height_ = 0;  ///< sum over the far ones
  StepStamp since_;
  std::uint32_t run_ = 0;
  std::uint32_t hits_ = 0;
  std::uint32_t calm_steps_ = 0;
  bool blamed_ = false;
};

}  // namespace tapas::daemon
