#include "agent/collect/agent_protocol.h"

#include "wire/record_codec.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace tapas::agent {
namespace {

using namespace std::chrono_literals;
using wire::Phase;
using wire::SwitchOrder;

constexpr std::uint64_t kSession = 5;

LocalRank local_rank(std::uint32_t number, std::uint64_t epoch = 0) {
  LocalRank rank;
  rank.info = {number, std::string(32, 'a'), 100 + number};
  rank.epoch = epoch;
  return rank;
}

/// One agent with its ranks, clock and daemon all in the test's hands.
class AgentProtocolOnOneNode : public testing::Test {
 protected:
  static AgentProtocol::Options options() {
    AgentProtocol::Options options;
    options.node = "n0";
    options.nonce = 512;  // Half of the hello's spread.
    options.answer_timeout = 5s;
    options.phase_timeout = 60s;
    options.order_timeout = 30s;
    options.rehello_spread = 2s;
    options.max_queued_records = 1024;
    return options;
  }

  template <typename T>
  std::vector<T> actions() {
    std::vector<T> found;
    for (const Action& action : pending()) {
      if constexpr (std::is_constructible_v<wire::ToDaemon, T> && !std::is_same_v<T, Notice>) {
        if (const auto* message = std::get_if<wire::ToDaemon>(&action)) {
          if (const auto* typed = std::get_if<T>(message)) {
            found.push_back(*typed);
          }
        }
      } else if (const auto* typed = std::get_if<T>(&action)) {
        found.push_back(*typed);
      }
    }
    return found;
  }
  /// Actions since the last forget(); looking does not remove them.
  const std::vector<Action>& pending() {
    for (Action& action : agent.take_actions()) {
      seen.push_back(std::move(action));
    }
    return seen;
  }
  void forget() {
    pending();
    seen.clear();
  }

  void attach(std::uint32_t ranks, std::uint64_t epoch = 0) {
    for (std::uint32_t i = 0; i < ranks; ++i) {
      ASSERT_TRUE(agent.attach_rank("j", kSession, local_rank(i, epoch), now));
    }
  }
  void welcome(std::uint64_t term = 1) {
    agent.connected(now);
    now += 3s;  // Past any spread.
    agent.tick(now);
    agent.received(wire::Welcome{term, 1.0}, now);
    forget();
  }
  void send_plan(std::uint64_t epoch, bool active, std::uint64_t term = 1) {
    agent.received(wire::PlanChunk{"j", term, epoch, active, 0, 1, "plan"}, now);
  }
  void order(SwitchOrder what, std::uint64_t epoch, std::uint64_t from = 1,
             std::uint64_t term = 1) {
    agent.received(wire::SwitchCommand{what, "j", term, from, epoch, 40, ""}, now);
  }
  void reply(std::uint32_t rank, RankOrder what, std::uint64_t epoch, bool ok = true,
             const std::string& reason = "") {
    RankReply answer;
    answer.rank = rank;
    answer.order = what;
    answer.epoch = epoch;
    answer.ok = ok;
    answer.reason = reason;
    answer.step = 40 + rank;
    answer.bytes = 1000;
    answer.seconds = 1.0 + rank;
    agent.rank_replied("j", answer, now);
  }
  /// Two ranks under epoch 1, welcomed, with the plan of epoch 2 at hand.
  void ready_to_switch() {
    attach(2, 1);
    welcome();
    send_plan(2, false);
    forget();
  }
  void run(SwitchOrder what, std::uint64_t epoch = 2) {
    order(what, epoch);
    for (const std::uint32_t rank : {0U, 1U}) {
      reply(rank, static_cast<RankOrder>(static_cast<int>(what) + 1), epoch);
    }
  }
  void expect_one_vote(Phase phase, bool ok, const std::string& reason = "") {
    const auto votes = actions<wire::Vote>();
    ASSERT_EQ(votes.size(), 1U);
    EXPECT_EQ(votes[0].job, "j");
    EXPECT_EQ(votes[0].phase, phase);
    EXPECT_EQ(votes[0].ok, ok);
    EXPECT_NE(votes[0].reason.find(reason), std::string::npos) << votes[0].reason;
    forget();
  }

  TimePoint now = TimePoint{} + 1h;
  AgentProtocol agent{options()};
  std::vector<Action> seen;
};

TEST_F(AgentProtocolOnOneNode, GreetsWithWhatRunsOnTheNode) {
  attach(2, 4);
  EXPECT_TRUE(actions<wire::Hello>().empty()) << "not before there is a connection";
  agent.connected(now);
  const auto hellos = actions<wire::Hello>();
  ASSERT_EQ(hellos.size(), 1U);
  EXPECT_EQ(hellos[0].node, "n0");
  EXPECT_EQ(hellos[0].nonce, 512U);
  EXPECT_EQ(hellos[0].term, 0U);
  ASSERT_EQ(hellos[0].attachments.size(), 1U);
  EXPECT_EQ(hellos[0].attachments[0].job, "j");
  EXPECT_EQ(hellos[0].attachments[0].session, kSession);
  EXPECT_EQ(hellos[0].attachments[0].epoch, 4U);
  EXPECT_EQ(hellos[0].attachments[0].ranks.size(), 2U);
  EXPECT_EQ(agent.state(), AgentProtocol::State::kGreeting);
}

TEST_F(AgentProtocolOnOneNode, GreetsAgainOnceWhenRanksComeAndGo) {
  welcome();
  attach(3);
  agent.tick(now);
  EXPECT_TRUE(actions<wire::Hello>().empty()) << "waits for the others of the scan";
  now += 200ms;
  agent.tick(now);
  ASSERT_EQ(actions<wire::Hello>().size(), 1U);
  EXPECT_EQ(actions<wire::Hello>()[0].attachments[0].ranks.size(), 3U);
  forget();
  for (std::uint32_t i = 0; i < 3; ++i) {
    agent.detach_rank("j", i, now);
  }
  now += 200ms;
  agent.tick(now);
  ASSERT_EQ(actions<wire::Hello>().size(), 1U);
  EXPECT_TRUE(actions<wire::Hello>()[0].attachments.empty());
}

TEST_F(AgentProtocolOnOneNode, BeatsAtTheIntervalOfTheWelcome) {
  welcome();
  for (int i = 0; i < 5; ++i) {
    now += 1s;
    agent.tick(now);
    agent.received(wire::HeartbeatAck{1}, now);
  }
  EXPECT_EQ(actions<wire::Heartbeat>().size(), 5U);
  EXPECT_TRUE(actions<Reconnect>().empty());
}

TEST_F(AgentProtocolOnOneNode, TellsFindingsWhenTheyChangeAndToEachDaemonAnew) {
  const std::vector<wire::Finding> one = {{"eth0", "no_carrier", "eth0 has no carrier"}};
  welcome();
  EXPECT_TRUE(actions<wire::Findings>().empty()) << "nobody looks";
  agent.set_findings(one);
  agent.set_findings(one);
  ASSERT_EQ(actions<wire::Findings>().size(), 1U);
  EXPECT_EQ(actions<wire::Findings>()[0].findings, one);
  forget();
  agent.disconnected(now);
  agent.set_findings({});
  EXPECT_TRUE(actions<wire::Findings>().empty()) << "there is nobody to tell";
  agent.connected(now);
  now += 3s;
  agent.tick(now);
  agent.received(wire::Welcome{1, 1.0}, now);
  ASSERT_EQ(actions<wire::Findings>().size(), 1U);
  EXPECT_TRUE(actions<wire::Findings>()[0].findings.empty());
  agent.set_findings(std::vector<wire::Finding>(wire::kMaxFindings + 9));
  EXPECT_EQ(actions<wire::Findings>().back().findings.size(), wire::kMaxFindings);
}

TEST_F(AgentProtocolOnOneNode, ReconnectsAfterThreeUnansweredHeartbeats) {
  welcome();
  now += 2900ms;
  agent.tick(now);
  EXPECT_TRUE(actions<Reconnect>().empty());
  now += 200ms;
  agent.tick(now);
  EXPECT_EQ(actions<Reconnect>().size(), 1U);
  EXPECT_EQ(agent.state(), AgentProtocol::State::kDown);
  forget();
  now += 1h;
  agent.tick(now);
  EXPECT_TRUE(pending().empty()) << "and says nothing until it is connected";
}

TEST_F(AgentProtocolOnOneNode, ReconnectsWhenNobodyAnswersTheHello) {
  agent.connected(now);
  now += 4900ms;
  agent.tick(now);
  EXPECT_TRUE(actions<Reconnect>().empty());
  now += 200ms;
  agent.tick(now);
  EXPECT_EQ(actions<Reconnect>().size(), 1U);
}

TEST_F(AgentProtocolOnOneNode, SpreadsTheHelloAfterAnOutage) {
  welcome();
  agent.disconnected(now);
  agent.connected(now);
  EXPECT_TRUE(actions<wire::Hello>().empty());
  EXPECT_EQ(agent.next_wakeup(), now + 1s) << "nonce 512 of 1024 is half of two seconds";
  now += 1s;
  agent.tick(now);
  EXPECT_EQ(actions<wire::Hello>().size(), 1U);
}

TEST_F(AgentProtocolOnOneNode, ComesBackWhenItIsToldTo) {
  agent.connected(now);
  forget();
  agent.received(wire::Reject{"busy", 30.0}, now);
  now += 29s;
  agent.tick(now);
  EXPECT_TRUE(actions<wire::Hello>().empty());
  EXPECT_TRUE(actions<Reconnect>().empty());
  now += 1s;
  agent.tick(now);
  EXPECT_EQ(actions<wire::Hello>().size(), 1U);
}

TEST_F(AgentProtocolOnOneNode, StaysAwayWhenItIsRejected) {
  agent.connected(now);
  forget();
  agent.received(wire::Reject{"node n0 is not in the cluster", 0.0}, now);
  EXPECT_EQ(agent.state(), AgentProtocol::State::kRejected);
  ASSERT_EQ(actions<Notice>().size(), 1U);
  EXPECT_NE(actions<Notice>()[0].text.find("not in the cluster"), std::string::npos);
  forget();
  now += 1h;
  agent.tick(now);
  EXPECT_TRUE(pending().empty());
}

TEST_F(AgentProtocolOnOneNode, RefusesADaemonOfALowerTerm) {
  attach(2, 1);
  welcome(7);
  send_plan(2, true, 6);
  order(SwitchOrder::kAbort, 2, 1, 6);
  agent.received(wire::Welcome{6, 1.0}, now);
  EXPECT_EQ(agent.active_epoch("j"), 1U);
  EXPECT_EQ(agent.term(), 7U);
  EXPECT_TRUE(actions<wire::Vote>().empty());
  EXPECT_TRUE(actions<RankCommand>().empty());
  EXPECT_TRUE(actions<StorePlan>().empty());
  EXPECT_EQ(actions<Notice>().size(), 3U);
  // An older daemon's acknowledgements do not keep the connection either.
  now += 2s;
  agent.received(wire::HeartbeatAck{6}, now);
  now += 1100ms;
  agent.tick(now);
  EXPECT_EQ(actions<Reconnect>().size(), 1U);
}

TEST_F(AgentProtocolOnOneNode, LearnsTheTermFromTheRanksItFinds) {
  LocalRank found = local_rank(0, 4);
  found.term = 7;
  ASSERT_TRUE(agent.attach_rank("j", kSession, found, now));
  agent.connected(now);
  const auto hellos = actions<wire::Hello>();
  ASSERT_EQ(hellos.size(), 1U);
  EXPECT_EQ(hellos[0].term, 7U);
  agent.received(wire::Welcome{6, 1.0}, now);
  EXPECT_EQ(agent.state(), AgentProtocol::State::kGreeting) << "a stale daemon answers first";
  agent.received(wire::Welcome{8, 1.0}, now);
  EXPECT_EQ(agent.state(), AgentProtocol::State::kWelcome);
  forget();
  send_plan(5, true, 8);
  ASSERT_EQ(actions<RankCommand>().size(), 1U);
  EXPECT_EQ(actions<RankCommand>()[0].term, 8U) << "ranks check it, too";
}

TEST_F(AgentProtocolOnOneNode, GreetsADaemonWhoseTermGrew) {
  welcome(1);
  agent.received(wire::HeartbeatAck{2}, now);
  now += 200ms;
  agent.tick(now);
  ASSERT_EQ(actions<wire::Hello>().size(), 1U);
  EXPECT_EQ(actions<wire::Hello>()[0].term, 2U);
}

TEST_F(AgentProtocolOnOneNode, IgnoresOrdersBeforeTheWelcome) {
  attach(1, 1);
  agent.connected(now);
  forget();
  send_plan(2, true);
  EXPECT_EQ(agent.active_epoch("j"), 1U);
  EXPECT_TRUE(actions<StorePlan>().empty());
}

TEST_F(AgentProtocolOnOneNode, AdoptsTheActivePlan) {
  attach(2);
  welcome();
  send_plan(3, true);
  ASSERT_EQ(pending().size(), 4U);
  EXPECT_EQ(std::get<StorePlan>(pending()[0]).text, "plan") << "the text before the orders";
  const auto commands = actions<RankCommand>();
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_EQ(commands[0].order, RankOrder::kAdopt);
  EXPECT_EQ(commands[0].epoch, 3U);
  EXPECT_EQ(commands[1].rank, 1U);
  EXPECT_EQ(agent.active_epoch("j"), 3U);
  forget();
  now += 200ms;
  agent.tick(now);
  ASSERT_EQ(actions<wire::Hello>().size(), 1U);
  EXPECT_EQ(actions<wire::Hello>()[0].attachments[0].epoch, 3U);
  forget();
  send_plan(3, true);
  EXPECT_TRUE(pending().empty()) << "once is enough";
}

TEST_F(AgentProtocolOnOneNode, GivesTheActivePlanToARankThatComesLater) {
  attach(1, 3);
  welcome();
  ASSERT_TRUE(agent.attach_rank("j", kSession, local_rank(1), now));
  const auto commands = actions<RankCommand>();
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(commands[0].rank, 1U);
  EXPECT_EQ(commands[0].order, RankOrder::kAdopt);
  EXPECT_EQ(commands[0].epoch, 3U);
}

TEST_F(AgentProtocolOnOneNode, RefusesPlansThatAreNotNewerOrNotItsOwn) {
  attach(1, 5);
  welcome();
  send_plan(4, true);
  send_plan(5, false);
  agent.received(wire::PlanChunk{"other", 1, 9, true, 0, 1, "plan"}, now);
  agent.received(wire::PlanChunk{"j", 1, 6, true, 1, 2, "plan"}, now);
  EXPECT_EQ(agent.active_epoch("j"), 5U);
  EXPECT_TRUE(actions<StorePlan>().empty());
  EXPECT_TRUE(actions<RankCommand>().empty());
  EXPECT_EQ(actions<Notice>().size(), 4U);
}

TEST_F(AgentProtocolOnOneNode, SwitchesWhenAllRanksFollow) {
  ready_to_switch();
  const Phase phases[] = {Phase::kPrepared, Phase::kArmed, Phase::kTransferred, Phase::kCommitted};
  const SwitchOrder orders[] = {SwitchOrder::kPrepare, SwitchOrder::kArm, SwitchOrder::kTransfer,
                                SwitchOrder::kCommit};
  for (int i = 0; i < 4; ++i) {
    order(orders[i], 2);
    const auto commands = actions<RankCommand>();
    ASSERT_EQ(commands.size(), 2U);
    EXPECT_EQ(static_cast<int>(commands[0].order), i + 1);
    EXPECT_EQ(commands[0].at_step, 40U);
    EXPECT_EQ(commands[0].from_epoch, 1U);
    EXPECT_EQ(agent.active_epoch("j"), 1U);
    EXPECT_EQ(agent.pending_epoch("j"), 2U);
    reply(0, commands[0].order, 2);
    EXPECT_TRUE(actions<wire::Vote>().empty()) << "one rank is not all";
    reply(1, commands[1].order, 2);
    const auto votes = actions<wire::Vote>();
    ASSERT_EQ(votes.size(), 1U);
    EXPECT_EQ(votes[0].phase, phases[i]);
    EXPECT_TRUE(votes[0].ok);
    EXPECT_EQ(votes[0].epoch, 2U);
    EXPECT_EQ(votes[0].step, 41U) << "the furthest rank";
    EXPECT_EQ(votes[0].bytes, 2000U) << "of both ranks";
    EXPECT_EQ(votes[0].seconds, 2.0) << "the slowest rank";
    forget();
  }
  EXPECT_EQ(agent.active_epoch("j"), 2U);
  EXPECT_EQ(agent.pending_epoch("j"), 0U);
}

TEST_F(AgentProtocolOnOneNode, KeepsTheOldEpochWhenAbortedAnywhere) {
  ready_to_switch();
  std::uint64_t epoch = 2;
  for (int done = 0; done <= 3; ++done, ++epoch) {
    send_plan(epoch, false);
    for (int i = 0; i < done; ++i) {
      run(static_cast<SwitchOrder>(i), epoch);
    }
    EXPECT_EQ(actions<wire::Vote>().size(), static_cast<std::size_t>(done));
    forget();
    order(SwitchOrder::kAbort, epoch);
    EXPECT_EQ(actions<RankCommand>().size(), done > 0 ? 2U : 0U);
    reply(0, RankOrder::kAbort, epoch);
    reply(1, RankOrder::kAbort, epoch);
    expect_one_vote(Phase::kAborted, true);
    EXPECT_EQ(agent.active_epoch("j"), 1U) << done;
    EXPECT_EQ(agent.pending_epoch("j"), 0U) << done;
  }
}

TEST_F(AgentProtocolOnOneNode, AbortsWhileRanksStillWorkOnAnOrder) {
  ready_to_switch();
  run(SwitchOrder::kPrepare);
  order(SwitchOrder::kArm, 2);
  reply(0, RankOrder::kArm, 2);
  forget();
  order(SwitchOrder::kAbort, 2);
  reply(1, RankOrder::kArm, 2);  // Its answer crossed the abort.
  EXPECT_TRUE(actions<wire::Vote>().empty());
  reply(0, RankOrder::kAbort, 2);
  reply(1, RankOrder::kAbort, 2);
  expect_one_vote(Phase::kAborted, true);
  EXPECT_EQ(agent.pending_epoch("j"), 0U);
}

TEST_F(AgentProtocolOnOneNode, VotesNoWithTheRanksReason) {
  ready_to_switch();
  order(SwitchOrder::kPrepare, 2);
  reply(0, RankOrder::kPrepare, 2, false, "needs 43 GB of 40 GB");
  reply(1, RankOrder::kPrepare, 2);
  expect_one_vote(Phase::kPrepared, false, "rank 0: needs 43 GB of 40 GB");
  order(SwitchOrder::kArm, 2);
  expect_one_vote(Phase::kArmed, false, "not all ranks carried out the order before arm");
  EXPECT_TRUE(actions<RankCommand>().empty());
}

TEST_F(AgentProtocolOnOneNode, RefusesOrdersOutOfTurn) {
  ready_to_switch();
  order(SwitchOrder::kTransfer, 2);
  expect_one_vote(Phase::kTransferred, false, "before transfer");
  order(SwitchOrder::kCommit, 2);
  expect_one_vote(Phase::kCommitted, false, "before commit");
  order(SwitchOrder::kPrepare, 3);
  expect_one_vote(Phase::kPrepared, false, "plan of epoch 3 did not arrive");
  order(SwitchOrder::kPrepare, 1);
  expect_one_vote(Phase::kPrepared, false, "not above the active epoch 1");
  order(SwitchOrder::kPrepare, 2, 9);
  expect_one_vote(Phase::kPrepared, false, "starts from epoch 9");
  order(SwitchOrder::kPrepare, 2);
  forget();
  order(SwitchOrder::kArm, 2);
  expect_one_vote(Phase::kArmed, false, "prepare of epoch 2 is still under way");
  run(SwitchOrder::kPrepare);
  send_plan(3, false);
  forget();
  order(SwitchOrder::kPrepare, 3);
  expect_one_vote(Phase::kPrepared, false, "switch to epoch 2 is under way");
  order(SwitchOrder::kAbort, 1);
  expect_one_vote(Phase::kAborted, false, "not above the active epoch 1");
  EXPECT_EQ(agent.active_epoch("j"), 1U);
}

TEST_F(AgentProtocolOnOneNode, AnswersARepeatedOrderWithTheSameVote) {
  ready_to_switch();
  run(SwitchOrder::kPrepare);
  const auto first = actions<wire::Vote>();
  forget();
  order(SwitchOrder::kPrepare, 2);
  EXPECT_TRUE(actions<RankCommand>().empty());
  const auto second = actions<wire::Vote>();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].step, first[0].step);
  EXPECT_EQ(second[0].bytes, first[0].bytes);
  run(SwitchOrder::kArm);
  forget();
  order(SwitchOrder::kPrepare, 2);
  EXPECT_TRUE(actions<RankCommand>().empty()) << "armed ranks are not sent back";
  expect_one_vote(Phase::kPrepared, true);
  run(SwitchOrder::kTransfer);
  run(SwitchOrder::kCommit);
  forget();
  order(SwitchOrder::kCommit, 2);
  EXPECT_TRUE(actions<RankCommand>().empty());
  expect_one_vote(Phase::kCommitted, true);
}

TEST_F(AgentProtocolOnOneNode, AnswersForJobsThatAreNotHere) {
  welcome();
  order(SwitchOrder::kPrepare, 2);
  expect_one_vote(Phase::kPrepared, false, "no rank of job j runs on node n0");
  order(SwitchOrder::kAbort, 2);
  expect_one_vote(Phase::kAborted, true);
}

TEST_F(AgentProtocolOnOneNode, VotesNoWhenARankLeaves) {
  ready_to_switch();
  order(SwitchOrder::kPrepare, 2);
  reply(0, RankOrder::kPrepare, 2);
  forget();
  agent.detach_rank("j", 1, now);
  expect_one_vote(Phase::kPrepared, false, "rank 1 left");
}

TEST_F(AgentProtocolOnOneNode, VotesNoWhenRanksDoNotAnswerInTime) {
  ready_to_switch();
  order(SwitchOrder::kPrepare, 2);
  reply(0, RankOrder::kPrepare, 2);
  EXPECT_LE(agent.next_wakeup(), now + 60s);
  now += 61s;
  agent.tick(now);
  // The heartbeats were not answered meanwhile, so the vote waits for the next welcome.
  EXPECT_TRUE(actions<wire::Vote>().empty());
  agent.connected(now);
  now += 2s;
  agent.tick(now);
  agent.received(wire::Welcome{1, 1.0}, now);
  expect_one_vote(Phase::kPrepared, false, "first is rank 1");
}

TEST_F(AgentProtocolOnOneNode, AbortsASwitchThatTheDaemonForgot) {
  ready_to_switch();
  run(SwitchOrder::kPrepare);
  run(SwitchOrder::kArm);
  agent.disconnected(now);
  forget();
  now += 31s;
  agent.tick(now);
  const auto commands = actions<RankCommand>();
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_EQ(commands[0].order, RankOrder::kAbort);
  reply(0, RankOrder::kAbort, 2);
  reply(1, RankOrder::kAbort, 2);
  EXPECT_EQ(agent.pending_epoch("j"), 0U);
  EXPECT_EQ(agent.active_epoch("j"), 1U);
  agent.connected(now);
  now += 2s;
  agent.tick(now);
  forget();
  agent.received(wire::Welcome{2, 1.0}, now);
  expect_one_vote(Phase::kAborted, true, "no order from the daemon for 30 s");
}

TEST_F(AgentProtocolOnOneNode, WaitsForTheDecisionOnceItVotedTransferred) {
  ready_to_switch();
  run(SwitchOrder::kPrepare);
  run(SwitchOrder::kArm);
  run(SwitchOrder::kTransfer);
  agent.disconnected(now);
  forget();
  now += 24h;
  agent.tick(now);
  EXPECT_TRUE(actions<RankCommand>().empty());
  EXPECT_EQ(agent.pending_epoch("j"), 2U);
  // The daemon comes back; it had committed and says so by its active plan.
  agent.connected(now);
  now += 2s;
  agent.tick(now);
  ASSERT_EQ(actions<wire::Hello>().size(), 1U);
  EXPECT_EQ(actions<wire::Hello>()[0].attachments[0].pending_epoch, 2U);
  forget();
  agent.received(wire::Welcome{2, 1.0}, now);
  expect_one_vote(Phase::kTransferred, true);
  send_plan(2, true, 2);
  const auto commands = actions<RankCommand>();
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_EQ(commands[0].order, RankOrder::kCommit);
  reply(0, RankOrder::kCommit, 2);
  reply(1, RankOrder::kCommit, 2);
  EXPECT_EQ(agent.active_epoch("j"), 2U);
}

TEST_F(AgentProtocolOnOneNode, TakesOverASwitchFromAnAgentThatDied) {
  for (const std::uint32_t number : {0U, 1U}) {
    LocalRank rank = local_rank(number, 1);
    rank.pending_epoch = 2;
    rank.done = RankOrder::kTransfer;
    ASSERT_TRUE(agent.attach_rank("j", kSession, rank, now));
  }
  welcome();
  EXPECT_EQ(agent.pending_epoch("j"), 2U);
  now += 1h;
  agent.tick(now);
  EXPECT_TRUE(actions<RankCommand>().empty()) << "the one before may have voted transferred";
  welcome();
  run(SwitchOrder::kCommit);
  expect_one_vote(Phase::kCommitted, true);
  EXPECT_EQ(agent.active_epoch("j"), 2U);
}

TEST_F(AgentProtocolOnOneNode, FinishesACommitThatReachedOnlySomeRanks) {
  LocalRank behind = local_rank(0, 1);
  behind.pending_epoch = 2;
  behind.done = RankOrder::kTransfer;
  ASSERT_TRUE(agent.attach_rank("j", kSession, behind, now));
  ASSERT_TRUE(agent.attach_rank("j", kSession, local_rank(1, 2), now));
  const auto commands = actions<RankCommand>();
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(commands[0].rank, 0U);
  EXPECT_EQ(commands[0].order, RankOrder::kCommit);
  EXPECT_EQ(agent.active_epoch("j"), 2U);
  EXPECT_EQ(agent.pending_epoch("j"), 0U);
}

TEST_F(AgentProtocolOnOneNode, CommitsWhateverARankMakesOfIt) {
  ready_to_switch();
  run(SwitchOrder::kPrepare);
  run(SwitchOrder::kArm);
  run(SwitchOrder::kTransfer);
  forget();
  order(SwitchOrder::kCommit, 2);
  reply(0, RankOrder::kCommit, 2);
  reply(1, RankOrder::kCommit, 2, false, "broken");
  expect_one_vote(Phase::kCommitted, false, "rank 1: broken");
  EXPECT_EQ(agent.active_epoch("j"), 2U);
}

TEST_F(AgentProtocolOnOneNode, KeepsNonsenseOfARankOutOfItsVote) {
  ready_to_switch();
  order(SwitchOrder::kPrepare, 2);
  for (const std::uint32_t rank : {0U, 1U}) {
    RankReply nonsense;
    nonsense.rank = rank;
    nonsense.order = RankOrder::kPrepare;
    nonsense.epoch = 2;
    nonsense.step = nonsense.bytes = std::numeric_limits<std::uint64_t>::max();
    nonsense.seconds = rank == 0 ? std::nan("") : -1.0;
    agent.rank_replied("j", nonsense, now);
  }
  const auto votes = actions<wire::Vote>();
  ASSERT_EQ(votes.size(), 1U);
  EXPECT_EQ(votes[0].step, wire::kMaxCounter);
  EXPECT_EQ(votes[0].bytes, wire::kMaxCounter);
  EXPECT_EQ(votes[0].seconds, 0.0);
}

TEST_F(AgentProtocolOnOneNode, IgnoresRepliesThatNobodyWaitsFor) {
  ready_to_switch();
  reply(0, RankOrder::kArm, 9);
  reply(7, RankOrder::kPrepare, 2);
  agent.rank_replied("other", {}, now);
  order(SwitchOrder::kPrepare, 2);
  reply(0, RankOrder::kArm, 2);
  reply(0, RankOrder::kPrepare, 3);
  reply(0, RankOrder::kPrepare, 2);
  reply(0, RankOrder::kPrepare, 2);
  EXPECT_TRUE(actions<wire::Vote>().empty()) << "rank 1 has not answered";
}

TEST_F(AgentProtocolOnOneNode, BoundsJobsAndRanks) {
  for (std::uint32_t i = 0; i < wire::kMaxRanksPerAttachment; ++i) {
    EXPECT_TRUE(agent.attach_rank("j", kSession, local_rank(i), now));
  }
  EXPECT_FALSE(agent.attach_rank("j", kSession, local_rank(64), now));
  EXPECT_FALSE(agent.attach_rank("j", kSession + 1, local_rank(0), now));
  for (std::size_t i = 1; i < wire::kMaxAttachments; ++i) {
    EXPECT_TRUE(agent.attach_rank("j" + std::to_string(i), kSession, local_rank(0), now));
  }
  EXPECT_FALSE(agent.attach_rank("one-more", kSession, local_rank(0), now));
  EXPECT_EQ(agent.rank_count(), 71U);
}

std::vector<std::byte> records(std::size_t count) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    wire::append_record(wire::StepRecord{}, bytes);
  }
  return bytes;
}

TEST_F(AgentProtocolOnOneNode, SendsRecordsInBatches) {
  agent.queue_records(records(1), now);
  now += 1s;
  EXPECT_FALSE(agent.next_telemetry(now)) << "not before the welcome";
  welcome();
  agent.queue_records(records(3), now);
  auto telemetry = agent.next_telemetry(now);
  ASSERT_TRUE(telemetry) << "the first has waited long enough";
  EXPECT_EQ(telemetry->records.size(), 4 * wire::kRecordBytes);
  agent.queue_records(records(1), now);
  EXPECT_FALSE(agent.next_telemetry(now)) << "waits for others to go with";
  EXPECT_LE(agent.next_wakeup(), now + 200ms);
  agent.queue_records(records(600), now);
  telemetry = agent.next_telemetry(now);
  ASSERT_TRUE(telemetry) << "a full batch goes at once";
  EXPECT_EQ(telemetry->records.size(), wire::kMaxTelemetryBytes);
  EXPECT_EQ(agent.records_sent(), 516U);
}

TEST_F(AgentProtocolOnOneNode, SpreadsItsBatchesByItsNonce) {
  welcome();
  for (int i = 0; i < 3; ++i) {
    agent.queue_records(records(1), now);
    const TimePoint due = agent.next_wakeup();
    EXPECT_GT(due, now);
    EXPECT_LE(due, now + 200ms);
    EXPECT_NEAR(static_cast<double>((due.time_since_epoch() % 200ms).count()), 100e6, 1e3)
        << "nonce 512 of 1024 is half of the interval";
    EXPECT_TRUE(agent.next_telemetry(due));
    now = due + 37ms;
  }
}

TEST_F(AgentProtocolOnOneNode, CountsLostRecordsInTheHeartbeat) {
  agent.queue_records(records(1024 + 5), now);
  agent.count_dropped(7);
  welcome();
  now += 1s;
  agent.tick(now);
  ASSERT_EQ(actions<wire::Heartbeat>().size(), 1U);
  EXPECT_EQ(actions<wire::Heartbeat>()[0].records_dropped, 12U);
}

TEST_F(AgentProtocolOnOneNode, GreetsAgainNowAndThen) {
  attach(1);
  welcome();
  for (int i = 0; i < 61; ++i) {
    now += 1s;
    agent.tick(now);
    agent.received(wire::HeartbeatAck{1}, now);
  }
  EXPECT_EQ(actions<wire::Hello>().size(), 1U);
}

TEST_F(AgentProtocolOnOneNode, AnAbortedSwitchDoesNotBeginAgain) {
  ready_to_switch();
  run(SwitchOrder::kPrepare);
  run(SwitchOrder::kAbort);
  forget();
  order(SwitchOrder::kPrepare, 2);
  expect_one_vote(Phase::kPrepared, false, "the switch to epoch 2 is over");
  EXPECT_TRUE(actions<RankCommand>().empty());
  // Also when ABORT overtakes PREPARE.
  order(SwitchOrder::kAbort, 4);
  send_plan(4, false);
  forget();
  order(SwitchOrder::kPrepare, 4);
  expect_one_vote(Phase::kPrepared, false, "the switch to epoch 4 is over");
}

TEST_F(AgentProtocolOnOneNode, AnOldPlanIsRefusedAlsoForRanksThatCameAnew) {
  attach(1, 4);
  welcome();
  agent.detach_rank("j", 0, now);
  ASSERT_TRUE(agent.attach_rank("j", kSession + 1, local_rank(0), now));
  forget();
  send_plan(2, true);
  EXPECT_EQ(agent.active_epoch("j"), 0U);
  EXPECT_TRUE(actions<RankCommand>().empty());
  send_plan(4, true);
  EXPECT_EQ(agent.active_epoch("j"), 4U);
}

TEST_F(AgentProtocolOnOneNode, ThePlanThatIsBeingCommittedIsNotCommittedTwice) {
  ready_to_switch();
  for (const auto what : {SwitchOrder::kPrepare, SwitchOrder::kArm, SwitchOrder::kTransfer}) {
    run(what);
  }
  order(SwitchOrder::kCommit, 2);
  forget();
  send_plan(2, true);
  EXPECT_TRUE(actions<RankCommand>().empty());
  reply(0, RankOrder::kCommit, 2);
  reply(1, RankOrder::kCommit, 2);
  EXPECT_EQ(agent.active_epoch("j"), 2U);
}

}  // namespace
}  // namespace tapas::agent
