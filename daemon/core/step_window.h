#pragma once

#include "daemon/core/event.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace tapas::daemon {

/// What one rank said about one step.
struct RankStep {
  bool seen = false;
  double wall_s = 0;
  double compute_s = 0;  ///< forward + backward of one microbatch; 0 = not reported
  double end_s = 0;
  double input_s = 0;  ///< waiting for the next batch; 0 = none, or not reported
  double tokens = 0;   ///< of a microbatch, in the mean; 0 = not reported
};

/// One step of the job from all ranks that reported it.
struct WholeStep {
  std::uint64_t step = 0;
  std::uint32_t flags = 0;  ///< of any rank
  std::uint32_t count = 0;
  std::vector<RankStep> ranks;  ///< by RankId
};

/// Puts the ranks' samples of one session and epoch together into whole steps, in order. A step is
/// whole when every rank that reports at all has reported it; a lost record delays it until a later
/// step is whole. Bounded: at most kSteps steps are open.
class StepWindow {
 public:
  static constexpr std::uint64_t kSteps = 16;

  enum class Intake : std::uint8_t {
    kTaken,
    kDuplicate,
    kLate,   ///< of a step already judged
    kAhead,  ///< far ahead of what the other ranks do; followed once half of them are there
  };

  explicit StepWindow(std::uint32_t ranks) : last_step_(ranks), ahead_(ranks, 0) {}

  /// `expected`: ranks that a whole step needs at least half of. Drops all open steps; a restart of
  /// the session also forgets where the job was.
  void follow(std::uint32_t expected);
  void restart();

  /// Requires sample.rank < ranks.
  Intake add(const StepSample& sample);
  [[nodiscard]] std::optional<WholeStep> next();
  /// Gives the step's memory back.
  void recycle(WholeStep step) { spare_.push_back(std::move(step.ranks)); }

  /// Highest step in the window or judged; 0 = none.
  [[nodiscard]] std::uint64_t newest() const { return newest_; }
  /// Ranks that reported within the last kSteps steps.
  [[nodiscard]] std::uint32_t live() const { return live_; }

 private:
  [[nodiscard]] bool is_live(std::uint32_t rank) const {
    return last_step_[rank] && *last_step_[rank] + kSteps > newest_;
  }
  /// The rank reports.
  void note(const StepSample& sample);
  void advance_to(std::uint64_t newest);
  WholeStep& open(std::uint64_t step);
  bool far_ahead(const StepSample& sample);

  std::uint32_t expected_ = 0;
  std::uint32_t live_ = 0;
  std::uint64_t newest_ = 0;
  std::uint64_t first_ = 0;  ///< lowest step that may still be opened; 0 = the next one, whatever
  std::vector<std::optional<std::uint64_t>> last_step_;
  std::vector<std::uint64_t> ahead_;  ///< step a rank was seen far ahead at, 0 = not
  std::uint32_t ahead_count_ = 0;
  std::map<std::uint64_t, WholeStep> steps_;
  std::deque<std::vector<RankStep>> spare_;
};

}  // namespace tapas::daemon
