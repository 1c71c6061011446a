#include "agent/rank/tapas_rank.h"
#include "tests/system/cluster.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace tapas::test {
namespace {

std::string tiny_job() { return TAPAS_SOURCE_DIR "/config/examples/gpt-tiny-4x2.json"; }

/// Writes the configuration of node-0's agent and the folder of its ranks.
void prepare_agent(const Cluster& cluster, const std::string& endpoint,
                   const json::Value& more = json::Value::object()) {
  std::filesystem::create_directory(cluster.dir / "ranks");
  json::Value config = {{"schema", "tapas.agent/1"},       {"node", "node-0"},
                        {"daemon_endpoint", endpoint},     {"daemon_public_key", "server.pub"},
                        {"secret_key", "keys/node-0.key"}, {"rank_dir", "ranks"}};
  config.update(more);
  write_file(cluster.dir / "agent.json", json::dump(config));
}

/// A training rank in a thread of its own: a record and a look for orders every millisecond. Counts
/// how often a call gave the processor away, which is what waiting for anything would do.
class BusyRank {
 public:
  explicit BusyRank(const std::string& folder) {
    tapas_rank_options options = {};
    options.abi = TAPAS_RANK_ABI;
    options.job = "gpt-tiny";
    options.node = "node-0";
    options.session = 7;
    options.dir = folder.c_str();
    options.ring_records = 64;
    opened_ = tapas_rank_open(&options, &rank_);
    thread_ = std::thread([this] {
      while (!stop_) {
        step();
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  ~BusyRank() {
    stop();
    tapas_rank_close(rank_);
  }
  BusyRank(const BusyRank&) = delete;
  BusyRank& operator=(const BusyRank&) = delete;

  void stop() {
    stop_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  [[nodiscard]] int opened() const { return opened_; }
  /// After stop().
  [[nodiscard]] std::uint64_t steps() const { return record_.step; }
  [[nodiscard]] std::uint64_t taken() const { return taken_; }
  [[nodiscard]] std::uint64_t dropped() const { return tapas_rank_dropped(rank_); }
  [[nodiscard]] std::uint64_t waits() const { return waits_; }
  [[nodiscard]] std::uint64_t errors() const { return errors_; }

 private:
  static long switches() {
    rusage usage = {};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  }
  void step() {
    ++record_.step;
    const long before = switches();
    const int taken = tapas_rank_record(rank_, &record_);
    tapas_command command = {};
    const int ordered = tapas_rank_poll(rank_, &command);
    waits_ += static_cast<std::uint64_t>(switches() - before);
    taken_ += taken == 1 ? 1 : 0;
    errors_ += taken < 0 || ordered < 0 ? 1 : 0;
    if (ordered == 1) {
      tapas_reply reply = {};
      reply.order = command.order;
      reply.ok = 1;
      reply.epoch = command.epoch;
      reply.step = record_.step;
      errors_ += tapas_rank_reply(rank_, &reply) < 0 ? 1 : 0;
    }
  }

  tapas_rank* rank_ = nullptr;
  int opened_ = 0;
  tapas_step_record record_ = {};
  std::uint64_t taken_ = 0;
  std::uint64_t waits_ = 0;
  std::uint64_t errors_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

std::int64_t records_of(const Cluster& cluster, const std::string& node) {
  const json::Value status = cluster.status();
  for (const json::Value& agent : status.is_object() ? status["agents"] : json::Value::array()) {
    if (agent["node"] == node) {
      return agent["records"].get<std::int64_t>();
    }
  }
  return 0;
}

std::unique_ptr<Process> start_agent(const Cluster& cluster) {
  return std::make_unique<Process>(
      std::vector<std::string>{program("tapas-agent"), "--config", cluster.dir / "agent.json"},
      cluster.dir / "agent.log");
}

TEST(Agent, CarriesTheRecordsOfARealRankWhateverKillsIt) {
  Cluster cluster({"node-0"}, {{"jobs", {tiny_job()}}, {"auto_replan", true}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  prepare_agent(cluster, cluster.endpoint());
  auto agent = start_agent(cluster);
  ASSERT_TRUE(eventually([&] { return cluster.connected("node-0"); }))
      << agent->output() << cluster.log();
  Process rank({program("tapas-example-rank"), "--job", "gpt-tiny", "--node", "node-0", "--rank",
                "0", "--dir", cluster.dir / "ranks", "--steps", "100000"},
               cluster.dir / "rank.log");
  const auto records = [&] { return records_of(cluster, "node-0"); };
  EXPECT_TRUE(eventually([&] { return records() >= 5; }))
      << cluster.status() << rank.output() << agent->output() << cluster.log();
  const auto epoch = [&] { return cluster.status()["jobs"][0]["epoch"].get<std::int64_t>(); };
  const std::int64_t plan = epoch();

  // The agent goes; the rank goes on under its plan; the next agent finds it.
  for (const int how : {SIGKILL, SIGSEGV}) {
    agent->signal(how);
    ASSERT_TRUE(eventually([&] { return !agent->running(); }));
    EXPECT_TRUE(rank.running());
    agent = start_agent(cluster);
    const std::int64_t before = records();
    EXPECT_TRUE(eventually([&] { return records() > before; })) << agent->output() << cluster.log();
    EXPECT_TRUE(rank.running()) << rank.output();
  }
  EXPECT_EQ(epoch(), plan);
  EXPECT_FALSE(cluster.has_event("verdict"));
  EXPECT_FALSE(cluster.has_event("replan_proposed"));
}

TEST(Agent, WhateverHappensToItAndTheDaemonARankNeverWaitsAndLosesOnlyCountedRecords) {
  const bool longer = std::getenv("TAPAS_LONG") != nullptr;
  const auto time = longer ? 60s : 6s;
  Cluster cluster({"node-0"}, {{"jobs", {tiny_job()}}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  prepare_agent(cluster, cluster.endpoint());
  auto agent = start_agent(cluster);
  BusyRank rank(cluster.dir / "ranks");
  ASSERT_EQ(rank.opened(), 0);
  ASSERT_TRUE(eventually([&] { return records_of(cluster, "node-0") > 0; })) << cluster.log();

  std::mt19937 random(1);
  const auto pause = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 500));
  };
  const auto hold_up = [&](Process& process) {
    process.signal(SIGSTOP);
    std::this_thread::sleep_for(200ms);  // More than the ring holds.
    process.signal(SIGCONT);
  };
  for (const auto end = Clock::now() + time; Clock::now() < end;) {
    hold_up(*agent);
    pause();
    hold_up(*cluster.daemon);
    pause();
    agent->signal(random() % 2 == 0 ? SIGKILL : SIGTERM);
    ASSERT_TRUE(agent->wait_exit());
    pause();
    agent = start_agent(cluster);
    pause();
    cluster.daemon->signal(random() % 2 == 0 ? SIGKILL : SIGTERM);
    ASSERT_TRUE(cluster.daemon->wait_exit());
    pause();
    ASSERT_TRUE(cluster.start()) << cluster.log();
  }
  const std::int64_t before = records_of(cluster, "node-0");
  EXPECT_TRUE(eventually([&] { return records_of(cluster, "node-0") > before; }))
      << agent->output() << cluster.log();
  rank.stop();
  EXPECT_EQ(rank.errors(), 0U);
  EXPECT_EQ(rank.waits(), 0U);
  EXPECT_GT(rank.dropped(), 0U);
  EXPECT_EQ(rank.taken() + rank.dropped(), rank.steps());
  if (longer) {
    std::printf("%llu steps, %llu records dropped\n", static_cast<unsigned long long>(rank.steps()),
                static_cast<unsigned long long>(rank.dropped()));
  }
}

TEST(Agent, TellsTheDaemonWhatIsWrongWithItsNode) {
  Cluster cluster({"node-0"}, {{"jobs", {tiny_job()}}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  const std::string port = cluster.dir / "root/sys/class/infiniband/mlx5_0/ports/1";
  std::filesystem::create_directories(port);
  write_file(port + "/state", "1: DOWN\n");
  write_file(port + "/phys_state", "3: Disabled\n");
  write_file(port + "/link_layer", "InfiniBand\n");
  prepare_agent(cluster, cluster.endpoint(), {{"health_interval_s", 0.2}, {"health_root", "root"}});
  auto agent = start_agent(cluster);
  const auto findings = [&] {
    const json::Value status = cluster.status();
    for (const json::Value& one : status.is_object() ? status["agents"] : json::Value::array()) {
      if (one["node"] == "node-0") {
        return one["findings"];
      }
    }
    return json::Value();
  };
  const auto port_down = [&] {
    const json::Value now = findings();
    return std::any_of(now.begin(), now.end(), [](const json::Value& finding) {
      return finding["device"] == "mlx5_0/1" && finding["kind"] == "port_down";
    });
  };
  EXPECT_TRUE(eventually(port_down)) << findings() << agent->output() << cluster.log();
  EXPECT_TRUE(eventually([&] { return cluster.has_event("finding"); })) << cluster.log();

  // Another daemon is told, too.
  cluster.daemon->kill_now();
  ASSERT_TRUE(cluster.start()) << cluster.log();
  EXPECT_TRUE(eventually(port_down)) << findings() << agent->output() << cluster.log();
}

TEST(Agent, FindsTheDaemonAtAnIPv6Address) {
  Cluster probe({"node-0"});
  const std::string endpoint =
      "tcp://[::1]" + probe.endpoint().substr(sizeof "tcp://127.0.0.1" - 1);
  const int ipv6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 loopback = {};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const bool usable = bind(ipv6, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0;
  close(ipv6);
  if (!usable) {
    GTEST_SKIP() << "skipped: this machine has no IPv6 loopback";
  }
  Cluster cluster({"node-0"}, {{"jobs", {tiny_job()}}, {"listen", endpoint}});
  ASSERT_TRUE(cluster.start()) << cluster.log();
  prepare_agent(cluster, endpoint);
  const auto agent = start_agent(cluster);
  EXPECT_TRUE(eventually([&] { return cluster.connected("node-0"); }))
      << agent->output() << cluster.log();
}

}  // namespace
}  // namespace tapas::test
