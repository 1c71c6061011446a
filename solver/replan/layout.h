#pragma once

#include "solver/cost/links.h"
#include "solver/cost/pipeline.h"
#include "solver/replan/problem.h"

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace tapas::solver {

inline constexpr double kForever = std::numeric_limits<double>::infinity();

/// What a layout is worth; all in the cost model's seconds, less is better.
struct Worth {
  std::uint32_t drained = 0;   ///< places on drained nodes; counts before all else
  double guide_s = kForever;   ///< smooth: falls when one of several equal bottlenecks goes
  double useful_s = kForever;  ///< per useful step over the episode, the switch paid
  double step_s = kForever;

  [[nodiscard]] bool possible() const { return step_s < kForever; }
};
/// By a margin that rounding does not reach.
[[nodiscard]] bool better_guide(const Worth& a, const Worth& b);
[[nodiscard]] bool better(const Worth& a, const Worth& b);

/// Which unit holds which layers of which replica, with its exact time kept up to date as it
/// changes. Changes since mark() can be taken back. Not for several threads; must not outlive the
/// problem.
class Layout {
 public:
  /// The current plan. `episode_s` is in the cost model's seconds, as are the others.
  Layout(Problem& problem, double episode_s, double pause_s);

  [[nodiscard]] Problem& problem() const { return problem_; }
  [[nodiscard]] std::uint32_t unit(std::uint32_t replica, std::uint32_t stage) const {
    return rows_[replica].unit[stage];
  }
  /// First layer of each stage, and the number of layers.
  [[nodiscard]] std::span<const std::uint32_t> cuts(std::uint32_t replica) const {
    return rows_[replica].cut;
  }
  [[nodiscard]] std::uint32_t microbatches(std::uint32_t replica) const {
    return rows_[replica].microbatches;
  }
  /// Where the unit stands, replica * stages + stage; kNone when it stands idle.
  [[nodiscard]] std::uint32_t place_of(std::uint32_t unit) const { return place_of_[unit]; }

  /// The guide counts the pause and the transfer of so many stages from the start: the first of
  /// several moves must not look dear because the others will not pay them again.
  void allow_transfer(double stages) { allowance_ = stages; }

  void put(std::uint32_t replica, std::uint32_t stage, std::uint32_t unit);
  void cut(std::uint32_t replica, std::span<const std::uint32_t> cuts);
  void count(std::uint32_t replica, std::uint32_t microbatches);

  /// Whether anything changed since the last of these three.
  [[nodiscard]] bool changed() const { return !stale_.empty(); }
  /// With the changed replicas timed exactly. Where microbatches are free, those that would move
  /// between replicas count as moved, by the replicas' periods.
  [[nodiscard]] Worth estimate();
  /// Moves those microbatches, until no single transfer helps: the exact minimum for these units
  /// and cuts. All replicas timed exactly.
  Worth settle();

  /// With all microbatches where they are.
  [[nodiscard]] Worth exact();

  /// A state to come back to. The first is that of the last mark(), which forgets those before;
  /// both require that nothing changed since the last estimate(), exact() or settle().
  struct Point {
    std::size_t rows = 0;
    std::size_t rings = 0;
    std::size_t nodes = 0;
  };
  void mark();
  [[nodiscard]] Point point();
  void undo() { undo(Point()); }
  void undo(Point to);

  /// Of the last estimate() or settle().
  [[nodiscard]] const StageTime& time(std::uint32_t replica, std::uint32_t stage) const {
    return rows_[replica].time[stage];
  }
  /// When the stage's last backward ends, and when its gradients are reduced.
  [[nodiscard]] double end_s(std::uint32_t replica, std::uint32_t stage) const {
    return rows_[replica].end[stage];
  }
  [[nodiscard]] double done_s(std::uint32_t replica, std::uint32_t stage) const {
    return rows_[replica].done[stage];
  }
  [[nodiscard]] double row_s(std::uint32_t replica) const { return rows_[replica].latest; }
  /// What one more microbatch takes in the long run.
  [[nodiscard]] double period_s(std::uint32_t replica) const { return rows_[replica].period; }
  /// Least by which a step counts longer for the switch, however the replica is cut; where all
  /// share one split, however all are.
  [[nodiscard]] double least_charge(std::uint32_t replica) const;
  /// From the stage to the next and back, one microbatch.
  [[nodiscard]] double hop_s(std::uint32_t replica, std::uint32_t stage) const {
    return rows_[replica].hop[stage];
  }
  /// The replica's part in the smooth worth, by which parts of replicas compare.
  [[nodiscard]] double norm(std::uint32_t replica) const { return rows_[replica].norm; }
  [[nodiscard]] const Ring& ring(std::uint32_t stage) const { return rings_[stage]; }
  [[nodiscard]] const StepTail& tail(std::uint32_t stage, std::uint32_t shard) const {
    return tails_[stage * problem_.shards().size() + shard];
  }
  /// Slowest replica.
  [[nodiscard]] std::uint32_t slowest() const;

  /// The plan that this is; without prediction and epoch.
  [[nodiscard]] Plan plan() const;

  [[nodiscard]] std::uint64_t evaluations() const { return evaluations_; }

 private:
  struct Arrival {
    std::uint32_t from = 0;  ///< units
    std::uint32_t to = 0;
    double bytes = 0;
    double devices = 0;  ///< that take it
  };
  struct Row {
    std::vector<std::uint32_t> unit;
    std::vector<std::uint32_t> cut;
    std::uint32_t microbatches = 0;
    bool fits = true;
    bool finished = false;  ///< done and what follows it are those of the rings as they are
    bool moved = false;     ///< differs from the current plan in units or cuts
    std::vector<StageTime> time;
    std::vector<double> hop;     ///< from each stage to the next and back
    std::vector<double> end;     ///< of the last backward
    std::vector<double> done;    ///< and of the gradients
    std::vector<double> smooth;  ///< done and updated, for the guide
    double latest = 0;           ///< of done
    double norm = 0;
    double longest_update = 0;
    double period = 0;
    std::vector<Arrival> arrivals;
  };

  [[nodiscard]] Row& change(std::uint32_t replica);
  void touch(std::uint32_t node);
  void forget_touched();
  [[nodiscard]] const Position& position(std::uint32_t replica, std::uint32_t stage) const;
  /// Sets the flags of all layers.
  void mark_row(std::uint32_t replica, std::vector<bool>& checkpoint) const;
  void time_row(std::uint32_t replica);
  void find_arrivals(std::uint32_t replica);
  void finish_row(std::uint32_t replica);
  void set_ring(std::uint32_t stage, const Ring& ring);
  void refresh_rings();
  [[nodiscard]] bool fits() const;
  void finish_rows();
  void refresh();
  [[nodiscard]] double transfer_s();
  [[nodiscard]] double norm_of(const Row& row, double later_s) const;
  void spread();
  /// A microbatch from the slowest replica to one that still ends earlier; timed exactly.
  bool transfer_one();
  [[nodiscard]] Worth worth();

  Problem& problem_;
  const double episode_s_;
  const double pause_s_;
  const bool shares_microbatches_;
  bool any_drained_ = false;
  bool flags_move_ = false;  ///< the current plan recomputes other layers than it needs to
  double scale_s_ = 1;
  double one_stage_s_ = 0;  ///< to move a mean stage
  double allowance_ = 1;
  std::vector<Row> rows_;
  std::vector<std::uint32_t> place_of_;
  std::vector<std::int32_t> shift_;  ///< [replica]: microbatches it takes in an estimate

  std::vector<bool> is_stale_;
  std::vector<std::uint32_t> stale_;
  std::vector<Ring> rings_;
  std::vector<StepTail> tails_;         ///< [stage * shards + shard]
  std::vector<StepTail> smooth_tails_;  ///< by the mean rate of the ring, for the guide
  std::vector<std::uint32_t> leaving_;  ///< [node]: rings that share its NICs
  std::vector<std::uint32_t> counted_;  ///< scratch of the same
  std::vector<std::uint32_t> touched_;  ///< nodes whose rings may have changed
  std::vector<bool> is_touched_;        ///< [node]

  struct SavedRow {
    std::uint32_t replica = 0;
    std::uint32_t before = kNone;  ///< index of the save before of the same replica
    Row row;
  };
  std::vector<std::uint32_t> saved_at_;  ///< [replica]: index of its last save, or kNone
  std::vector<SavedRow> saved_;          ///< the first saved_count_ count
  std::size_t saved_count_ = 0;
  std::size_t point_ = 0;  ///< saves from here on belong to the last point
  std::vector<std::pair<std::uint32_t, Ring>> saved_rings_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> saved_leaving_;

  Pipeline pipeline_;
  PipelineClock clock_;
  /// What was timed lately: many replicas are alike.
  struct Timed {
    Pipeline pipeline;
    std::uint32_t microbatches = 0;
    std::vector<double> ends;
    double period = 0;
  };
  std::array<Timed, 64> timed_;
  std::vector<double> out_;  ///< [node]
  std::vector<double> in_;
  std::vector<double> gives_;  ///< [unit]: per device, inside its node
  std::vector<double> takes_;
  std::vector<std::uint32_t> busy_;  ///< units
  std::vector<std::vector<RingMember>> members_;
  std::uint64_t evaluations_ = 0;
};

}  // namespace tapas::solver
