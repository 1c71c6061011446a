#include "tests/bench/fleet.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

namespace tapas::bench {
namespace {

constexpr int kNice = -10;  // As in systemd/tapasd.service.in.

}  // namespace

bool Fleet::possible() {
  return std::filesystem::exists(test::program("tapasd")) &&
         std::filesystem::exists(test::program("tapas-twin"));
}

std::string Fleet::job_name(std::size_t job) const { return fmt::format("load{}", job); }
std::string Fleet::report(std::size_t job) const { return files_ / (job_name(job) + ".jsonl"); }

json::Value Fleet::job(std::size_t number) const {
  const std::string name = job_name(number);
  const json::Value device = {{"name", "A800-SXM4-80GB"},     {"peak_flops", 312e12},
                              {"memory_bytes", 80e9},         {"memory_bytes_per_s", 2.039e12},
                              {"matmul_efficiency", 0.72},    {"matmul_half_flops", 3e10},
                              {"attention_efficiency", 0.45}, {"collective_library", "nccl"}};
  const json::Value node = {{"name", "node"},
                            {"device_type", "A800-SXM4-80GB"},
                            {"devices", spec_.devices},
                            {"fast_link_bytes_per_s", 160e9},
                            {"fast_link_latency_s", 2e-6},
                            {"nics", spec_.devices},
                            {"nic_bytes_per_s", 25e9}};
  return {{"schema", "tapas.job/1"},
          {"name", name},
          {"graph",
           {{"model", "gpt"},
            {"name", name},
            {"layers", 16},
            {"hidden_size", 4096},
            {"heads", 32},
            {"sequence_length", 1024},
            {"vocabulary", 32000}}},
          {"cluster",
           {{"schema", "tapas.cluster/1"},
            {"name", name},
            {"device_types", json::Value::array({device})},
            {"node_types", json::Value::array({node})},
            {"nodes", json::Value::array({{{"type", "node"},
                                           {"name_prefix", name + "-"},
                                           {"digits", 4},
                                           {"count", spec_.nodes},
                                           {"nodes_per_tor", 16},
                                           {"tors_per_pod", 4}}})},
            {"fabric",
             {{"tor", {{"latency_s", 6e-6}}},
              {"pod", {{"latency_s", 9e-6}}},
              {"core", {{"latency_s", 12e-6}, {"oversubscription", 2}}}}}}},
          {"global_batch", spec_.nodes / spec_.stages * 8},
          {"search",
           {{"min_stages", spec_.stages},
            {"max_stages", spec_.stages},
            {"tp_widths", json::Value::array({spec_.devices})}}},
          {"switch_pause_s", 0.5}};
}

Fleet::Fleet(FleetSpec spec) : spec_(std::move(spec)) {
  std::vector<std::string> nodes;
  json::Value config = spec_.config;
  config["jobs"] = json::Value::array();
  for (std::size_t i = 0; i < spec_.jobs; ++i) {
    const std::string path = files_ / (job_name(i) + ".json");
    test::write_file(path, json::dump(job(i)));
    config["jobs"].push_back(path);
    for (std::size_t node = 0; node < spec_.nodes; ++node) {
      nodes.push_back(fmt::format("{}-{:04}", job_name(i), node));
    }
  }
  cluster_ = std::make_unique<test::Cluster>(nodes, config);
}

bool Fleet::start_daemon() {
  const bool urgent = setpriority(PRIO_PROCESS, 0, kNice) == 0;
  const bool started = cluster_->start();
  if (urgent) {
    setpriority(PRIO_PROCESS, 0, 0);
  }
  return started;
}

void Fleet::start_twins(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < spec_.jobs; ++i) {
    std::vector<std::string> command = {
        test::program("tapas-twin"), "--job",        files_ / (job_name(i) + ".json"), "--daemon",
        cluster_->endpoint(),        "--server-key", cluster_->dir / "server.pub",     "--keys",
        cluster_->dir / "keys",      "--quiet"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    twins_.push_back(std::make_unique<test::Process>(command, files_ / (job_name(i) + ".log")));
  }
}

std::size_t Fleet::connected() const {
  const json::Value status = cluster_->status();
  std::size_t count = 0;
  for (const json::Value& agent : status.is_object() ? status["agents"] : json::Value::array()) {
    count += agent["connected"].get<bool>() ? 1U : 0U;
  }
  return count;
}

std::int64_t Fleet::last_step() const {
  const json::Value status = cluster_->status();
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const json::Value& job : status.is_object() ? status["jobs"] : json::Value::array()) {
    least = std::min(least, job["last_step"].get<std::int64_t>());
  }
  return least == std::numeric_limits<std::int64_t>::max() ? 0 : least;
}

double Fleet::memory_mib() const {
  std::ifstream in(fmt::format("/proc/{}/statm", cluster_->daemon->pid()));
  double total = 0;
  double resident = 0;
  in >> total >> resident;
  return resident * static_cast<double>(getpagesize()) / (1 << 20);
}

}  // namespace tapas::bench
