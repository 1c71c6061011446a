#include "daemon/net/pacing.h"

#include <gtest/gtest.h>

namespace tapas::daemon {
namespace {

TEST(Pacing, ASmallFleetKeepsWhatIsConfigured) {
  const CoreConfig config = paced({.heartbeat_s = 1, .agent_lost_s = 10}, 2500);
  EXPECT_DOUBLE_EQ(config.heartbeat_s, 1);
  EXPECT_DOUBLE_EQ(config.agent_lost_s, 10);
}

TEST(Pacing, SilenceIsJudgedByTheHeartbeatsThatTheFleetSends) {
  const CoreConfig config = paced({.heartbeat_s = 1, .agent_lost_s = 10}, 10'000);
  EXPECT_DOUBLE_EQ(config.heartbeat_s, 4);
  EXPECT_DOUBLE_EQ(config.agent_lost_s, 12);
}

TEST(Pacing, SilenceShorterThanAHeartbeatIsNoLoss) {
  EXPECT_DOUBLE_EQ(paced({.heartbeat_s = 60, .agent_lost_s = 10}, 1).agent_lost_s, 180);
}

TEST(Pacing, AgentsComeBackAsFastAsTheDaemonCanGreetThem) {
  EXPECT_DOUBLE_EQ(reconnect_spread_s(1000), 4);
}

}  // namespace
}  // namespace tapas::daemon
