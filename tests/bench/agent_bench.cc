#include "agent/rank/tapas_rank.h"
#include "tests/bench/bench.h"
#include "tests/bench/fleet.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace tapas::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kRanks = 8;
constexpr std::size_t kBatch = 512;  // Half of a rank's ring.
constexpr int kBatches = 41;

std::vector<Measurement> not_measured(const std::string& why) {
  std::fprintf(stderr, "agent.: not measured: %s\n", why.c_str());
  return {};
}

/// A folder in memory, as ranks have it.
class RankFolder {
 public:
  RankFolder() {
    std::string pattern = "/dev/shm/tapas-bench-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~RankFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  RankFolder(const RankFolder&) = delete;
  RankFolder& operator=(const RankFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The eight ranks of one node, all in this process.
class Ranks {
 public:
  explicit Ranks(const std::string& folder) {
    for (std::uint32_t slot = 0; slot < kRanks; ++slot) {
      tapas_rank_options options = {};
      options.abi = TAPAS_RANK_ABI;
      options.rank = slot;
      options.job = "load0";
      options.node = "load0-0000";
      options.session = 1;
      options.device[0] = static_cast<std::uint8_t>(slot + 1);
      options.dir = folder.c_str();
      good_ = tapas_rank_open(&options, &ranks_[slot]) == 0 && good_;
    }
  }
  ~Ranks() {
    for (tapas_rank* rank : ranks_) {
      tapas_rank_close(rank);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] std::uint64_t dropped() const {
    std::uint64_t sum = 0;
    for (const tapas_rank* rank : ranks_) {
      sum += tapas_rank_dropped(rank);
    }
    return sum;
  }
  void step() {
    ++record_.step;
    for (tapas_rank* rank : ranks_) {
      record(rank);
      look(rank);
    }
  }
  /// Microseconds that a call takes, many in a row on one rank.
  double record_us() {
    return batch_us([this] { record(ranks_[0]); });
  }
  double look_us() {
    return batch_us([this] { look(ranks_[0]); });
  }

 private:
  void record(tapas_rank* rank) { tapas_rank_record(rank, &record_); }
  static void look(tapas_rank* rank) {
    tapas_command command = {};
    if (tapas_rank_poll(rank, &command) == 1) {
      tapas_reply reply = {};
      reply.order = command.order;
      reply.ok = 1;
      reply.epoch = command.epoch;
      tapas_rank_reply(rank, &reply);
    }
  }
  template <typename Call>
  static double batch_us(const Call& call) {
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < kBatch; ++i) {
      call();
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / kBatch;
  }

  std::array<tapas_rank*, kRanks> ranks_ = {};
  tapas_step_record record_ = {};
  bool good_ = true;
};

/// Processor time of another process.
double cpu_s(pid_t pid) {
  double nanoseconds = 0;
  std::ifstream("/proc/" + std::to_string(pid) + "/schedstat") >> nanoseconds;
  return nanoseconds * 1e-9;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// What ranks and their node pay for being watched, by a real agent with a real daemon.
std::vector<Measurement> agent() {
  constexpr auto kTime = 20s;
  constexpr auto kStep = 100ms;
  FleetSpec spec;
  spec.nodes = 4;
  Fleet fleet(spec);
  if (!Fleet::possible() || !fleet.start_daemon()) {
    return not_measured("no tapasd beside tapas-bench, or it ends");
  }
  const RankFolder folder;
  test::Cluster& cluster = fleet.cluster();
  const std::string config = cluster.dir / "agent.json";
  test::write_file(config, json::dump({{"schema", "tapas.agent/1"},
                                       {"node", "load0-0000"},
                                       {"daemon_endpoint", cluster.endpoint()},
                                       {"daemon_public_key", "server.pub"},
                                       {"secret_key", "keys/load0-0000.key"},
                                       {"rank_dir", folder.path()}}));
  Ranks ranks(folder.path());
  test::Process agent({test::program("tapas-agent"), "--config", config},
                      cluster.dir / "agent.log");
  if (!ranks.good() || !test::eventually([&] { return cluster.connected("load0-0000"); })) {
    return not_measured("the agent or its ranks do not start: " + agent.output());
  }
  const auto train = [&](Clock::duration time) {
    const auto begin = Clock::now();
    auto next = begin;
    for (; next < begin + time; next += kStep) {
      std::this_thread::sleep_until(next);
      ranks.step();
    }
    std::this_thread::sleep_until(next);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  train(3s);  // Start-up is not what is measured.
  const double before_s = cpu_s(agent.pid());
  const double time_s = train(kTime);
  const double share = (cpu_s(agent.pid()) - before_s) / time_s;

  std::vector<double> record;
  std::vector<double> look;
  for (int i = 0; i < kBatches; ++i) {
    record.push_back(ranks.record_us());
    look.push_back(ranks.look_us());
    std::this_thread::sleep_for(kStep);  // The agent takes them.
  }
  return {{"agent.cpu", 100 * share, "% of a core", 1},
          {"agent.record", median(record), "us", 1},
          {"agent.poll", median(look), "us"},
          {"agent.dropped", static_cast<double>(ranks.dropped()), "records", 0}};
}

const Registration kAgent("agent.", agent);

}  // namespace
}  // namespace tapas::bench
