#include "daemon/core/switch_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tapas::daemon {
namespace {

using Stage = SwitchMachine::Stage;
using Outcome = SwitchMachine::Outcome;

class Bench {
 public:
  Bench() {
    auto from = std::make_shared<solver::Plan>();
    from->epoch = Epoch(3);
    auto to = std::make_shared<solver::Plan>();
    to->epoch = Epoch(5);
    to->parent = Epoch(3);
    task = {"job", Term(2), from, to, "slow node a", {"a", "b", "c"}};
    machine.begin(task, {}, env());
  }
  SwitchMachine::Env env() { return {config, *out, 100, 4}; }
  Outcome stored(bool ok = true) {
    return machine.stored({last_write, ok ? Result<void>{} : fail(ErrorCode::kIo, "disk full")},
                          env());
  }
  Outcome vote(const std::string& node, SwitchPhase phase, bool ok = true, std::uint64_t step = 0) {
    bool known = false;
    const Outcome outcome = machine.vote(
        {node, "job", Epoch(5), phase, ok, ok ? "" : "no memory", step, 10, 0.5}, env(), known);
    EXPECT_TRUE(known);
    return outcome;
  }
  Outcome all_vote(SwitchPhase phase) {
    Outcome outcome = Outcome::kNone;
    for (const std::string node : {"a", "b", "c"}) {
      outcome = vote(node, phase);
    }
    return outcome;
  }
  void to_transferring() {
    EXPECT_EQ(stored(), Outcome::kNone);
    all_vote(SwitchPhase::kPrepared);
    all_vote(SwitchPhase::kArmed);
  }
  void pass(double seconds) {
    now.steady += std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds));
    actions();
    out.emplace(now, last_write);
  }
  std::vector<Action> actions() { return out->take(); }
  /// Orders of one kind sent since the last look.
  std::vector<SwitchMessage> orders(SwitchOrder order) {
    std::vector<SwitchMessage> found;
    for (const Action& action : actions()) {
      if (const auto* send = std::get_if<SendToAgent>(&action)) {
        if (const auto* message = std::get_if<SwitchMessage>(&send->message);
            message != nullptr && message->order == order) {
          found.push_back(*message);
        }
      }
    }
    return found;
  }
  std::vector<SwitchState> states_written() {
    std::vector<SwitchState> found;
    for (const Action& action : actions()) {
      if (const auto* write = std::get_if<StoreWrite>(&action)) {
        for (const StoreRow& row : write->rows) {
          if (const auto* change = std::get_if<SwitchRow>(&row)) {
            found.push_back(change->state);
          }
        }
      }
    }
    return found;
  }

  CoreConfig config;
  Now now;
  std::uint64_t last_write = 0;
  std::optional<Outbox> out{std::in_place, now, last_write};
  SwitchMachine machine;
  SwitchTask task;
};

TEST(SwitchMachine, GoesThroughItsPhasesAndDecidesBeforeItTellsAnybody) {
  Bench bench;
  EXPECT_TRUE(bench.orders(SwitchOrder::kPrepare).empty());
  EXPECT_EQ(bench.stored(), Outcome::kNone);
  EXPECT_EQ(bench.orders(SwitchOrder::kPrepare).size(), 3U);
  bench.all_vote(SwitchPhase::kPrepared);
  const auto arms = bench.orders(SwitchOrder::kArm);
  ASSERT_EQ(arms.size(), 3U);
  EXPECT_EQ(arms[0].at_step, 104U);
  EXPECT_EQ(arms[0].from, Epoch(3));
  bench.all_vote(SwitchPhase::kArmed);
  EXPECT_EQ(bench.orders(SwitchOrder::kTransfer).size(), 3U);
  EXPECT_EQ(bench.all_vote(SwitchPhase::kTransferred), Outcome::kNone);
  EXPECT_EQ(bench.machine.stage(), Stage::kDeciding);
  EXPECT_EQ(bench.states_written(), (std::vector<SwitchState>{SwitchState::kCommitDecided}));
  EXPECT_EQ(bench.stored(), Outcome::kCommitDecided);
  EXPECT_EQ(bench.orders(SwitchOrder::kCommit).size(), 3U);
  EXPECT_EQ(bench.all_vote(SwitchPhase::kCommitted), Outcome::kDone);
  EXPECT_TRUE(bench.machine.idle());
  EXPECT_EQ(bench.machine.bytes(), 30);
  EXPECT_NEAR(bench.machine.pause_s(), 1.0, 1e-9);
}

TEST(SwitchMachine, AnyRefusalBeforeTheDecisionAborts) {
  Bench bench;
  static_cast<void>(bench.stored());
  static_cast<void>(bench.vote("a", SwitchPhase::kPrepared));
  bench.actions();
  EXPECT_EQ(bench.vote("b", SwitchPhase::kPrepared, false), Outcome::kNone);
  EXPECT_EQ(bench.machine.stage(), Stage::kAborting);
  EXPECT_EQ(bench.orders(SwitchOrder::kAbort).size(), 3U);
  EXPECT_EQ(bench.all_vote(SwitchPhase::kAborted), Outcome::kAborted);
  EXPECT_TRUE(bench.machine.idle());
  EXPECT_FALSE(bench.machine.armed_too_late());
}

TEST(SwitchMachine, TellsWhenTheArmedStepHadPassed) {
  Bench bench;
  static_cast<void>(bench.stored());
  bench.all_vote(SwitchPhase::kPrepared);
  EXPECT_EQ(bench.vote("c", SwitchPhase::kArmed, false, 105), Outcome::kNone);
  EXPECT_TRUE(bench.machine.armed_too_late());
}

TEST(SwitchMachine, ArmsBeyondTheLastStepThatAnAgentReports) {
  Bench bench;
  static_cast<void>(bench.stored());
  static_cast<void>(bench.vote("a", SwitchPhase::kPrepared, true, 107));
  static_cast<void>(bench.vote("b", SwitchPhase::kPrepared));
  static_cast<void>(bench.vote("c", SwitchPhase::kPrepared));
  EXPECT_EQ(bench.orders(SwitchOrder::kArm)[0].at_step, 111U);
}

TEST(SwitchMachine, DeadlinesAndLostAgentsAbortBeforeTheDecision) {
  Bench late;
  static_cast<void>(late.stored());
  late.pass(29);
  EXPECT_EQ(late.machine.tick(late.env()), Outcome::kNone);
  EXPECT_EQ(late.machine.stage(), Stage::kPreparing);
  late.pass(2);
  EXPECT_EQ(late.machine.tick(late.env()), Outcome::kNone);
  EXPECT_EQ(late.machine.stage(), Stage::kAborting);
  EXPECT_NE(late.machine.abort_reason().find("a, b, c"), std::string::npos);
  late.pass(31);
  EXPECT_EQ(late.machine.tick(late.env()), Outcome::kAborted);

  Bench lost;
  lost.to_transferring();
  EXPECT_EQ(lost.machine.agent_lost("b", lost.env()), Outcome::kNone);
  EXPECT_EQ(lost.machine.stage(), Stage::kAborting);
  EXPECT_EQ(lost.vote("a", SwitchPhase::kAborted), Outcome::kNone);
  EXPECT_EQ(lost.vote("c", SwitchPhase::kAborted), Outcome::kAborted);
}

TEST(SwitchMachine, AfterTheDecisionThereIsOnlyForward) {
  Bench bench;
  bench.to_transferring();
  bench.all_vote(SwitchPhase::kTransferred);
  EXPECT_EQ(bench.machine.agent_lost("b", bench.env()), Outcome::kNone);
  EXPECT_EQ(bench.machine.abort("operator", bench.env()), Outcome::kNone);
  EXPECT_EQ(bench.machine.stage(), Stage::kDeciding);
  EXPECT_EQ(bench.stored(), Outcome::kCommitDecided);
  static_cast<void>(bench.vote("a", SwitchPhase::kCommitted, false));
  EXPECT_EQ(bench.machine.stage(), Stage::kCommitting);
  bench.actions();
  JobAttachment behind{"job", 1, Epoch(3), Epoch(5), {}};
  EXPECT_EQ(bench.machine.hello("b", &behind, true, bench.env()), Outcome::kNone);
  EXPECT_EQ(bench.orders(SwitchOrder::kCommit).size(), 1U);
  static_cast<void>(bench.vote("b", SwitchPhase::kCommitted));
  JobAttachment there{"job", 1, Epoch(5), Epoch{}, {}};
  EXPECT_EQ(bench.machine.hello("c", &there, true, bench.env()), Outcome::kDone);
}

TEST(SwitchMachine, AStoreThatRefusesTheDecisionAborts) {
  Bench bench;
  bench.to_transferring();
  bench.all_vote(SwitchPhase::kTransferred);
  bench.actions();
  EXPECT_EQ(bench.stored(false), Outcome::kNone);
  EXPECT_EQ(bench.machine.stage(), Stage::kAborting);
  EXPECT_TRUE(bench.orders(SwitchOrder::kCommit).empty());

  Bench early;
  EXPECT_EQ(early.stored(false), Outcome::kAborted);
  EXPECT_TRUE(early.machine.idle());
}

TEST(SwitchMachine, ARestartedAgentBeforeTheDecisionAborts) {
  Bench bench;
  static_cast<void>(bench.stored());
  JobAttachment fresh{"job", 1, Epoch(3), Epoch{}, {}};
  EXPECT_EQ(bench.machine.hello("a", &fresh, false, bench.env()), Outcome::kNone);
  EXPECT_EQ(bench.machine.stage(), Stage::kPreparing);
  EXPECT_EQ(bench.machine.hello("a", &fresh, true, bench.env()), Outcome::kNone);
  EXPECT_EQ(bench.machine.stage(), Stage::kAborting);
}

TEST(SwitchMachine, SilentAgentsDoNotHoldADecidedSwitchOpenForever) {
  Bench bench;
  bench.to_transferring();
  bench.all_vote(SwitchPhase::kTransferred);
  EXPECT_EQ(bench.stored(), Outcome::kCommitDecided);
  static_cast<void>(bench.vote("a", SwitchPhase::kCommitted));
  Outcome outcome = Outcome::kNone;
  for (int i = 0; i < 4 && outcome == Outcome::kNone; ++i) {
    bench.pass(31);
    outcome = bench.machine.tick(bench.env());
  }
  EXPECT_EQ(outcome, Outcome::kDone);
}

TEST(SwitchMachine, VotesOfOtherSwitchesAndStrangersAreNotKnown) {
  Bench bench;
  static_cast<void>(bench.stored());
  bool known = true;
  static_cast<void>(bench.machine.vote(
      {"a", "job", Epoch(4), SwitchPhase::kPrepared, true, "", 0, 0, 0}, bench.env(), known));
  EXPECT_FALSE(known);
  static_cast<void>(bench.machine.vote(
      {"z", "job", Epoch(5), SwitchPhase::kPrepared, true, "", 0, 0, 0}, bench.env(), known));
  EXPECT_FALSE(known);
}

TEST(SwitchMachine, RanksThatLeaveItAfterTheirVoteAbortIt) {
  const auto hello = [](Bench& bench, Epoch pending) {
    const JobAttachment attachment{"job", 1, Epoch(3), pending, {}};
    return bench.machine.hello("b", &attachment, false, bench.env());
  };
  Bench early;
  early.stored();
  EXPECT_EQ(hello(early, Epoch{}), Outcome::kNone) << "PREPARE may still be on its way";
  EXPECT_EQ(early.machine.stage(), Stage::kPreparing);
  early.vote("b", SwitchPhase::kPrepared);
  hello(early, Epoch(5));
  EXPECT_EQ(early.machine.stage(), Stage::kPreparing);
  hello(early, Epoch{});
  EXPECT_EQ(early.machine.stage(), Stage::kAborting);

  Bench late;
  late.to_transferring();
  EXPECT_EQ(late.machine.hello("c", nullptr, false, late.env()), Outcome::kNone);
  EXPECT_EQ(late.machine.stage(), Stage::kAborting);
  EXPECT_NE(late.machine.abort_reason().find("left the switch"), std::string::npos);
}

TEST(SwitchMachine, RanksThatLeaveItWhileItIsDecidedGetNoCommit) {
  Bench bench;
  bench.to_transferring();
  bench.all_vote(SwitchPhase::kTransferred);
  ASSERT_EQ(bench.machine.stage(), Stage::kDeciding);
  const JobAttachment attachment{"job", 2, Epoch{}, Epoch{}, {}};
  EXPECT_EQ(bench.machine.hello("b", &attachment, false, bench.env()), Outcome::kNone);
  bench.actions();
  EXPECT_EQ(bench.stored(), Outcome::kCommitDecided);
  EXPECT_EQ(bench.machine.strays(), std::set<std::string>{"b"});
  const auto commits = bench.orders(SwitchOrder::kCommit);
  ASSERT_EQ(commits.size(), 2U);
  bench.vote("a", SwitchPhase::kCommitted);
  EXPECT_EQ(bench.vote("c", SwitchPhase::kCommitted), Outcome::kDone);
}

TEST(SwitchMachine, WhatBecomesTrueWithTheDecisionIsStoredWithIt) {
  Bench bench;
  bench.to_transferring();
  bench.actions();
  const auto rows = [] { return std::vector<StoreRow>{LossRow{"job", 0, 7, 0}}; };
  bool known = false;
  for (const std::string node : {"a", "b", "c"}) {
    SwitchMachine::Env env = bench.env();
    env.decision_rows = rows;
    static_cast<void>(bench.machine.vote(
        {node, "job", Epoch(5), SwitchPhase::kTransferred, true, "", 0, 10, 0.5}, env, known));
  }
  std::size_t writes = 0;
  for (const Action& action : bench.actions()) {
    if (const auto* write = std::get_if<StoreWrite>(&action);
        write != nullptr && write->write != 0) {
      ++writes;
      const auto& all = write->rows;
      EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const StoreRow& row) {
        return std::holds_alternative<LossRow>(row);
      }));
      EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const StoreRow& row) {
        const auto* change = std::get_if<SwitchRow>(&row);
        return change != nullptr && change->state == SwitchState::kCommitDecided;
      }));
    }
  }
  EXPECT_EQ(writes, 1U);
}

}  // namespace
}  // namespace tapas::daemon
