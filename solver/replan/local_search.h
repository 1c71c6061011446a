#pragma once

#include "solver/replan/exact_split.h"
#include "solver/replan/layout.h"
#include "solver/replan/micro_replan.h"
#include "solver/replan/row_split.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace tapas::solver {

/// What looks best in one replica: so many are tried in all of them.
inline constexpr std::size_t kEverywhere = 3;

/// What the search may be without, to measure what each part earns (docs/micro-replan.md).
struct Mechanisms {
  std::uint32_t depth = 3;     ///< exchanges in one chain; 0 = nodes stay where they are
  bool gain_criterion = true;  ///< a chain goes on only where its last step helped the first
  bool stratified = true;      ///< candidates from spares, the own replica and others apart
  bool potential = true;       ///< guided by the smooth worth, not by the raw one
  bool split_touched = true;   ///< layers follow the nodes within an exchange
  bool exact_split = true;     ///< the slowest row is cut by branch and bound
  bool gather = true;          ///< slow rings share a stage
  bool carry = true;           ///< slow nodes of the slowest row go to its other stages
  bool thin = true;            ///< fewer layers than the split gives, for slow stages and for any
  bool lighten = true;         ///< stages whose gradients come last are held down
  bool polish = true;          ///< all changes, and all pairs of those that lose least
  bool kicks = true;
  bool annealing = true;  ///< in turns with the kicks
};

/// Improves a layout by moving what the measurements made slow: layers first, then nodes, in the
/// manner of Lin and Kernighan (docs/micro-replan.md). Remembers the best layout by exact worth.
/// Deterministic for a seed as long as only evaluations end it. Not for several threads.
class LocalSearch {
 public:
  /// All must outlive it; `limits` also where the layout's own evaluations are counted.
  LocalSearch(Layout& layout, const ReplanLimits& limits, const Mechanisms& mechanisms = {});

  /// Microbatches only.
  void balance();
  /// The slow stages, each with its neighbours: all cuts between the two.
  void pairs();
  /// Spares in those of the places with most harm that gain most by them together.
  void spares();
  /// Whole replicas cut anew and slow units along them (columns.cc), also as if no spare had been
  /// given where those gained little.
  void replicas();
  /// Nodes change places until no chain helps.
  void nodes();
  /// Restarts from disturbed layouts and annealing in turns, until the limits end it.
  void wide();
  /// Takes back what the best layout does not need, to move fewer bytes.
  void trim();

  /// Ends when no more than this is left of the time; trim() too.
  void keep_back(double seconds) {
    kept_s_ = seconds;
    late_ = false;
    ask_at_ = 0;
  }
  [[nodiscard]] bool spent();
  [[nodiscard]] bool out_of_time();
  /// Which of the limits ended it, half a sentence.
  [[nodiscard]] std::string why_spent() const;
  [[nodiscard]] const Worth& best() const { return best_.worth; }
  /// Puts the layout into the best state seen.
  void restore_best();

 private:
  struct Snapshot {
    std::vector<std::uint32_t> units;
    std::vector<std::uint32_t> cuts;
    std::vector<std::uint32_t> counts;
    Worth worth;
  };
  /// Units that change places together: one, or all of a node.
  using Block = std::vector<std::uint32_t>;

  [[nodiscard]] Snapshot snapshot(const Worth& worth) const;
  void restore(const Snapshot& to);
  /// Keeps the present state when it guides better than `now_`, else takes it back.
  bool keep_if_better(const Worth& estimate);
  /// Keeps a state that is worth as much as `now_` or more.
  bool keep_if_no_worse(const Worth& exact);
  /// Units go back to their places, and cuts to where they were, where that costs nothing: fewer
  /// bytes move.
  void return_home();
  void cut_as_home(std::uint32_t replica);
  void record();
  [[nodiscard]] bool improves(const Worth& a, const Worth& b) const;

  /// Which places are worth a look: what was measured to be slow, also what moved and got long
  /// links, or whatever links and rings make longer.
  enum class Look : std::uint8_t { kMeasured, kMoved, kAll };
  [[nodiscard]] std::vector<std::uint32_t> focus(std::size_t most, Look look);
  [[nodiscard]] double harm_s(std::uint32_t replica, std::uint32_t stage, double least_hop_s,
                              Look look) const;
  /// How many times as long transfers take at a unit's NICs or on some path of its node.
  [[nodiscard]] double nic_slowdown(const Unit& unit) const;
  [[nodiscard]] std::vector<Block> blocks_of(std::uint32_t place) const;
  [[nodiscard]] std::vector<Block> candidates(const Block& hand, std::size_t most,
                                              bool idle_only = false);
  [[nodiscard]] bool may_exchange(const Block& a, const Block& b) const;
  [[nodiscard]] double score(std::uint32_t unit, std::uint32_t place) const;
  struct Step {
    Block hand;
    Block other;
    bool split = true;  ///< the touched replicas are cut anew
  };
  void exchange(const Block& a, const Block& b);
  void apply(const Step& step);
  void split_rows(const Step& step);
  /// Applies the step with the touched replicas as they are cut or cut anew, whichever guides
  /// better, and says so in it. The layout may be left in the other of the two.
  Worth try_step(Step& step);
  [[nodiscard]] std::vector<std::uint32_t> rows_of(const Block& block) const;
  [[nodiscard]] double norm_of(const std::vector<std::uint32_t>& rows) const;
  void split_row(std::uint32_t replica, std::span<const StageLimit> limits = {});
  /// Of all replicas, each as it is best.
  void split_all(std::span<const StageLimit> limits);
  /// Of all replicas where they share one split. Nothing when a pinned stage would change.
  void set_cuts(std::uint32_t replica, const std::vector<std::uint32_t>& cuts);

  void rows();
  bool pair_cuts(std::uint32_t replica, std::uint32_t left);
  struct Effort {
    std::uint32_t depth = 0;  ///< exchanges in a chain
    std::size_t places = 0;   ///< where chains start
    Look look = Look::kMoved;
    std::size_t breadth = 0;  ///< candidates of the first exchange, a quarter for each that follows
    bool layers = true;       ///< where no chain helps, layers of the slowest row move
  };
  bool chain(const Block& hand, const Effort& effort);
  [[nodiscard]] std::vector<std::uint32_t> layer_moved(std::uint32_t replica, std::uint32_t from,
                                                       std::uint32_t to) const;
  /// The one layer of a replica that gains most in another of its stages.
  bool move_layers(std::uint32_t replica);
  /// Takes the best of these cuts; those that are best for the replica are tried for all.
  bool cut_as_best(std::uint32_t replica, const std::vector<std::vector<std::uint32_t>>& options);
  bool split_exactly(std::uint64_t branches);
  /// Takes layers off the stages whose gradients come last, in all replicas.
  bool lighten(std::uint32_t replica);
  /// How much longer than its pipeline a row takes for the gradients and the update of a stage with
  /// so many layers.
  [[nodiscard]] double rest_s(std::uint32_t replica, std::uint32_t stage,
                              std::uint32_t layers) const;
  /// So few layers that a slow ring is not waited for.
  [[nodiscard]] StageLimit held(std::uint32_t replica, std::uint32_t stage) const;
  [[nodiscard]] bool is_slow(std::uint32_t replica, std::uint32_t stage) const;
  [[nodiscard]] bool has_slow_ring(std::uint32_t unit) const;
  /// Exchanges the unit with that at the stage of its row or, where one of `beside` stands, of the
  /// fastest row where none does. The row; kNone where a pin or another width is in the way.
  std::uint32_t to_stage(std::uint32_t unit, std::uint32_t stage, const Block& beside);
  /// Units with slow rings to one stage, each in a row of its own, as one light column costs less
  /// than several; the slow ones as well where that is better.
  bool gather();
  bool gather(std::uint32_t group);
  /// Where a bad NIC would send layers to those that take them: another replica's unit that has
  /// their parameters takes them instead, and the newcomer stands in for that one.
  void relay();
  /// Slow units to other stages of the row that the step waits for.
  bool carry();
  bool carry(std::uint32_t replica);
  /// Fewer layers for the slow stages of a row than its split gives them by its bound.
  bool thin(std::uint32_t replica);
  /// A layer less for one stage of all rows.
  bool thin_columns();
  bool descend(const Effort& effort);
  /// Two units that have places. False: a pin, a drain or another width is in the way.
  bool swap_units(std::uint32_t a, std::uint32_t b);
  /// Moves the unit of a stage to another stage of its row and those between up. False: a pin or
  /// another width is in the way, the layout may be changed.
  bool rotate(std::uint32_t replica, std::uint32_t from, std::uint32_t to);
  /// Two stages change places in all rows, layers and all.
  bool swap_columns(std::uint32_t a, std::uint32_t b);
  /// Columns with something slow and any other one, each as is best.
  void swap_harmed_columns();
  /// Every two stages, as long as that helps.
  void columns();
  /// Of changes that help the first one, or the best one and more kinds of them.
  enum class Take : std::uint8_t { kFirst, kBest };
  /// A small change of who stands where, or of the cuts.
  struct Change {
    enum class Kind : std::uint8_t { kExchange, kRotate, kSwapRows, kLayer, kLayers };
    Kind kind = Kind::kExchange;
    std::uint32_t a = 0;  ///< unit; the stage that it starts from
    std::uint32_t b = 0;  ///< unit; the stage that it ends at
    std::uint32_t replica = 0;
    std::uint32_t other = 0;  ///< the second replica of rows that are swapped
  };
  [[nodiscard]] std::vector<Change> changes(Take take) const;
  /// False: it cannot be made, the layout may be changed.
  bool make(const Change& change);
  /// Two replicas change the units of some stages or, where these are all, also layers and
  /// microbatches.
  bool swap_rows(std::uint32_t a, std::uint32_t b, std::uint32_t first, std::uint32_t last);
  /// One layer of a stage to another one, those between shift.
  bool move_layer(std::uint32_t replica, std::uint32_t from, std::uint32_t to);
  /// Where few units stand: all changes, and all pairs of which the first loses little, by what
  /// they are really worth, until none helps. Finds healthy nodes in equal roles, and who has to
  /// fetch least, which chains pass over.
  void polish(Take take);
  /// Many microbatches of a replica to another one; both are cut anew.
  bool give_microbatches(std::uint32_t from);
  bool kick(std::uint32_t exchanges);
  void kicks(std::uint64_t until);
  /// A random small change; false: none was possible.
  bool wander();
  void anneal(std::uint64_t until);
  /// From 0 to below `many`.
  std::uint32_t draw(std::size_t many);
  double uniform();

  Layout& layout_;
  Problem& problem_;
  const ReplanLimits& limits_;
  const Mechanisms mechanisms_;
  bool by_potential_;
  double kept_s_ = 0;
  bool late_ = false;
  std::uint64_t ask_at_ = 0;  ///< evaluations at which the clock is due
  std::uint32_t not_asked_ = 0;
  RowSplit split_;
  ExactSplit exact_;
  std::mt19937_64 random_;
  Worth now_;
  Snapshot best_;
  Snapshot home_;  ///< the current plan
  std::optional<Snapshot> without_spares_;
};

/// micro_replan() without some of its mechanisms, for measurements.
[[nodiscard]] Result<Proposal> micro_replan(const Job& job, const ReplanRequest& request,
                                            const ReplanLimits& limits,
                                            const Mechanisms& mechanisms);

}  // namespace tapas::solver
