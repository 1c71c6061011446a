#include "tests/bench/bench.h"
#include "tests/bench/fleet.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace tapas::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<Measurement> not_measured(const std::string& why) {
  std::fprintf(stderr, "wire.: not measured: %s\n", why.c_str());
  return {};
}

double total(const json::Value& counts) {
  double sum = 0;
  for (const auto& [reason, count] : counts.items()) {
    sum += count.get<double>();
  }
  return sum;
}

/// Records sent by 2,048 agents of 8 jobs until they are judged.
std::vector<Measurement> ingest() {
  constexpr double kRate = 320'000;
  constexpr auto kLoad = 30s;
  FleetSpec spec;
  spec.jobs = 8;
  spec.nodes = 256;
  Fleet fleet(spec);
  if (!fleet.start_daemon()) {
    return not_measured(fleet.cluster().log());
  }
  fleet.start_twins({"--rate", fmt::to_string(kRate / static_cast<double>(spec.jobs))});
  if (!test::eventually([&] { return fleet.last_step() > 20; }, 120s)) {
    return not_measured("the jobs do not train: " + fleet.cluster().log());
  }
  std::this_thread::sleep_for(15s);  // Start-up is not what is measured.

  const auto begin = Clock::now();
  const json::Value before = fleet.cluster().status();
  const double memory_before = fleet.memory_mib();
  std::this_thread::sleep_for(kLoad);
  const json::Value after = fleet.cluster().status();
  const double time_s = seconds_since(begin);
  // What the daemon refused, and what agents had no room for. A record on its way counts later.
  const double refused = total(after["rejected"]) - total(before["rejected"]);
  double dropped = 0;
  for (std::size_t i = 0; i < after["agents"].size(); ++i) {
    dropped += after["agents"][i]["records_dropped"].get<double>() -
               before["agents"][i]["records_dropped"].get<double>();
  }
  const double taken =
      after["received"]["step"].get<double>() - before["received"]["step"].get<double>() - refused;
  return {{"wire.ingest", taken / time_s, "records/s", 300'000, false},
          {"wire.ingest_lost", refused + dropped, "records", 0, true},
          {"wire.ingest_answer_median", 1e3 * after["answers"]["median_s"].get<double>(), "ms"},
          {"wire.ingest_answer_p99", 1e3 * after["answers"]["p99_s"].get<double>(), "ms", 5, true},
          {"wire.ingest_memory", fleet.memory_mib(), "MiB", 1024, true},
          {"wire.ingest_memory_growth", (fleet.memory_mib() - memory_before) / (time_s / 60),
           "MiB/min"}};
}

/// 10,000 agents come, and come back after tapasd was killed.
std::vector<Measurement> reconnect() {
  FleetSpec spec;
  spec.jobs = 4;
  spec.nodes = 2500;
  spec.devices = 1;
  Fleet fleet(spec);
  if (!fleet.start_daemon()) {
    return not_measured(fleet.cluster().log());
  }
  auto begin = Clock::now();
  fleet.start_twins({"--speed", "0.2"});
  const auto all_there = [&] { return fleet.connected() == fleet.agents(); };
  if (!test::eventually(all_there, 300s)) {
    return not_measured(fmt::format("{} of {} agents connected: {}", fleet.connected(),
                                    fleet.agents(), fleet.cluster().log()));
  }
  const double first_s = seconds_since(begin);
  if (!test::eventually([&] { return fleet.last_step() > 10; }, 120s)) {
    return not_measured("the jobs do not train: " + fleet.cluster().log());
  }
  const json::Value before = fleet.cluster().status();
  fleet.cluster().daemon->kill_now();
  std::this_thread::sleep_for(3s);
  begin = Clock::now();
  if (!fleet.start_daemon()) {
    return not_measured(fleet.cluster().log());
  }
  if (!test::eventually(all_there, 300s)) {
    return not_measured(fmt::format("{} of {} agents came back: {}", fleet.connected(),
                                    fleet.agents(), fleet.cluster().log()));
  }
  const double back_s = seconds_since(begin);
  const json::Value after = fleet.cluster().status();
  double other_plans = 0;
  double steps_meanwhile = 0;
  for (std::size_t i = 0; i < spec.jobs; ++i) {
    other_plans += after["jobs"][i]["epoch"] != before["jobs"][i]["epoch"] ? 1 : 0;
    steps_meanwhile +=
        after["jobs"][i]["last_step"].get<double>() - before["jobs"][i]["last_step"].get<double>();
  }
  return {{"wire.reconnect_first", first_s, "s"},
          {"wire.reconnect_10000", back_s, "s", 60, true},
          {"wire.reconnect_steps_meanwhile", steps_meanwhile, "steps", 1, false},
          {"wire.reconnect_other_plans", other_plans, "plans", 0, true},
          {"wire.reconnect_answer_p99", 1e3 * after["answers"]["p99_s"].get<double>(), "ms"},
          {"wire.reconnect_memory", fleet.memory_mib(), "MiB", 1024, true}};
}

std::vector<Measurement> with_programs(const Bench& bench) {
  return Fleet::possible() ? bench()
                           : not_measured("tapasd or tapas-twin is not beside tapas-bench");
}

const Registration kIngest("wire.ingest", [] { return with_programs(ingest); });
const Registration kReconnect("wire.reconnect", [] { return with_programs(reconnect); });

}  // namespace
}  // namespace tapas::bench
