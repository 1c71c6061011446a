#include "ctl/conditions.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace tapas::ctl {
namespace {

solver::Cluster four_nodes() {
  solver::Cluster cluster;
  cluster.name = "four";
  cluster.device_types.emplace_back();
  solver::NodeType type;
  type.devices = 2;
  cluster.node_types = {type};
  for (std::uint32_t n = 0; n < 4; ++n) {
    solver::Node node;
    node.name = "a800-00" + std::to_string(n);
    cluster.nodes.push_back(node);
  }
  return cluster;
}

std::string refusal(const Conditions& conditions) {
  const auto state = cluster_state(conditions, four_nodes());
  return state ? "accepted" : state.error().message;
}

TEST(Conditions, AreHealthyWhenNothingIsSaid) {
  const auto state = cluster_state({}, four_nodes());
  ASSERT_TRUE(state);
  EXPECT_EQ(state->slowdown(RankId{7}), 1);
  EXPECT_EQ(state->links(NodeId{3}), solver::NodeLinks{});
  EXPECT_EQ(state->path(NodeId{0}, NodeId{1}), 1);
  EXPECT_FALSE(state->is_drained(NodeId{0}));
  EXPECT_TRUE(pinned_nodes({}, four_nodes())->empty());
}

TEST(Conditions, SlowNodesDevicesLinksAndPathsOfOneDirection) {
  Conditions conditions;
  conditions.slow = {"a800-001:1=2", "a800-001=1.6"};
  conditions.send = {"a800-002=4"};
  conditions.receive = {"a800-002=3", "a800-003=5"};
  conditions.inside = {"a800-000=1.5"};
  conditions.path = {"a800-003,a800-000=8"};
  conditions.drain = {"a800-003"};
  conditions.pin = {"a800-000", "a800-002"};
  const auto state = cluster_state(conditions, four_nodes());
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(state->device_slowdown, (std::vector<double>{1, 1, 1.6, 2, 1, 1, 1, 1}));
  EXPECT_EQ(state->links(NodeId{0}), (solver::NodeLinks{1, 1, 1.5}));
  EXPECT_EQ(state->links(NodeId{2}), (solver::NodeLinks{4, 3, 1}));
  EXPECT_EQ(state->links(NodeId{3}), (solver::NodeLinks{1, 5, 1}));
  EXPECT_EQ(state->path(NodeId{3}, NodeId{0}), 8);
  EXPECT_EQ(state->path(NodeId{0}, NodeId{3}), 1);
  EXPECT_EQ(state->drained, (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(*pinned_nodes(conditions, four_nodes()), (std::vector<bool>{true, false, true, false}));
}

TEST(Conditions, NameTheOptionAndTheNodeThatWasMeant) {
  EXPECT_EQ(refusal({.slow = {"a800-01=2"}}),
            "--slow: cluster four has no node \"a800-01\"; did you mean a800-001?");
  EXPECT_EQ(refusal({.send = {"gateway=2"}}), "--send: cluster four has no node \"gateway\"");
  EXPECT_NE(refusal({.path = {"a800-001,a800-09=2"}}).find("did you mean a800-00"),
            std::string::npos);
  EXPECT_NE(refusal({.drain = {"a800-0O1"}}).find("did you mean a800-001"), std::string::npos);
  const auto pinned = pinned_nodes({.pin = {"a800-0O1"}}, four_nodes());
  ASSERT_FALSE(pinned);
  EXPECT_NE(pinned.error().message.find("--pin"), std::string::npos);
}

TEST(Conditions, RefuseWhatMakesNoSense) {
  for (const char* factor : {"", "=", "=fast", "=0", "=-2", "=nan", "=inf", "=2x", "=1e9"}) {
    EXPECT_NE(refusal({.slow = {std::string("a800-001") + factor}}).find("NAME=FACTOR"),
              std::string::npos)
        << factor;
  }
  EXPECT_NE(refusal({.slow = {"a800-001:2=2"}}).find("devices 0 to 1"), std::string::npos);
  EXPECT_NE(refusal({.slow = {"a800-001:=2"}}).find("devices 0 to 1"), std::string::npos);
  EXPECT_NE(refusal({.slow = {"a800-001=2", "a800-001=3"}}).find("given twice"), std::string::npos);
  EXPECT_NE(refusal({.slow = {"a800-001:0=2", "a800-001:0=3"}}).find("given twice"),
            std::string::npos);
  EXPECT_NE(refusal({.inside = {"a800-001=2", "a800-001=3"}}).find("given twice"),
            std::string::npos);
  EXPECT_NE(refusal({.path = {"a800-001=2"}}).find("FROM,TO=FACTOR"), std::string::npos);
  EXPECT_NE(refusal({.path = {"a800-001,a800-001=2"}}).find("itself"), std::string::npos);
  EXPECT_NE(refusal({.path = {"a800-001,a800-002=2", "a800-001,a800-002=3"}}).find("given twice"),
            std::string::npos);
}

}  // namespace
}  // namespace tapas::ctl
