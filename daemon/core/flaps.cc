#include "daemon/core/flaps.h"

#include <algorithm>
#include <cmath>

namespace tapas::daemon {
namespace {

// log(0.20 / 0.02) and log(0.80 / 0.98).
constexpr double kFar = 2.302585;
constexpr double kNear = -0.202941;
// A rank that pauses once in 250 steps gets there by chance in less than one of 10^9 pauses.
constexpr double kSure = 12;
// Far off more often than that is a level of its own.
constexpr double kMostShare = 0.6;
// At one far step in five, so many near ones in a row come once in 7,000 times.
constexpr std::uint32_t kCalmSteps = 40;

}  // namespace

void Flaps::add(double excess, bool far, const StepStamp& stamp) {
  calm_steps_ = far ? 0 : calm_steps_ + 1;
  if (run_ == 0 && !far) {
    return;
  }
  if (run_ == 0) {
    since_ = stamp;
  }
  ++run_;
  score_ += far ? kFar : kNear;
  height_ += far ? excess : 0;
  hits_ += far ? 1 : 0;
  if (score_ <= 0 && !blamed_) {
    reset();
  }
}

bool Flaps::alarmed() const { return !blamed_ && score_ >= kSure && share() <= kMostShare; }
bool Flaps::suspect() const { return !blamed_ && score_ >= kSure / 2; }
bool Flaps::calm() const { return calm_steps_ >= kCalmSteps; }
double Flaps::confidence() const { return std::sqrt(2 * std::max(score_, 0.0)); }

}  // namespace tapas::daemon
