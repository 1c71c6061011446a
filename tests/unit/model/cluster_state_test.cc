#include "solver/model/cluster_state.h"

#include "tests/unit/model/fixtures.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace tapas::solver {
namespace {

std::string problem(const ClusterState& state) {
  const auto ok = validate(uneven_cluster(), state);
  return ok ? "" : ok.error().message;
}

TEST(ClusterState, MayLeaveOutWhatIsHealthy) {
  EXPECT_EQ(problem({}), "");
  ClusterState state;
  state.device_slowdown.assign(9, 1.2);
  state.drained.assign(4, true);
  state.node_links.assign(4, {1.5, 0.9, 2});
  state.paths = {{NodeId(0), NodeId(1), 2}, {NodeId(1), NodeId(0), 3}};
  EXPECT_EQ(problem(state), "");
  EXPECT_EQ(state.path(NodeId(1), NodeId(0)), 3);
  EXPECT_EQ(state.path(NodeId(1), NodeId(2)), 1);
  EXPECT_EQ(state.links(NodeId(3)).receive, 0.9);
}

TEST(ClusterState, NeedsAnEntryForEachOrNone) {
  ClusterState state;
  state.device_slowdown.assign(8, 1);
  EXPECT_NE(problem(state).find("device_slowdown has 8 entries, but the cluster has 9 devices"),
            std::string::npos);
  state = {};
  state.drained.assign(5, false);
  EXPECT_NE(problem(state).find("drained has 5 entries"), std::string::npos);
  state = {};
  state.node_links.assign(3, {});
  EXPECT_NE(problem(state).find("node_links has 3 entries, but the cluster has 4 nodes"),
            std::string::npos);
}

TEST(ClusterState, NamesTheNodeWhoseFactorIsNone) {
  ClusterState state;
  state.device_slowdown.assign(9, 1);
  state.device_slowdown[4] = std::numeric_limits<double>::infinity();
  EXPECT_NE(problem(state).find("device 2 of node b is inf"), std::string::npos) << problem(state);
  state = {};
  state.node_links.assign(4, {});
  state.node_links[2].receive = 0;
  EXPECT_NE(problem(state).find("the receive slowdown of node c is 0"), std::string::npos);
  state.node_links[2] = {1, 1, -1};
  EXPECT_NE(problem(state).find("the inside slowdown of node c is -1"), std::string::npos);
  state.node_links[2] = {std::numeric_limits<double>::quiet_NaN(), 1, 1};
  EXPECT_NE(problem(state).find("the send slowdown of node c"), std::string::npos);
}

TEST(ClusterState, RefusesPathsThatAreNone) {
  ClusterState state;
  state.paths = {{NodeId(0), NodeId(7), 2}};
  EXPECT_NE(problem(state).find("names node 7, but the cluster has 4 nodes"), std::string::npos);
  state.paths = {{NodeId(1), NodeId(1), 2}};
  EXPECT_NE(problem(state).find("from node b to itself"), std::string::npos);
  state.paths = {{NodeId(0), NodeId(1), 0}};
  EXPECT_NE(problem(state).find("path from a to b is 0"), std::string::npos);
  state.paths = {{NodeId(0), NodeId(1), 2}, {NodeId(1), NodeId(0), 2}, {NodeId(0), NodeId(1), 3}};
  EXPECT_NE(problem(state).find("path from a to b is given twice"), std::string::npos);
}

}  // namespace
}  // namespace tapas::solver
