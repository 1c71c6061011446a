#include "solver/cost/transfer_order.h"

#include "jobs.h"
#include "solver/cost/switch_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

using End = std::tuple<NodeId, std::uint16_t, bool>;

std::set<End> ends_of(const LayerMove& move) {
  constexpr std::uint16_t kNics = 999;
  if (move.from.node != move.to.node) {
    return {{move.from.node, kNics, true}, {move.to.node, kNics, false}};
  }
  std::set<End> ends;
  for (const std::uint16_t device : move.from.devices) {
    ends.insert({move.from.node, device, true});
  }
  for (const std::uint16_t device : move.to.devices) {
    ends.insert({move.to.node, device, false});
  }
  return ends;
}

std::vector<LayerMove> random_moves(testing::Draw& draw, std::uint32_t nodes, std::uint32_t count,
                                    bool inside) {
  std::vector<LayerMove> moves(count);
  for (LayerMove& move : moves) {
    const std::uint32_t from = draw.between(0U, nodes - 1);
    const std::uint32_t away = draw.between(inside ? 0U : 1U, nodes - 1);
    move.from = {NodeId(from), {0, 1}};
    move.to = {NodeId((from + away) % nodes), away == 0 && draw.between(0U, 1U) == 0
                                                  ? std::vector<std::uint16_t>{1, 2}
                                                  : std::vector<std::uint16_t>{2, 3}};
    move.bytes = draw.between(1e8, 4e9);
  }
  return moves;
}

double end_of(const std::vector<TransferTime>& times) {
  double end_s = 0;
  for (const TransferTime& time : times) {
    end_s = std::max(end_s, time.end_s);
  }
  return end_s;
}

/// The earliest end over all orders, each move as soon as its ends are free.
double best_end_s(const Job& job, const std::vector<LayerMove>& moves, const ClusterState& state) {
  std::vector<std::size_t> order(moves.size());
  std::iota(order.begin(), order.end(), 0U);
  double best = std::numeric_limits<double>::infinity();
  do {
    std::map<End, double> free_s;
    double end_s = 0;
    for (const std::size_t k : order) {
      double start_s = 0;
      for (const End& end : ends_of(moves[k])) {
        start_s = std::max(start_s, free_s[end]);
      }
      const double done_s = start_s + transfer_s(job, {moves[k]}, state);
      for (const End& end : ends_of(moves[k])) {
        free_s[end] = done_s;
      }
      end_s = std::max(end_s, done_s);
    }
    best = std::min(best, end_s);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(TransferOrder, UsesEachEndForOneMoveAtATime) {
  testing::Draw draw(7);
  for (int round = 0; round < 200; ++round) {
    const auto nodes = draw.between(2U, 6U);
    const Job job = testing::small_job(4, nodes, 8, 16);
    const ClusterState state = testing::random_state(job.cluster, draw, draw.between(0U, 2U));
    const auto moves = random_moves(draw, nodes, draw.between(1U, 30U), /*inside=*/true);
    const auto times = transfer_times(job, moves, state);
    ASSERT_EQ(times.size(), moves.size());
    EXPECT_GE(end_of(times) * (1 + 1e-12), transfer_s(job, moves, state)) << "round " << round;
    for (std::size_t a = 0; a < moves.size(); ++a) {
      EXPECT_GE(times[a].start_s, 0);
      EXPECT_NEAR(times[a].end_s - times[a].start_s, transfer_s(job, {moves[a]}, state), 1e-9);
      const std::set<End> ends = ends_of(moves[a]);
      for (std::size_t b = 0; b < a; ++b) {
        const std::set<End> others = ends_of(moves[b]);
        const bool apart = times[a].end_s <= times[b].start_s || times[b].end_s <= times[a].start_s;
        EXPECT_TRUE(apart || std::none_of(ends.begin(), ends.end(),
                                          [&](const End& end) { return others.count(end) > 0; }))
            << "round " << round << ", moves " << a << " and " << b;
      }
    }
  }
}

TEST(TransferOrder, IsNearTheBestOfAllOrders) {
  testing::Draw draw(11);
  int best = 0;
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    const auto nodes = draw.between(2U, 5U);
    const Job job = testing::small_job(4, nodes, 8, 16);
    const ClusterState state = testing::random_state(job.cluster, draw, draw.between(0U, 1U));
    const auto moves = random_moves(draw, nodes, draw.between(1U, 6U), /*inside=*/false);
    const double end_s = end_of(transfer_times(job, moves, state));
    const double optimum = best_end_s(job, moves, state);
    EXPECT_GE(end_s, optimum * (1 - 1e-12)) << "round " << round;
    EXPECT_LT(end_s, 2 * optimum) << "round " << round;
    best += end_s <= optimum * (1 + 1e-12) ? 1 : 0;
  }
  EXPECT_GE(best, kRounds * 3 / 4);
}

TEST(TransferOrder, RunsPairsWithNoEndInCommonAtOnce) {
  const Job job = testing::small_job(4, 4, 8, 16);
  std::vector<LayerMove> moves(3);
  moves[0].from.node = NodeId(0);
  moves[0].to.node = NodeId(1);
  moves[1].from.node = NodeId(1);  // sends while it receives
  moves[1].to.node = NodeId(2);
  moves[2].from.node = NodeId(3);
  moves[2].to.node = NodeId(2);
  moves[0].bytes = moves[1].bytes = 100e9;  // a second each: four NICs of 25 GB/s a node
  moves[2].bytes = 50e9;
  const auto times = transfer_times(job, moves, {});
  EXPECT_EQ(times[0].start_s, 0);
  EXPECT_EQ(times[1].start_s, 0) << "the longer of the two that go to node 2";
  EXPECT_DOUBLE_EQ(times[2].start_s, 1);
  EXPECT_DOUBLE_EQ(times[2].end_s, 1.5);
}

TEST(TransferOrder, OfNothingIsEmpty) {
  EXPECT_TRUE(transfer_times(testing::small_job(4, 2, 8, 16), {}, {}).empty());
}

}  // namespace
}  // namespace tapas::solver
