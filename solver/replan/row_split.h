#pragma once

#include "solver/replan/layout.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tapas::solver {

/// Holds a stage down to so many layers.
struct StageLimit {
  std::uint32_t stage = 0;
  std::uint32_t layers = 0;
};

/// Splits the layers of a row over the units it stands on so that it ends early: from the cuts it
/// has, a layer at a time leaves a stage that the row waits for and goes to where that helps most,
/// over the boundaries between. The row's time is estimated by the three stages that its pipeline,
/// its gradients and its update wait for longest; for the pipeline by the bound of
/// docs/cost-model.md, "Bounds": an early stage may be longer than a late one, as it has more to do
/// while it waits. Rings are those of the layout when it was last timed. Pinned units keep their
/// layers. Not for several threads.
class RowSplit {
 public:
  /// Must outlive it.
  explicit RowSplit(Problem& problem) : problem_(problem) {}

  /// Of one replica or, where all share one split, of all by the slowest: the first layer of each
  /// stage and the number of layers. What fits nowhere stays where it is.
  [[nodiscard]] const std::vector<std::uint32_t>& operator()(
      const Layout& layout, std::uint32_t replica, std::span<const StageLimit> limits = {});

  /// The stages that make the row last so long: of its pipeline, gradients and update; kNone where
  /// that is one of those before.
  [[nodiscard]] std::array<std::uint32_t, 3> critical(const Layout& layout, std::uint32_t replica);

 private:
  /// A unit that some row has at the stage.
  struct Holder {
    std::uint32_t unit = 0;
    std::uint32_t replica = 0;
    std::uint32_t microbatches = 0;
  };
  /// With its present layers, on the holder that takes longest over all microbatches.
  struct Stage {
    std::uint32_t microbatches = 0;
    std::uint32_t warm_up = 0;
    double forward_s = 0;
    double backward_s = 0;
    double sync_s = 0;
    double update_s = 0;
    std::uint32_t unfit = 0;  ///< layers that have to go, as it does not fit or has too many

    [[nodiscard]] double total_s() const { return forward_s + backward_s; }
  };
  /// What the step waits for, by stage or the largest of several stages.
  struct Terms {
    double pipeline_s = 0;      ///< were the row's other stages never in the way
    double rest_s = -kForever;  ///< gradients, after the row's last backward
    double update_s = 0;

    [[nodiscard]] double step_s() const { return pipeline_s + rest_s + update_s; }
    void raise_to(const Terms& other);
  };
  struct Cost {
    std::uint32_t unfit = 0;  ///< layers; counts before the time
    double step_s = 0;

    [[nodiscard]] bool below(const Cost& other) const;
  };

  void load(const Layout& layout, std::uint32_t replica, std::span<const StageLimit> limits);
  void set_holders(const Layout& layout, std::uint32_t replica);
  [[nodiscard]] Stage stage(std::uint32_t stage, LayerRange range);
  [[nodiscard]] static Terms terms(const Stage& as, double before_s, double later_s,
                                   double drain_s);
  /// Looks at all stages as they are.
  [[nodiscard]] Cost survey();
  /// The stages that have to give a layer away for anything to get better, as critical().
  [[nodiscard]] std::array<std::uint32_t, 3> givers() const;
  /// Who takes a layer of the stage best; kNone when that cannot be below the limit, which falls to
  /// the cost of the move.
  [[nodiscard]] std::uint32_t taker(std::uint32_t from, Cost& limit);
  void move(std::uint32_t from, std::uint32_t to);
  /// With one layer more at its front or its back.
  [[nodiscard]] const Stage& longer(std::uint32_t stage, bool front);

  Problem& problem_;
  const Layout* layout_ = nullptr;
  std::vector<std::vector<Holder>> holders_;  ///< [stage]
  std::vector<bool> pinned_;                  ///< [stage]
  std::vector<std::uint32_t> cuts_;
  std::vector<std::uint32_t> most_;  ///< [stage]: layers it may have
  std::vector<Stage> stage_;
  std::vector<std::array<std::optional<Stage>, 2>>
      longer_;                    ///< [stage][front], as far as asked for
  std::vector<double> hop_s_;     ///< [stage]: to the next and back
  std::uint32_t unfit_ = 0;       ///< of all stages
  std::vector<double> before_s_;  ///< [stage]: of one microbatch, all stages and hops before
  std::vector<double> later_s_;   ///< and behind
  std::vector<double> drain_s_;   ///< backwards before
  std::vector<Terms> terms_;      ///< [stage]
  std::vector<Terms> below_;      ///< [stage]: largest of the stages before
  std::vector<Terms> above_;      ///< [stage]: largest of the stages behind
};

}  // namespace tapas::solver
