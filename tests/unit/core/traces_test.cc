#include "daemon/core/attribution.h"
#include "daemon/core/watch.h"
#include "tests/unit/solver/jobs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

/// Step times of real jobs, where the project's data folder is present.
namespace tapas::daemon {
namespace {

const std::string kFolder = TAPAS_SOURCE_DIR "/../shared/data/traces/";

/// Rows of a CSV file as column name -> number.
std::vector<std::map<std::string, double>> rows_of(const std::string& name) {
  std::ifstream file(kFolder + name);
  std::string line;
  std::getline(file, line);
  std::vector<std::string> columns;
  std::istringstream header(line);
  for (std::string column; std::getline(header, column, ',');) {
    columns.push_back(column);
  }
  std::vector<std::map<std::string, double>> rows;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    auto& row = rows.emplace_back();
    std::size_t index = 0;
    for (std::string field; std::getline(fields, field, ',') && index < columns.size(); ++index) {
      row[columns[index]] = field.empty() ? 0 : std::strtod(field.c_str(), nullptr);
    }
  }
  return rows;
}

/// `replicas` x `stages`, each position one device on a node of its own; all stages about equal:
/// two blocks, the last one block and the head.
struct Layout {
  Layout(std::uint32_t replicas, std::uint32_t stages)
      : job(solver::testing::small_job(2 * stages - 1, replicas * stages, 1,
                                       replicas * stages * 4)) {
    std::vector<std::uint32_t> cuts;
    for (std::uint32_t s = 0; s < stages; ++s) {
      cuts.push_back(s == 0 ? 0 : 2 * s + 1);
    }
    plan = solver::testing::simple_plan(job, cuts, replicas, 1);
    roles = Roles(job, plan);
  }
  solver::Job job;
  solver::Plan plan;
  Roles roles;
};

struct Alarm {
  std::uint64_t step = 0;
  Verdict verdict;
};

/// What the detector says about a job that reports wall times only.
std::vector<Alarm> alarms_of_walls(const std::string& name) {
  Layout layout(1, 2);
  Watch watch(layout.job.cluster.device_count());
  watch.follow(layout.roles);
  std::vector<Alarm> alarms;
  double time_s = 0;
  for (const auto& row : rows_of(name)) {
    const double wall_s = row.at("iteration_time_s");
    time_s += wall_s;
    WholeStep whole;
    whole.step = static_cast<std::uint64_t>(row.at("step"));
    whole.count = 2;
    whole.ranks.assign(2, {true, wall_s, 0, time_s});
    static_cast<void>(watch.observe(whole));
    static_cast<void>(watch.take_job_recovered());
    if (watch.verdict_due()) {
      const Verdict verdict = attribute(watch.findings(), layout.roles, layout.job.cluster);
      if (verdict.cause != Cause::kNothing) {
        alarms.push_back({whole.step, verdict});
        watch.accept({});
      }
    }
  }
  return alarms;
}

class Traces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder)) {
      GTEST_SKIP() << "skipped: the traces are not here";
    }
  }
};

TEST_F(Traces, QuietNoisyAndSpikyJobsRaiseNothing) {
  for (const char* name : {"mg_gpt15b_a100_quiet.csv", "mg_mixtral_h100_spikes.csv",
                           "mg_gpt_tp2pp2_h100_drift.csv", "mg_gpt_tp4cp2_h100_noisy.csv"}) {
    for (const Alarm& alarm : alarms_of_walls(name)) {
      ADD_FAILURE() << name << " step " << alarm.step << ": " << alarm.verdict.sentence;
    }
  }
}

TEST_F(Traces, APlateauIsOneEpisodeWithoutACulprit) {
  const std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> plateaus = {
      {"mg_gpt15b_h100_plateau.csv", {27'101, 35'700}},
      {"mg_dsv3_h100_sporadic.csv", {29'950, 30'645}},
      {"mg_dsv3_gb200_burst.csv", {24'570, 25'920}}};
  for (const auto& [name, where] : plateaus) {
    const auto alarms = alarms_of_walls(name);
    ASSERT_EQ(alarms.size(), 1U) << name << " "
                                 << (alarms.empty() ? "" : alarms[0].verdict.sentence);
    EXPECT_EQ(alarms[0].verdict.cause, Cause::kUnknown) << name;
    EXPECT_GE(alarms[0].step, where.first) << name;
    EXPECT_LE(alarms[0].step, where.second) << name;
  }
}

/// Verdicts about a job that reports compute per rank; rank r of the file is position r / per_node.
std::vector<Verdict> verdicts_of_ranks(const std::string& name, std::uint32_t replicas,
                                       std::uint32_t stages) {
  Layout layout(replicas, stages);
  Watch watch(layout.job.cluster.device_count());
  watch.follow(layout.roles);
  std::map<std::uint64_t, WholeStep> steps;
  for (const auto& row : rows_of(name)) {
    WholeStep& whole = steps[static_cast<std::uint64_t>(row.at("step"))];
    whole.step = static_cast<std::uint64_t>(row.at("step"));
    whole.ranks.resize(layout.job.cluster.device_count());
    const auto replica = static_cast<std::uint32_t>(row.at("dp_rank"));
    const auto stage = static_cast<std::uint32_t>(row.at("pp_stage"));
    const solver::Position& position = layout.plan.placement[replica][stage];
    const RankId rank = layout.job.cluster.rank_of(position.node, position.devices[0]);
    RankStep& entry = whole.ranks[rank.value()];
    whole.count += entry.seen ? 0 : 1;
    entry = {true, row.at("step_span_s"), row.at("compute_s") / row.at("microbatches"),
             row.at("step_span_s") * static_cast<double>(whole.step)};
  }
  std::vector<Verdict> verdicts;
  for (const auto& [step, whole] : steps) {
    static_cast<void>(watch.observe(whole));
    if (watch.verdict_due()) {
      const Verdict verdict = attribute(watch.findings(), layout.roles, layout.job.cluster);
      if (verdict.cause != Cause::kNothing) {
        verdicts.push_back(verdict);
        for (const Culprit& culprit : verdict.culprits) {
          for (const RankId rank : culprit.ranks) {
            watch.blame(rank, culprit.slowdown);
          }
        }
        watch.accept(verdict.stages);
      }
    }
  }
  return verdicts;
}

TEST_F(Traces, TheOneSlowWorkerIsNamedThoughAllStepsTakeTheSame) {
  const auto verdicts = verdicts_of_ranks("whatif_AR_rank_steps.csv", 4, 4);
  ASSERT_EQ(verdicts.size(), 1U) << verdicts.back().sentence;
  ASSERT_EQ(verdicts[0].culprits.size(), 1U) << verdicts[0].sentence;
  const Layout layout(4, 4);
  EXPECT_EQ(verdicts[0].culprits[0].node,
            layout.job.cluster.nodes[layout.plan.placement[0][0].node.value()].name);
  EXPECT_NEAR(verdicts[0].slowdown, 2.36, 0.3);
}

TEST_F(Traces, NoNodeIsBlamedForWorkThatVaries) {
  for (const Verdict& verdict : verdicts_of_ranks("whatif_SE_rank_steps.csv", 32, 2)) {
    EXPECT_TRUE(verdict.culprits.empty()) << verdict.sentence;
  }
}

TEST_F(Traces, AHeavyLastStageBlamesNoNode) {
  for (const Verdict& verdict : verdicts_of_ranks("whatif_ST_rank_steps.csv", 2, 4)) {
    EXPECT_TRUE(verdict.culprits.empty()) << verdict.sentence;
  }
}

}  // namespace
}  // namespace tapas::daemon
