#include "daemon/net/outbound.h"

#include "base/json/json.h"
#include "tests/unit/daemon/fixtures.h"

#include <gtest/gtest.h>

namespace tapas::daemon {
namespace {

TEST(OutboundPlan, ArrivesWholeFromItsPieces) {
  Outbound outbound(tiny_jobs());
  const auto plan = tiny_plan(3);
  std::string text;
  std::uint32_t next = 0;
  const auto ok = outbound.encode({"node-1", PlanMessage{tiny_job().name, Term(2), plan, true}},
                                  [&](const wire::ToAgent& message) {
                                    const auto& chunk = std::get<wire::PlanChunk>(message);
                                    EXPECT_EQ(chunk.index, next++);
                                    EXPECT_EQ(chunk.epoch, 3U);
                                    EXPECT_EQ(chunk.term, 2U);
                                    EXPECT_TRUE(chunk.active);
                                    EXPECT_LE(chunk.text.size(), wire::kMaxPlanChunkBytes);
                                    text += chunk.text;
                                  });
  ASSERT_TRUE(ok) << ok.error().message;
  EXPECT_EQ(json::parse(text).value(), solver::plan_to_json(*plan, tiny_job()));
}

TEST(OutboundPlan, IsRefusedForAJobThatIsNotOurs) {
  Outbound outbound(tiny_jobs());
  const auto ok = outbound.encode({"node-1", PlanMessage{"other", Term(1), tiny_plan(1), true}},
                                  [](const wire::ToAgent&) { FAIL(); });
  EXPECT_FALSE(ok);
}

TEST(OutboundWelcome, SaysOverHowLongToSpreadTheReturn) {
  Outbound outbound(tiny_jobs());
  outbound.spread_reconnects(40);
  ASSERT_TRUE(
      outbound.encode({"node-1", WelcomeMessage{Term(2), 4}}, [](const wire::ToAgent& message) {
        const auto& welcome = std::get<wire::Welcome>(message);
        EXPECT_EQ(welcome.term, 2U);
        EXPECT_DOUBLE_EQ(welcome.heartbeat_s, 4);
        EXPECT_DOUBLE_EQ(welcome.reconnect_spread_s, 40);
      }));
}

TEST(OutboundOrder, KeepsItsNumbers) {
  Outbound outbound(tiny_jobs());
  int sent = 0;
  const SwitchMessage order{SwitchOrder::kArm, "j", Term(4), Epoch(5), Epoch(6), 77, ""};
  ASSERT_TRUE(outbound.encode({"node-1", order}, [&](const wire::ToAgent& message) {
    ++sent;
    const auto& command = std::get<wire::SwitchCommand>(message);
    EXPECT_EQ(command.order, wire::SwitchOrder::kArm);
    EXPECT_EQ(command.from_epoch, 5U);
    EXPECT_EQ(command.epoch, 6U);
    EXPECT_EQ(command.at_step, 77U);
  }));
  EXPECT_EQ(sent, 1);
}

}  // namespace
}  // namespace tapas::daemon
