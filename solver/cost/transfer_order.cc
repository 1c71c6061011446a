#include "solver/cost/transfer_order.h"

#include "solver/cost/switch_cost.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

namespace tapas::solver {
namespace {

/// What can take part in one transfer at a time: a node's NICs or one of its devices, out or in.
struct End {
  double free_s = 0;
  double left_s = 0;  ///< of transfers that have not been given a time
};

/// Moves between the same devices.
struct Way {
  std::vector<std::size_t> ends;
  std::vector<std::size_t> moves;  ///< that have no time yet, the longest last
};

class Order {
 public:
  Order(const Job& job, const std::vector<LayerMove>& moves, const ClusterState& state) {
    std::map<std::tuple<NodeId, std::vector<std::uint16_t>, NodeId, std::vector<std::uint16_t>>,
             std::size_t>
        known;
    for (std::size_t k = 0; k < moves.size(); ++k) {
      const LayerMove& move = moves[k];
      seconds_.push_back(transfer_s(job, {move}, state));
      const auto [at, fresh] = known.try_emplace(
          {move.from.node, move.from.devices, move.to.node, move.to.devices}, ways_.size());
      if (fresh) {
        ways_.push_back({ends_of(move), {}});
      }
      ways_[at->second].moves.push_back(k);
      for (const std::size_t end : ways_[at->second].ends) {
        ends_[end].left_s += seconds_.back();
      }
    }
    for (Way& way : ways_) {
      std::stable_sort(way.moves.begin(), way.moves.end(),
                       [this](std::size_t a, std::size_t b) { return seconds_[a] < seconds_[b]; });
    }
  }

  std::vector<TransferTime> times() {
    std::vector<TransferTime> times(seconds_.size());
    // Ends get free later and have less to move with each transfer, so no way gets more urgent: one
    // that still is as urgent as when it was queued comes next.
    using Queued = std::pair<Urgency, std::size_t>;
    std::priority_queue<Queued, std::vector<Queued>, std::greater<>> queue;
    for (std::size_t k = 0; k < ways_.size(); ++k) {
      queue.emplace(urgency(ways_[k]), k);
    }
    while (!queue.empty()) {
      const auto [then, k] = queue.top();
      queue.pop();
      Way& way = ways_[k];
      const Urgency now = urgency(way);
      if (now != then) {
        queue.emplace(now, k);
        continue;
      }
      const std::size_t move = way.moves.back();
      way.moves.pop_back();
      times[move] = {now.first, now.first + seconds_[move]};
      for (const std::size_t end : way.ends) {
        ends_[end].free_s = times[move].end_s;
        ends_[end].left_s -= seconds_[move];
      }
      if (!way.moves.empty()) {
        queue.emplace(urgency(way), k);
      }
    }
    return times;
  }

 private:
  /// When the way's next move can start, and less the more its ends have to move.
  using Urgency = std::pair<double, double>;
  [[nodiscard]] Urgency urgency(const Way& way) const {
    double start_s = 0;
    double left_s = 0;
    for (const std::size_t end : way.ends) {
      start_s = std::max(start_s, ends_[end].free_s);
      left_s = std::max(left_s, ends_[end].left_s);
    }
    return {start_s, -left_s};
  }

  std::vector<std::size_t> ends_of(const LayerMove& move) {
    std::vector<std::size_t> ends;
    const bool inside = move.from.node == move.to.node;
    for (const auto& [position, out] : {std::pair{&move.from, true}, std::pair{&move.to, false}}) {
      for (const std::uint16_t device :
           inside ? position->devices : std::vector<std::uint16_t>{kNics}) {
        const auto [at, fresh] = numbers_.try_emplace({position->node, device, out}, ends_.size());
        if (fresh) {
          ends_.emplace_back();
        }
        ends.push_back(at->second);
      }
    }
    return ends;
  }

  static constexpr std::uint16_t kNics = UINT16_MAX;
  std::map<std::tuple<NodeId, std::uint16_t, bool>, std::size_t> numbers_;
  std::vector<End> ends_;
  std::vector<Way> ways_;
  std::vector<double> seconds_;  ///< of each move on its own
};

}  // namespace

std::vector<TransferTime> transfer_times(const Job& job, const std::vector<LayerMove>& moves,
                                         const ClusterState& state) {
  return Order(job, moves, state).times();
}

}  // namespace tapas::solver
