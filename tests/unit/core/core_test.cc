#include "daemon/core/core.h"

#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace tapas::daemon {
namespace {

/// A core whose job has a plan, with helpers to look at what it wants done.
class Bench {
 public:
  explicit Bench(bool with_plan = true, const std::function<void(solver::Job&)>& change = {}) {
    solver::Job small = solver::testing::small_job(6, 4, 2, 16);
    if (change) {
      change(small);
    }
    job = std::make_shared<const solver::Job>(small);
    plan = solver::testing::simple_plan(*job, {0, 4}, 2, 2);
    core = std::make_unique<Core>(CoreConfig{}, std::vector{job}, Restored{Term(3), {}, {}});
    apply(Tick{});
    if (with_plan) {
      apply(PlanSolved{"small", plan, "a plan", 0.1});
      apply(StoreDone{last_write, {}});
    }
  }
  std::vector<Action> apply(const Event& event) {
    now.steady += std::chrono::milliseconds(10);
    actions = core->apply(event, now);
    for (const Action& action : actions) {
      if (const auto* write = std::get_if<StoreWrite>(&action); write != nullptr && write->write) {
        last_write = write->write;
      }
    }
    return actions;
  }
  template <typename Message>
  std::vector<Message> sent(const std::string& node) const {
    std::vector<Message> out;
    for (const Action& action : actions) {
      if (const auto* send = std::get_if<SendToAgent>(&action);
          send != nullptr && send->node == node) {
        if (const auto* message = std::get_if<Message>(&send->message)) {
          out.push_back(*message);
        }
      }
    }
    return out;
  }
  std::vector<std::string> refused() const {
    std::vector<std::string> out;
    for (const Action& action : actions) {
      if (const auto* input = std::get_if<RejectedInput>(&action)) {
        EXPECT_FALSE(input->sentence.empty());
        out.push_back(input->reason);
      }
    }
    return out;
  }
  /// Journal lines of a kind.
  std::vector<std::string> told(const std::string& kind) const {
    std::vector<std::string> out;
    for (const Action& action : actions) {
      if (const auto* write = std::get_if<StoreWrite>(&action)) {
        for (const StoreRow& row : write->rows) {
          if (const auto* event = std::get_if<EventRow>(&row);
              event != nullptr && event->kind == kind) {
            out.push_back(event->sentence);
          }
        }
      }
    }
    return out;
  }
  std::string node(std::uint32_t index) const { return job->cluster.nodes[index].name; }
  AgentHello hello(std::uint32_t index, std::uint64_t epoch = 0, std::uint64_t pending = 0) const {
    return {node(index),
            9,
            Term{},
            {{"small", 1, Epoch(epoch), Epoch(pending), {{RankId(2 * index), "", 1}}}}};
  }
  StepSample sample(std::uint32_t rank) const {
    StepSample out;
    out.job = name_hash("small");
    out.session = 1;
    out.node = name_hash(node(rank / 2));
    out.rank = RankId(rank);
    out.epoch = Epoch(1);
    out.step = 1;
    out.end_time_s = 1.7e9;
    out.microbatches = 4;
    out.wall_s = 1;
    out.forward_s = 0.2;
    out.backward_s = 0.4;
    return out;
  }
  std::vector<std::string> refusal_of(StepSample sample, std::uint32_t index = 0) {
    apply(StepBatch{node(index), {sample}});
    return refused();
  }

  std::shared_ptr<const solver::Job> job;
  solver::Plan plan;
  std::unique_ptr<Core> core;
  Now now{std::chrono::seconds(100), 1};
  std::vector<Action> actions;
  std::uint64_t last_write = 0;
};

using Words = std::vector<std::string>;

TEST(Core, AJobWithoutAPlanAsksForOneAndTellsNobodyBeforeItIsDurable) {
  Bench bench(false);
  EXPECT_EQ(std::count_if(bench.actions.begin(), bench.actions.end(),
                          [](const Action& a) { return std::holds_alternative<RequestPlan>(a); }),
            1);
  EXPECT_EQ(bench.core->status(bench.now).jobs[0].phase, "solving");
  bench.apply(bench.hello(0));
  EXPECT_TRUE(bench.sent<PlanMessage>(bench.node(0)).empty());
  bench.apply(PlanSolved{"small", bench.plan, "a plan", 0.1});
  EXPECT_FALSE(bench.core->plan("small"));
  EXPECT_TRUE(bench.sent<PlanMessage>(bench.node(0)).empty());
  bench.apply(StoreDone{bench.last_write, {}});
  ASSERT_TRUE(bench.core->plan("small"));
  EXPECT_EQ(bench.core->plan("small")->epoch, Epoch(1));
  ASSERT_EQ(bench.sent<PlanMessage>(bench.node(0)).size(), 1U);
  EXPECT_TRUE(bench.sent<PlanMessage>(bench.node(0))[0].active);
}

TEST(Core, AnInvalidPlanOfTheSolverNeverBecomesActive) {
  Bench bench(false);
  solver::Plan broken = bench.plan;
  broken.placement[0][1].node = broken.placement[0][0].node;
  bench.apply(PlanSolved{"small", broken, "a plan", 0.1});
  EXPECT_EQ(bench.last_write, 0U);
  EXPECT_NE(bench.core->status(bench.now).jobs[0].phase.find("no plan"), std::string::npos);
}

TEST(Core, WelcomesAnAgentAndSendsThePlanItLacks) {
  Bench bench;
  bench.apply(bench.hello(1));
  ASSERT_EQ(bench.sent<WelcomeMessage>(bench.node(1)).size(), 1U);
  EXPECT_EQ(bench.sent<WelcomeMessage>(bench.node(1))[0].term, Term(3));
  EXPECT_EQ(bench.sent<PlanMessage>(bench.node(1)).size(), 1U);
  bench.apply(bench.hello(1, 1));
  EXPECT_TRUE(bench.sent<PlanMessage>(bench.node(1)).empty());
}

TEST(Core, AnAgentBetweenTwoPlansIsLedToTheActiveOne) {
  Bench bench;
  bench.apply(bench.hello(0, 0, 1));  // missed COMMIT
  ASSERT_EQ(bench.sent<SwitchMessage>(bench.node(0)).size(), 1U);
  EXPECT_EQ(bench.sent<SwitchMessage>(bench.node(0))[0].order, SwitchOrder::kCommit);
  bench.apply(bench.hello(0, 1, 2));  // prepared for a switch that is over
  ASSERT_EQ(bench.sent<SwitchMessage>(bench.node(0)).size(), 1U);
  EXPECT_EQ(bench.sent<SwitchMessage>(bench.node(0))[0].order, SwitchOrder::kAbort);
  EXPECT_EQ(bench.sent<SwitchMessage>(bench.node(0))[0].to, Epoch(2));
}

TEST(Core, TurnsAwayAnAgentThatHasSeenANewerTerm) {
  Bench bench;
  AgentHello hello = bench.hello(0);
  hello.term = Term(4);
  bench.apply(hello);
  ASSERT_EQ(bench.sent<RejectMessage>(bench.node(0)).size(), 1U);
  EXPECT_TRUE(bench.sent<WelcomeMessage>(bench.node(0)).empty());
  EXPECT_EQ(bench.refused(), (Words{"newer_term"}));
}

TEST(Core, StrangersAreParkedAndForeignRanksRefused) {
  Bench bench;
  bench.apply(AgentHello{"stranger", 1, Term{}, {}});
  EXPECT_EQ(bench.sent<WelcomeMessage>("stranger").size(), 1U);
  AgentHello hello = bench.hello(0);
  hello.jobs[0].ranks[0].rank = RankId(5);
  bench.apply(hello);
  EXPECT_EQ(bench.refused(), (Words{"foreign_rank"}));
  hello.jobs[0].job = "other";
  bench.apply(hello);
  EXPECT_EQ(bench.refused(), (Words{"unknown_job"}));
  EXPECT_EQ(bench.sent<WelcomeMessage>(bench.node(0)).size(), 1U);
}

TEST(Core, HeartbeatsKeepAnAgentAndSilenceLosesIt) {
  Bench bench;
  bench.apply(AgentHeartbeat{bench.node(0), 5, 1});
  EXPECT_EQ(bench.sent<RejectMessage>(bench.node(0)).size(), 1U);  // no HELLO yet
  bench.apply(bench.hello(0, 1));
  for (int i = 0; i < 5; ++i) {
    bench.now.steady += std::chrono::seconds(4);
    bench.apply(AgentHeartbeat{bench.node(0), 5, 1});
    EXPECT_EQ(bench.sent<HeartbeatAckMessage>(bench.node(0)).size(), 1U);
    bench.apply(Tick{});
  }
  EXPECT_TRUE(bench.core->status(bench.now).agents[0].connected);
  bench.now.wall_ns += 1'000'000'000'000;  // the wall clock may jump
  bench.apply(Tick{});
  EXPECT_TRUE(bench.core->status(bench.now).agents[0].connected);
  bench.now.steady += std::chrono::seconds(11);
  bench.apply(Tick{});
  EXPECT_FALSE(bench.core->status(bench.now).agents[0].connected);
}

TEST(Core, FindingsOfANodeAreToldOnceAndWhenTheyAreOver) {
  Bench bench;
  const NodeFinding link{"0000:17:00.0", "pcie_width", "0000:17:00.0 runs on 8 of 16 lanes"};
  bench.apply(AgentFindings{bench.node(0), {link}});
  EXPECT_EQ(bench.sent<RejectMessage>(bench.node(0)).size(), 1U) << "no HELLO yet";
  bench.apply(bench.hello(0, 1));
  bench.apply(AgentFindings{bench.node(0), {link}});
  bench.apply(Tick{});
  EXPECT_EQ(bench.told("finding"), (Words{bench.node(0) + ": " + link.text}));
  EXPECT_EQ(bench.core->status(bench.now).agents[0].findings, (std::vector<NodeFinding>{link}));

  NodeFinding worse = link;
  worse.text = "0000:17:00.0 runs on 4 of 16 lanes";
  const NodeFinding port{"mlx5_0/1", "port_down", "mlx5_0/1 is down"};
  bench.apply(AgentFindings{bench.node(0), {worse, port}});
  bench.apply(Tick{});
  EXPECT_TRUE(bench.told("finding").empty()) << "at most once a minute";
  bench.now.steady += std::chrono::seconds(9);
  bench.apply(AgentHeartbeat{bench.node(0), 0, 0});
  EXPECT_EQ(bench.core->status(bench.now).agents[0].findings[0].text, worse.text);
  bench.now.steady += std::chrono::seconds(60);
  bench.apply(Tick{});
  EXPECT_EQ(bench.told("finding"), (Words{bench.node(0) + ": " + port.text}))
      << "the same condition in other figures is no news";

  bench.apply(bench.hello(0, 1));
  bench.apply(AgentFindings{bench.node(0), {port}});
  bench.now.steady += std::chrono::seconds(61);
  bench.apply(Tick{});
  EXPECT_EQ(bench.told("finding_over"),
            (Words{bench.node(0) + ": pcie_width is over at 0000:17:00.0"}));
}

TEST(Core, AVerdictSaysWhatTheNodeFindsItself) {
  Bench bench;
  for (std::uint32_t node = 0; node < 4; ++node) {
    bench.apply(bench.hello(node, 1));
  }
  bench.apply(AgentFindings{bench.node(1), {{"gpu", "throttle", "GPU 0 is too hot"}}});
  Words verdicts;
  for (std::uint64_t step = 1; step <= 80 && verdicts.empty(); ++step) {
    for (std::uint32_t node = 0; node < 4; ++node) {
      StepBatch batch{bench.node(node), {}, {}};
      for (std::uint32_t rank = 2 * node; rank < 2 * node + 2; ++rank) {
        StepSample sample = bench.sample(rank);
        const double slowdown = step > 40 && node == 1 ? 1.5 : 1;
        sample.step = step;
        sample.end_time_s += static_cast<double>(step);
        sample.forward_s *= slowdown;
        sample.backward_s *= slowdown;
        batch.samples.push_back(sample);
      }
      bench.apply(batch);
      const Words told = bench.told("verdict");
      verdicts.insert(verdicts.end(), told.begin(), told.end());
    }
  }
  ASSERT_FALSE(verdicts.empty());
  EXPECT_NE(verdicts[0].find(bench.node(1) + " itself finds: GPU 0 is too hot"), std::string::npos)
      << verdicts[0];
}

TEST(Core, RefusesRecordsThatCannotBeTrue) {
  Bench bench;
  bench.apply(bench.hello(0, 1));
  EXPECT_TRUE(bench.refusal_of(bench.sample(0)).empty());
  StepSample sample = bench.sample(0);
  sample.job = 7;
  EXPECT_EQ(bench.refusal_of(sample), (Words{"unknown_job"}));
  sample = bench.sample(0);
  sample.rank = RankId(4000);
  EXPECT_EQ(bench.refusal_of(sample), (Words{"unknown_rank"}));
  EXPECT_EQ(bench.refusal_of(bench.sample(3)), (Words{"foreign_rank"}));
  sample = bench.sample(1);
  sample.node = 1;
  EXPECT_EQ(bench.refusal_of(sample), (Words{"wrong_node"}));
  for (const double bad : {-1.0, 3.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    sample = bench.sample(1);
    sample.forward_s = bad;
    EXPECT_EQ(bench.refusal_of(sample), (Words{"implausible"})) << bad;
  }
  sample = bench.sample(1);
  sample.microbatches = 17;
  EXPECT_EQ(bench.refusal_of(sample), (Words{"implausible"}));
  sample = bench.sample(1);
  sample.epoch = Epoch(9);
  EXPECT_TRUE(bench.refusal_of(sample).empty());
  EXPECT_EQ(bench.core->status(bench.now).rejected.at("stale_epoch"), 1U);
  EXPECT_EQ(bench.core->status(bench.now).rejected.at("implausible"), 5U);
}

TEST(Core, OneBatchOfBadRecordsMakesOneLine) {
  Bench bench;
  bench.apply(bench.hello(0, 1));
  bench.apply(StepBatch{bench.node(0), std::vector<StepSample>(500, bench.sample(6))});
  EXPECT_EQ(bench.refused(), (Words{"foreign_rank"}));
  EXPECT_EQ(bench.core->status(bench.now).rejected.at("foreign_rank"), 500U);
}

TEST(Core, ARestoredPlanGoesOnAndAnOpenSwitchIsUndone) {
  Bench bench;
  RestoredJob restored;
  auto active = std::make_shared<solver::Plan>(bench.plan);
  active->epoch = Epoch(7);
  restored.active = active;
  auto pending = std::make_shared<solver::Plan>(*active);
  pending->epoch = Epoch(8);
  restored.pending = pending;
  restored.highest_epoch = Epoch(8);
  restored.open_switches = {{"small", Epoch(7), Epoch(8), SwitchState::kRunning, "slow", 1}};
  bench.core = std::make_unique<Core>(
      CoreConfig{}, std::vector{bench.job},
      Restored{Term(4), {{"small", restored}}, {{bench.node(2), true, "fan", 1}}});
  bench.apply(Tick{});
  EXPECT_EQ(bench.core->plan("small")->epoch, Epoch(7));
  bool aborted = false;
  for (const Action& action : bench.actions) {
    if (const auto* write = std::get_if<StoreWrite>(&action)) {
      for (const StoreRow& row : write->rows) {
        const auto* change = std::get_if<SwitchRow>(&row);
        aborted = aborted || (change != nullptr && change->state == SwitchState::kAborted &&
                              change->to == Epoch(8));
      }
    }
  }
  EXPECT_TRUE(aborted);
  EXPECT_TRUE(bench.core->status(bench.now).agents[2].drained);
  bench.apply(bench.hello(0, 7, 8));
  ASSERT_EQ(bench.sent<SwitchMessage>(bench.node(0)).size(), 1U);
  EXPECT_EQ(bench.sent<SwitchMessage>(bench.node(0))[0].order, SwitchOrder::kAbort);
}

TEST(Core, ADecidedSwitchIsFinishedAfterARestart) {
  Bench bench;
  RestoredJob restored;
  auto active = std::make_shared<solver::Plan>(bench.plan);
  active->epoch = Epoch(8);
  active->parent = Epoch(7);
  restored.active = restored.pending = active;
  restored.highest_epoch = Epoch(8);
  restored.open_switches = {{"small", Epoch(7), Epoch(8), SwitchState::kCommitDecided, "slow", 1}};
  bench.core = std::make_unique<Core>(CoreConfig{}, std::vector{bench.job},
                                      Restored{Term(4), {{"small", restored}}, {}});
  bench.apply(Tick{});
  EXPECT_EQ(bench.core->status(bench.now).jobs[0].phase, "switching: committing");
  bench.apply(bench.hello(0, 7, 8));
  ASSERT_EQ(bench.sent<SwitchMessage>(bench.node(0)).size(), 1U);
  EXPECT_EQ(bench.sent<SwitchMessage>(bench.node(0))[0].order, SwitchOrder::kCommit);
  bench.apply(
      AgentVote{bench.node(0), "small", Epoch(8), SwitchPhase::kCommitted, true, "", 1, 0, 0});
  for (std::uint32_t index = 1; index < 4; ++index) {
    bench.apply(bench.hello(index, 8));
  }
  EXPECT_EQ(bench.core->status(bench.now).jobs[0].phase, "learning");
}

TEST(Core, AnotherDeviceInASlotIsNoticed) {
  Bench bench;
  const auto says_so = [&] {
    for (const Action& action : bench.actions) {
      if (const auto* write = std::get_if<StoreWrite>(&action)) {
        for (const StoreRow& row : write->rows) {
          const auto* event = std::get_if<EventRow>(&row);
          if (event != nullptr && event->kind == "device_changed") {
            return true;
          }
        }
      }
    }
    return false;
  };
  AgentHello hello = bench.hello(0, 1);
  hello.jobs[0].ranks[0].device_uuid = "aa";
  bench.apply(hello);
  bench.apply(hello);
  EXPECT_FALSE(says_so());
  hello.jobs[0].ranks[0].device_uuid = "bb";
  bench.apply(hello);
  EXPECT_TRUE(says_so());
}

TEST(Core, APlanThatTheRunningJobCannotSwitchToIsRefused) {
  for (const bool may_move : {true, false}) {
    Bench bench(true, [&](solver::Job& job) { job.capabilities.placement = may_move; });
    bench.apply(OperatorCommand{5, "uid 0 (root)", Replan{"small", true}});
    std::uint64_t request = 0;
    for (const Action& action : bench.actions) {
      if (const auto* ask = std::get_if<RequestReplan>(&action)) {
        request = ask->request;
      }
    }
    solver::Proposal proposal;
    proposal.improves = true;
    proposal.reason = "better";
    proposal.plan = bench.plan;
    std::swap(proposal.plan.placement[0][0], proposal.plan.placement[1][1]);
    bench.apply(ReplanSolved{"small", request, proposal, 0.01});
    std::string answer;
    for (const Action& action : bench.actions) {
      if (const auto* reply = std::get_if<OperatorReply>(&action)) {
        EXPECT_EQ(reply->request, 5U);
        answer = reply->outcome.value_or("an error");
      }
    }
    EXPECT_EQ(answer == "better", may_move) << answer;
    EXPECT_EQ(answer.find("cannot switch to it") != std::string::npos, !may_move) << answer;
  }
}

TEST(Core, SameEventsGiveTheSameActions) {
  const auto trace = [] {
    Bench bench;
    std::string out;
    for (std::uint32_t index = 0; index < 4; ++index) {
      bench.apply(bench.hello(index, 1));
      out += std::to_string(bench.actions.size()) + " ";
    }
    for (std::uint32_t rank = 0; rank < 8; ++rank) {
      bench.apply(StepBatch{bench.node(rank / 2), {bench.sample(rank)}});
      out += std::to_string(bench.actions.size()) + " ";
    }
    return out + bench.core->status(bench.now).jobs[0].phase;
  };
  EXPECT_EQ(trace(), trace());
}

}  // namespace
}  // namespace tapas::daemon
