#include "agent/twin/fleet.h"

#include "base/ids.h"
#include "base/json/json.h"
#include "solver/model/io/load.h"
#include "tests/unit/twin/fake_daemon.h"
#include "tests/unit/twin/small_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <tuple>

namespace tapas::twin {
namespace {

using Clock = std::chrono::steady_clock;
using wire::Phase;
using wire::SwitchOrder;

/// Four nodes of two ranks, with a daemon that the test plays.
class FleetRun : public testing::Test {
 protected:
  FleetRun()
      : keys(FakeDaemon::make_keys()),
        model(small_job()),
        job(model, {50.0, 1, 0}),
        daemon(std::make_unique<FakeDaemon>(keys, 1, "tcp://127.0.0.1:*")),
        endpoint(daemon->endpoint()) {
    Fleet::Options options;
    options.endpoint = endpoint;
    options.server_key = keys.public_key;
    options.start_ns = 1'700'000'000'000'000'000;
    for (std::size_t node = 0; node < model.cluster.nodes.size(); ++node) {
      options.node_keys.push_back(FakeDaemon::make_keys().secret_key);
    }
    fleet = std::make_unique<Fleet>(model, job, options);
    for (std::uint32_t node = 0; node < model.cluster.nodes.size(); ++node) {
      const auto ok = fleet->start(NodeId{node}, Clock::now());
      EXPECT_TRUE(ok) << ok.error().message;
    }
  }

  /// Lets everybody run until `done`, or the test's patience ends.
  bool until(const std::function<bool()>& done) {
    auto before = Clock::now();
    const auto give_up = before + std::chrono::seconds(30);
    while (!done()) {
      if (before > give_up) {
        return false;
      }
      fleet->wait(0.002, {});
      const auto now = Clock::now();
      fleet->run(now);
      (void)job.advance(std::chrono::duration<double>(now - before).count());
      if (const auto step = job.take_step()) {
        fleet->record(*step, now);
      }
      fleet->run(now);
      if (daemon) {
        daemon->pump();
      }
      before = now;
    }
    return true;
  }
  void send_plan(const solver::Plan& plan, bool active) {
    const std::string text = json::dump(solver::plan_to_json(plan, model));
    const std::size_t half = text.size() / 2;
    const std::uint64_t epoch = plan.epoch.value();
    daemon->send_all(wire::PlanChunk{model.name, 1, epoch, active, 0, 2, text.substr(0, half)});
    daemon->send_all(wire::PlanChunk{model.name, 1, epoch, active, 1, 2, text.substr(half)});
  }
  solver::Plan next_plan() {
    solver::Plan plan = small_plan(model, 2);
    plan.replica_splits = {{0, 2}, {}};
    return plan;
  }
  void start_job() {
    ASSERT_TRUE(until([&] { return daemon->hellos.size() == 4; }));
    send_plan(small_plan(model), true);
    ASSERT_TRUE(until([&] { return daemon->records_of(1) >= 24; }));
  }
  void switch_up_to_transfer() {
    send_plan(next_plan(), false);
    daemon->order_all(SwitchOrder::kPrepare, model.name, 1, 2);
    ASSERT_TRUE(until([&] { return daemon->votes_for(2, Phase::kPrepared) == 4; }));
    daemon->order_all(SwitchOrder::kArm, model.name, 1, 2, job.last_step() + 2);
    ASSERT_TRUE(until([&] { return daemon->votes_for(2, Phase::kArmed) == 4; }));
    daemon->order_all(SwitchOrder::kTransfer, model.name, 1, 2);
    ASSERT_TRUE(until([&] { return daemon->votes_for(2, Phase::kTransferred) == 4; }));
  }

  const FakeDaemon::Keys keys;
  const solver::Job model;
  VirtualJob job;
  std::unique_ptr<FakeDaemon> daemon;
  const std::string endpoint;
  std::unique_ptr<Fleet> fleet;
};

TEST_F(FleetRun, GreetsWithItsRanksAndStreamsTheirRecords) {
  start_job();
  const wire::Hello& hello = daemon->hellos.at("n2");
  ASSERT_EQ(hello.attachments.size(), 1U);
  EXPECT_EQ(hello.attachments[0].job, "small");
  ASSERT_EQ(hello.attachments[0].ranks.size(), 2U);
  EXPECT_EQ(hello.attachments[0].ranks[0].rank, 4U);

  std::set<std::tuple<std::uint64_t, std::uint32_t>> seen;
  for (const wire::StepRecord& record : daemon->records) {
    EXPECT_EQ(record.job, name_hash("small"));
    EXPECT_EQ(record.node, name_hash("n" + std::to_string(record.rank / 2)));
    EXPECT_EQ(record.session, hello.attachments[0].session);
    EXPECT_EQ(record.microbatches, 8U);
    const std::uint64_t parts = std::uint64_t{record.forward_us} + record.backward_us +
                                record.optimizer_us + record.tp_collective_us + record.pp_wait_us +
                                record.pp_transfer_us + record.dp_collective_us;
    EXPECT_NEAR(static_cast<double>(parts), record.wall_us, 8);
    EXPECT_TRUE(seen.emplace(record.step, record.rank).second) << "sent twice";
  }
  EXPECT_FALSE(daemon->links.empty());
  for (const wire::LinkRecord& link : daemon->links) {
    EXPECT_EQ(link.session, hello.attachments[0].session);
    EXPECT_EQ(link.source_node, name_hash("n" + std::to_string(link.rank / 2)));
    EXPECT_EQ(link.destination_node, name_hash("n" + std::to_string(link.peer_rank / 2)));
    EXPECT_NE(link.source_node, link.destination_node);
    EXPECT_GT(link.bytes, 0U);
    EXPECT_GT(link.transfer_us, 0U);
  }
  EXPECT_EQ(fleet->records_dropped(), 0U);
}

TEST_F(FleetRun, FollowsASwitchToTheNewEpoch) {
  start_job();
  switch_up_to_transfer();
  const std::uint64_t held = job.last_step();
  double bytes = 0;
  for (const auto& [node, vote] : daemon->votes) {
    if (vote.phase == Phase::kTransferred) {
      bytes += static_cast<double>(vote.bytes);
      EXPECT_GT(vote.seconds, 0);
      EXPECT_EQ(vote.step, held);
    }
  }
  EXPECT_NEAR(bytes, Truth(model, 1).transfer(small_plan(model), next_plan(), {}).bytes, 8);
  daemon->order_all(SwitchOrder::kCommit, model.name, 1, 2);
  ASSERT_TRUE(until([&] { return daemon->records_of(2) >= 8; }));
  EXPECT_EQ(daemon->votes_for(2, Phase::kCommitted), 4U);
  for (const wire::StepRecord& record : daemon->records) {
    EXPECT_EQ(record.epoch, record.step <= held ? 1U : 2U) << "step " << record.step;
  }
}

TEST_F(FleetRun, AbortLeavesTheOldEpochRunning) {
  start_job();
  switch_up_to_transfer();
  const std::uint64_t held = job.last_step();
  daemon->order_all(SwitchOrder::kAbort, model.name, 1, 2);
  ASSERT_TRUE(until([&] { return job.last_step() > held + 2; }));
  EXPECT_EQ(daemon->votes_for(2, Phase::kAborted), 4U);
  EXPECT_EQ(job.epoch(), 1U);
}

TEST_F(FleetRun, NodeVotesAgainstAPlanThatItCannotRun) {
  start_job();
  solver::Plan plan = next_plan();
  plan.placement[0][0].devices = {0, 7};
  send_plan(plan, false);
  daemon->order_all(SwitchOrder::kPrepare, model.name, 1, 2);
  ASSERT_TRUE(until([&] { return daemon->votes_for(2, Phase::kPrepared, false) == 4; }));
  EXPECT_NE(daemon->votes.begin()->second.reason.find("no device 7"), std::string::npos);
}

TEST_F(FleetRun, TrainsOnWithoutTheDaemonAndGreetsItsSuccessor) {
  start_job();
  daemon.reset();
  const std::uint64_t alone = job.last_step();
  ASSERT_TRUE(until([&] { return job.last_step() > alone + 5 && fleet->welcome() == 0; }));
  daemon = std::make_unique<FakeDaemon>(keys, 2, endpoint);
  ASSERT_TRUE(until([&] { return daemon->hellos.size() == 4 && !daemon->records.empty(); }));
  for (const auto& [node, hello] : daemon->hellos) {
    EXPECT_EQ(hello.attachments.at(0).epoch, 1U);
    EXPECT_EQ(hello.term, 1U);
  }
}

TEST_F(FleetRun, RestartedAgentReportsTheSwitchItsRanksAreIn) {
  start_job();
  switch_up_to_transfer();
  fleet->kill(NodeId{1});
  daemon->hellos.clear();
  ASSERT_TRUE(fleet->start(NodeId{1}, Clock::now()));
  EXPECT_FALSE(fleet->start(NodeId{1}, Clock::now()));
  ASSERT_TRUE(until([&] { return daemon->hellos.contains("n1"); }));
  EXPECT_EQ(daemon->hellos.at("n1").attachments.at(0).pending_epoch, 2U);
  daemon->order_all(SwitchOrder::kCommit, model.name, 1, 2);
  ASSERT_TRUE(until([&] { return daemon->records_of(2) >= 8; }));
}

TEST_F(FleetRun, KilledRankEndsTheSwitchItIsInAndTheJobComesBackInAnotherSession) {
  start_job();
  switch_up_to_transfer();
  const std::uint64_t session = daemon->hellos.at("n1").attachments.at(0).session;
  const std::uint64_t held = job.last_step();
  ASSERT_TRUE(job.kill(RankId{3}));
  EXPECT_FALSE(job.kill(RankId{3})) << "it is dead already";
  ASSERT_TRUE(until([&] { return daemon->hellos.at("n1").attachments.at(0).ranks.size() == 1; }));
  EXPECT_TRUE(job.alive(RankId{2})) << "its agent tells before the launcher stops the others";
  daemon->hellos.clear();
  const auto anew = [&] {
    return daemon->hellos.size() == 4 &&
           std::all_of(daemon->hellos.begin(), daemon->hellos.end(), [&](const auto& hello) {
             const auto& jobs = hello.second.attachments;
             return jobs.size() == 1 && jobs[0].session != session && jobs[0].ranks.size() == 2 &&
                    jobs[0].epoch == 0 && jobs[0].pending_epoch == 0;
           });
  };
  ASSERT_TRUE(until(anew));
  EXPECT_EQ(job.epoch(), 0U);
  daemon->records.clear();
  send_plan(small_plan(model), true);
  ASSERT_TRUE(until([&] { return daemon->records_of(1) >= 24; }));
  for (const wire::StepRecord& record : daemon->records) {
    EXPECT_NE(record.session, session);
    EXPECT_GT(record.step, held);
  }
}

TEST_F(FleetRun, AgentThatStartsWhileTheJobIsDownHasNoRanks) {
  start_job();
  ASSERT_TRUE(job.kill(RankId{0}));
  ASSERT_TRUE(until([&] { return !job.alive(RankId{7}); }));
  fleet->kill(NodeId{2});
  daemon->hellos.clear();
  ASSERT_TRUE(fleet->start(NodeId{2}, Clock::now()));
  ASSERT_TRUE(until([&] { return daemon->hellos.contains("n2"); }));
  EXPECT_TRUE(daemon->hellos.at("n2").attachments.empty());
  ASSERT_TRUE(until([&] {
    const auto& jobs = daemon->hellos.at("n2").attachments;
    return jobs.size() == 1 && jobs[0].ranks.size() == 2;
  }));
}

}  // namespace
}  // namespace tapas::twin
