#include "agent/collect/rank_directory.h"

#include "agent/rank/tapas_rank.h"
#include "base/ids.h"
#include "temporary_folder.h"
#include "wire/record.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tapas::agent {
namespace {

using namespace std::chrono_literals;

struct CloseRank {
  void operator()(tapas_rank* rank) const { tapas_rank_close(rank); }
};
using RankHandle = std::unique_ptr<tapas_rank, CloseRank>;

class RankDirectoryOfOneNode : public testing::Test {
 protected:
  RankHandle open_rank(std::uint32_t number, std::uint64_t session = 1) {
    tapas_rank_options options = {};
    options.abi = TAPAS_RANK_ABI;
    options.rank = number;
    options.job = "gpt3";
    options.node = "n0";
    options.session = session;
    options.dir = folder.path().c_str();
    tapas_rank* rank = nullptr;
    EXPECT_EQ(tapas_rank_open(&options, &rank), 0);
    return RankHandle(rank);
  }

  static void record(const RankHandle& rank, std::uint64_t step) {
    tapas_step_record record = {};
    record.step = step;
    EXPECT_EQ(tapas_rank_record(rank.get(), &record), 1);
  }

  /// A rank that NCCL's plugin observes: the same file under the plugin's name.
  RankHandle open_observer(std::uint32_t number) {
    RankHandle rank = open_rank(number);
    const std::string job = fmt::format("{:016x}.{}", name_hash("gpt3"), number);
    std::filesystem::rename(folder.file("tapas-rank." + job), folder.file("tapas-nccl." + job));
    return rank;
  }

  /// Connects and welcomes the agent, so that telemetry flows.
  void welcome() {
    protocol.connected(now);
    protocol.received(wire::Welcome{1, 1.0}, now);
    static_cast<void>(protocol.take_actions());
  }

  std::size_t records_sent() {
    now += 1s;
    const auto telemetry = protocol.next_telemetry(now);
    return telemetry ? telemetry->records.size() / wire::kRecordBytes : 0;
  }

  static AgentProtocol::Options options() {
    AgentProtocol::Options options;
    options.node = "n0";
    return options;
  }

  TemporaryFolder folder;
  TimePoint now = TimePoint{} + 1h;
  AgentProtocol protocol{options()};
  RankDirectory directory{folder.path(), "n0", protocol};
};

TEST_F(RankDirectoryOfOneNode, FindsRanksAndReadsThem) {
  const RankHandle first = open_rank(0);
  const RankHandle second = open_rank(1);
  record(first, 1);
  record(second, 1);
  welcome();
  directory.scan(now);
  EXPECT_EQ(protocol.rank_count(), 2U);
  directory.poll(now);
  EXPECT_EQ(records_sent(), 2U);
}

TEST_F(RankDirectoryOfOneNode, ReadsTheLastRecordsOfARankThatLeft) {
  RankHandle rank = open_rank(0);
  welcome();
  directory.scan(now);
  record(rank, 1);
  rank.reset();
  directory.scan(now);
  EXPECT_EQ(protocol.rank_count(), 0U);
  EXPECT_EQ(records_sent(), 1U);
  EXPECT_EQ(folder.count(), 0U);
}

TEST_F(RankDirectoryOfOneNode, CleansUpRanksThatDiedWhileNoAgentRan) {
  RankHandle rank = open_rank(0);
  record(rank, 1);
  rank.reset();
  ASSERT_EQ(folder.count(), 1U);
  welcome();
  directory.scan(now);
  EXPECT_EQ(protocol.rank_count(), 0U);
  EXPECT_EQ(records_sent(), 1U);
  EXPECT_EQ(folder.count(), 0U);
}

TEST_F(RankDirectoryOfOneNode, TakesTheNextStartOfARank) {
  RankHandle rank = open_rank(0, 1);
  directory.scan(now);
  rank.reset();
  rank = open_rank(0, 2);
  directory.scan(now);
  EXPECT_EQ(protocol.rank_count(), 1U);
  welcome();
  record(rank, 5);
  directory.poll(now);
  EXPECT_EQ(records_sent(), 1U);
}

TEST_F(RankDirectoryOfOneNode, MakesANewSessionWaitForTheOldOne) {
  RankHandle old_rank = open_rank(0, 1);
  const RankHandle new_rank = open_rank(1, 2);
  directory.scan(now);
  EXPECT_EQ(protocol.rank_count(), 1U);
  old_rank.reset();
  directory.scan(now);
  directory.scan(now);
  EXPECT_EQ(protocol.rank_count(), 1U);
  protocol.connected(now);
  const auto actions = protocol.take_actions();
  bool greeted = false;
  for (const Action& action : actions) {
    const auto* message = std::get_if<wire::ToDaemon>(&action);
    const auto* hello = message == nullptr ? nullptr : std::get_if<wire::Hello>(message);
    if (hello != nullptr) {
      greeted = true;
      EXPECT_EQ(hello->attachments.at(0).session, 2U);
      EXPECT_EQ(hello->attachments.at(0).ranks.at(0).rank, 1U);
    }
  }
  EXPECT_TRUE(greeted);
}

TEST_F(RankDirectoryOfOneNode, ReadsAnObserverWhereTheScriptSaysNothing) {
  const RankHandle observer = open_observer(0);
  const RankHandle other = open_rank(1);
  record(observer, 1);
  record(other, 1);
  welcome();
  directory.scan(now);
  EXPECT_EQ(protocol.rank_count(), 2U);
  directory.poll(now);
  EXPECT_EQ(records_sent(), 2U);
}

TEST_F(RankDirectoryOfOneNode, PrefersTheScriptToAnObserver) {
  const RankHandle observer = open_observer(0);
  welcome();
  directory.scan(now);
  record(observer, 1);
  directory.poll(now);
  EXPECT_EQ(records_sent(), 1U);

  RankHandle script = open_rank(0);
  directory.scan(now);
  EXPECT_EQ(protocol.rank_count(), 1U);
  record(observer, 2);
  record(script, 2);
  directory.poll(now);
  EXPECT_EQ(records_sent(), 1U) << "no step is told twice";
  // Orders go to the script.
  protocol.received(wire::PlanChunk{"gpt3", 1, 1, true, 0, 1, "{}"}, now);
  for (const Action& action : protocol.take_actions()) {
    if (const auto* command = std::get_if<RankCommand>(&action)) {
      directory.send(*command);
    }
  }
  tapas_command command = {};
  EXPECT_EQ(tapas_rank_poll(observer.get(), &command), 0);
  EXPECT_EQ(tapas_rank_poll(script.get(), &command), 1);

  script.reset();
  directory.scan(now);
  directory.scan(now);
  EXPECT_EQ(protocol.rank_count(), 1U) << "the observer is still there";
  record(observer, 3);
  directory.poll(now);
  EXPECT_EQ(records_sent(), 1U);
}

TEST_F(RankDirectoryOfOneNode, IgnoresFilesThatAreNoRanks) {
  folder.write("tapas-rank.noise", "noise");
  folder.write("other", "");
  directory.scan(now);
  EXPECT_EQ(protocol.rank_count(), 0U);
  EXPECT_EQ(folder.count(), 2U) << "what is not ours stays";
}

TEST_F(RankDirectoryOfOneNode, GivesPlansToRanksAndDropsOldOnes) {
  const RankHandle rank = open_rank(0);
  directory.scan(now);
  const std::string text(100'000, 'p');
  ASSERT_TRUE(directory.store({"gpt3", 7, text}));
  std::string buffer(200'000, '\0');
  ASSERT_EQ(tapas_rank_plan(rank.get(), 7, buffer.data(), buffer.size()), 100'000);
  EXPECT_EQ(buffer.substr(0, 100'000), text);
  EXPECT_EQ(tapas_rank_plan(rank.get(), 7, nullptr, 0), 100'000);
  EXPECT_EQ(tapas_rank_plan(rank.get(), 8, nullptr, 0), -ENOENT);

  ASSERT_TRUE(directory.store({"gpt3", 8, "p8"}));
  EXPECT_EQ(tapas_rank_plan(rank.get(), 7, nullptr, 0), -ENOENT) << "7 is not the active epoch";
  ASSERT_TRUE(directory.store({"other", 9, "p9"}));
  EXPECT_EQ(tapas_rank_plan(rank.get(), 8, nullptr, 0), 2) << "another job's plan changes nothing";
}

TEST_F(RankDirectoryOfOneNode, SaysWhyAPlanCannotBeStored) {
  RankDirectory gone("/nonexistent", "n0", protocol);
  const auto stored = gone.store({"gpt3", 7, "p"});
  ASSERT_FALSE(stored);
  EXPECT_NE(stored.error().message.find("/nonexistent/tapas-plan."), std::string::npos);
}

TEST_F(RankDirectoryOfOneNode, CarriesASwitchThroughRealRanks) {
  const RankHandle first = open_rank(0);
  const RankHandle second = open_rank(1);
  welcome();
  directory.scan(now);
  std::vector<wire::Vote> votes;
  const auto act = [&] {
    for (const Action& action : protocol.take_actions()) {
      if (const auto* command = std::get_if<RankCommand>(&action)) {
        directory.send(*command);
      } else if (const auto* plan = std::get_if<StorePlan>(&action)) {
        ASSERT_TRUE(directory.store(*plan));
      } else if (const auto* message = std::get_if<wire::ToDaemon>(&action)) {
        if (const auto* vote = std::get_if<wire::Vote>(message)) {
          votes.push_back(*vote);
        }
      }
    }
  };
  const auto answer_all = [&] {
    for (const RankHandle* rank : {&first, &second}) {
      tapas_command command = {};
      if (tapas_rank_poll(rank->get(), &command) == 1) {
        tapas_reply reply = {};
        reply.order = command.order;
        reply.ok = 1;
        reply.epoch = command.epoch;
        reply.step = command.at_step;
        tapas_rank_reply(rank->get(), &reply);
      }
    }
    directory.poll(now);
    act();
  };
  protocol.received(wire::PlanChunk{"gpt3", 1, 1, true, 0, 1, "{}"}, now);
  act();
  answer_all();
  EXPECT_EQ(tapas_rank_epoch(first.get()), 1U);

  protocol.received(wire::PlanChunk{"gpt3", 1, 2, false, 0, 1, "{2}"}, now);
  act();
  for (const auto order : {wire::SwitchOrder::kPrepare, wire::SwitchOrder::kArm,
                           wire::SwitchOrder::kTransfer, wire::SwitchOrder::kCommit}) {
    protocol.received(wire::SwitchCommand{order, "gpt3", 1, 1, 2, 30, ""}, now);
    act();
    answer_all();
    ASSERT_FALSE(votes.empty());
    EXPECT_TRUE(votes.back().ok) << votes.back().reason;
    EXPECT_EQ(static_cast<int>(votes.back().phase), static_cast<int>(order));
  }
  EXPECT_EQ(votes.size(), 4U);
  EXPECT_EQ(tapas_rank_epoch(first.get()), 2U);
  EXPECT_EQ(tapas_rank_epoch(second.get()), 2U);
}

}  // namespace
}  // namespace tapas::agent
