#include "solver/model/io/load.h"
#include "solver/replan/micro_replan.h"
#include "solver/search/solve.h"
#include "tests/bench/bench.h"
#include "tests/replan/instances.h"
#include "tests/replan/measure.h"
#include "tests/replan/value.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tapas::bench {
namespace {

using solver::testing::Instance;
using solver::testing::Runtime;
using solver::testing::Timed;

// Answers stand by then or a little later; at most 10 and 50 ms.
constexpr double kLimitMs = 9.8;
constexpr double kLargeLimitMs = 48;

/// One node after the other slowed by 1.6, all devices off by up to 1 % as measurements are.
std::vector<Measurement> example_job() {
  const auto job = solver::load_job(TAPAS_SOURCE_DIR "/config/examples/gpt3-175b-a800-1024.json");
  if (!job) {
    throw std::runtime_error(job.error().message);
  }
  const auto solved = solver::solve(*job);
  if (!solved) {
    throw std::runtime_error(solved.error().message);
  }
  Instance instance{"example", *job, {}};
  solver::ReplanRequest& request = instance.request;
  request.current = solved->plan;
  request.expected_episode_s = 1800;
  std::vector<double> ms;
  double worst = 0;
  for (std::uint32_t node = 0; node < job->cluster.nodes.size(); ++node) {
    request.state.device_slowdown.clear();
    for (std::uint32_t rank = 0; rank < job->cluster.device_count(); ++rank) {
      request.state.device_slowdown.push_back(0.99 +
                                              0.02 * static_cast<double>(rank * 37 % 101) / 100);
    }
    for (std::uint32_t d = 0; d < job->cluster.type_of(NodeId(node)).devices; ++d) {
      request.state.device_slowdown[job->cluster.rank_of(NodeId(node), d).value()] = 1.6;
    }
    const Timed timed = solver::testing::timed_replan(instance, kLimitMs);
    ms.push_back(timed.ms);
    worst = std::max(worst, timed.proposal.step_after_s / timed.proposal.lower_bound_s);
  }
  return {{"replan.gpt3_175b_1024.cpu_median", solver::testing::quantile(ms, 0.5), "ms"},
          {"replan.gpt3_175b_1024.cpu_p99", solver::testing::quantile(ms, 0.99), "ms", 10, true},
          {"replan.gpt3_175b_1024.over_bound", (worst - 1) * 100, "%", 10, true}};
}

/// Answers within a time limit, against the best of the same search with a second and, where all
/// positions are whole nodes, annealing. tapas-replan-quality gives the reference more time.
class Judged {
 public:
  explicit Judged(double limit_ms, bool anneal = true) : limit_ms_(limit_ms), anneal_(anneal) {}

  double add(const Instance& instance) {
    solver::testing::Judge judge(instance.job, instance.request);
    const Timed timed = solver::testing::timed_replan(instance, limit_ms_);
    const auto value = judge.value(timed.proposal.plan);
    auto best = judge.value(solver::testing::timed_replan(instance, 1000, 2).proposal.plan);
    if (anneal_) {
      const auto cooled = judge.value(solver::testing::best_anneal(instance, 200));
      best = solver::testing::better(cooled, best) ? cooled : best;
    }
    const double gap = std::max(0.0, solver::testing::gap_to(value, best));
    ms_.push_back(timed.ms);
    gap_ += gap;
    worst_gap_ = std::max(worst_gap_, gap);
    over_bound_ += timed.proposal.step_after_s / timed.proposal.lower_bound_s - 1;
    return gap;
  }
  [[nodiscard]] double p99_ms() const { return solver::testing::quantile(ms_, 0.99); }
  [[nodiscard]] double gap() const { return 100 * gap_ / count(); }
  [[nodiscard]] double worst_gap() const { return 100 * worst_gap_; }
  [[nodiscard]] double over_bound() const { return 100 * over_bound_ / count(); }

 private:
  [[nodiscard]] double count() const { return static_cast<double>(ms_.size()); }

  double limit_ms_;
  bool anneal_;
  std::vector<double> ms_;
  double gap_ = 0;
  double worst_gap_ = 0;
  double over_bound_ = 0;
};

std::vector<Measurement> first_answers() {
  std::vector<double> ms;
  for (std::uint32_t event = 1; event <= solver::testing::kEvents; ++event) {
    for (const Runtime runtime : {Runtime::kFree, Runtime::kFrozen}) {
      const Instance instance = solver::testing::large_instance(event, 1, runtime);
      ms.push_back(solver::testing::first_answer(instance).ms);
    }
  }
  return {{"replan.first_1024", solver::testing::quantile(ms, 0.99), "ms", 2, true}};
}

std::vector<Measurement> events_1024() {
  constexpr std::uint64_t kSeeds = 2;
  constexpr std::uint32_t kManyFaults = 6;
  Judged all(kLimitMs);
  double many_faults = 0;
  double many = 0;
  for (std::uint32_t event = 1; event <= solver::testing::kEvents; ++event) {
    for (const Runtime runtime : {Runtime::kFree, Runtime::kFrozen}) {
      for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        const Instance instance = solver::testing::large_instance(event, seed, runtime);
        const double gap = all.add(instance);
        many_faults += event == kManyFaults ? gap : 0;
        many += event == kManyFaults ? 1 : 0;
      }
    }
  }
  return {{"replan.1024", all.p99_ms(), "ms", 10, true},
          {"replan.1024.gap", all.gap(), "%", 0.3, true},
          {"replan.1024.gap_e6", 100 * many_faults / many, "%", 0.8, true},
          {"replan.1024.gap_worst", all.worst_gap(), "%", 1.5, true},
          {"replan.1024.over_bound", all.over_bound(), "%"}};
}

std::vector<Measurement> events_16384() {
  Judged all(kLargeLimitMs);
  for (std::uint32_t event = 1; event <= solver::testing::kEvents; ++event) {
    all.add(solver::testing::large_instance(event, 1, Runtime::kFree, 128));
  }
  return {{"replan.16384", all.p99_ms(), "ms", 50, true},
          {"replan.16384.gap", all.gap(), "%", 0.5, true},
          {"replan.16384.gap_worst", all.worst_gap(), "%"},
          {"replan.16384.over_bound", all.over_bound(), "%"}};
}

std::vector<Measurement> malleus() {
  Judged all(kLimitMs, false);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    all.add(solver::testing::malleus_shape(seed));
  }
  return {{"replan.malleus_shape", all.p99_ms(), "ms", 10, true},
          {"replan.malleus_shape.gap", all.gap(), "%"},
          {"replan.malleus_shape.over_bound", all.over_bound(), "%"}};
}

const Registration kExample("replan.gpt3_175b_1024.", example_job);
const Registration kFirst("replan.first_1024", first_answers);
const Registration kThousand("replan.1024", events_1024);
const Registration kLarge("replan.16384", events_16384);
const Registration kMalleus("replan.malleus_shape", malleus);

}  // namespace
}  // namespace tapas::bench
