#include "solver/cost/switch_cost.h"

#include "jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tapas::solver {
namespace {

std::vector<LayerMove> random_moves(testing::Draw& draw, std::uint32_t nodes, std::uint32_t count) {
  std::vector<LayerMove> moves(count);
  for (LayerMove& move : moves) {
    for (Position* position : {&move.from, &move.to}) {
      position->node = NodeId(draw.between(0U, nodes - 1));
      const std::uint32_t width = 1U << draw.between(0U, 2U);
      const std::uint32_t first = draw.between(0U, 8 / width - 1) * width;
      for (std::uint32_t k = 0; k < width; ++k) {
        position->devices.push_back(static_cast<std::uint16_t>(first + k));
      }
    }
    move.bytes = draw.between(1e8, 4e9);
  }
  return moves;
}

/// Each node, each pair of nodes and each device for itself, over all moves.
double slowest_of_all(const Job& job, const std::vector<LayerMove>& moves,
                      const ClusterState& state) {
  const NodeType& type = job.cluster.node_types[0];
  const double nics = type.nics * type.nic_bytes_per_s;
  const auto nodes = static_cast<std::uint32_t>(job.cluster.nodes.size());
  double slowest = 0;
  for (std::uint32_t a = 0; a < nodes; ++a) {
    const NodeLinks& links = state.node_links[a];
    double out = 0;
    double in = 0;
    for (const LayerMove& move : moves) {
      const bool leaves = move.from.node != move.to.node;
      out += leaves && move.from.node == NodeId(a) ? move.bytes : 0;
      in += leaves && move.to.node == NodeId(a) ? move.bytes : 0;
    }
    slowest = std::max({slowest, out / (nics / links.send), in / (nics / links.receive)});
    for (std::uint32_t b = 0; b < nodes; ++b) {
      double bytes = 0;
      for (const LayerMove& move : moves) {
        bytes += move.from.node == NodeId(a) && move.to.node == NodeId(b) ? move.bytes : 0;
      }
      if (a != b) {
        slowest = std::max(slowest, bytes * state.path(NodeId(a), NodeId(b)) *
                                        std::max(links.send, state.node_links[b].receive) / nics);
      }
    }
    for (std::uint16_t d = 0; d < type.devices; ++d) {
      double gives = 0;
      double takes = 0;
      for (const LayerMove& move : moves) {
        if (move.from.node != NodeId(a) || move.to.node != NodeId(a)) {
          continue;
        }
        const auto part = [&](const Position& position) {
          const bool holds = std::count(position.devices.begin(), position.devices.end(), d) > 0;
          return holds ? move.bytes / static_cast<double>(position.devices.size()) : 0;
        };
        gives += part(move.from);
        takes += part(move.to);
      }
      slowest =
          std::max(slowest, std::max(gives, takes) * links.inside / type.fast_link_bytes_per_s);
    }
  }
  return slowest;
}

TEST(Transfer, TakesAsLongAsItsBusiestPart) {
  testing::Draw draw(31);
  for (int round = 0; round < 200; ++round) {
    const auto nodes = draw.between(2U, 6U);
    Job job = testing::small_job(4, nodes, 8, 16);
    if (round % 3 == 0) {
      job.cluster.node_types[0].fast_link_bytes_per_s = 2e9;  // so that it matters at all
    }
    const ClusterState state = testing::random_state(job.cluster, draw, draw.between(0U, 2U));
    const std::vector<LayerMove> moves = random_moves(draw, nodes, draw.between(0U, 12U));
    const double expected = slowest_of_all(job, moves, state);
    EXPECT_NEAR(transfer_s(job, moves, state), expected, 1e-9 * expected) << "round " << round;
  }
}

TEST(Transfer, OfNothingTakesNoTime) {
  EXPECT_EQ(transfer_s(testing::small_job(4, 2, 8, 16), {}, {}), 0);
}

TEST(Transfer, UsesAllNicsOfANode) {
  const Job job = testing::small_job(4, 3, 8, 16);  // four NICs of 25 GB/s a node
  LayerMove move;
  move.from = {NodeId(0), {0, 1}};
  move.to = {NodeId(1), {0, 1}};
  move.bytes = 50e9;
  EXPECT_DOUBLE_EQ(transfer_s(job, {move}, {}), 0.5);
  ClusterState state;
  state.paths = {{NodeId(0), NodeId(1), 4}};
  EXPECT_DOUBLE_EQ(transfer_s(job, {move}, state), 2);
  std::swap(move.from, move.to);
  EXPECT_DOUBLE_EQ(transfer_s(job, {move}, state), 0.5) << "the other direction is healthy";
}

}  // namespace
}  // namespace tapas::solver
