#include "agent/doctor/command.h"

#include "agent/doctor/checks.h"
#include "agent/health/look.h"
#include "base/json/json.h"
#include "base/log/log.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace tapas::agent::doctor {

namespace {

struct Options {
  std::string config = "/etc/tapas/agent.json";
  std::string format = "text";
  std::string ras = "localhost:28028";
  double timeout_s = 5;
};

/// First of all: its child processes need this one to have no other threads.
Result<health::NodeHealth> look_at_node() {
  health::LookOptions options;
  options.interval = std::chrono::duration<double>(0);
  health::NodeHealth node;
  return health::look(options,
                      [&](const health::Report& report) {
                        node = report.node;
                        return false;
                      })
      .map([&] { return node; });
}

std::vector<Check> examine(const Options& options) {
  const auto node = look_at_node();
  const auto patience = std::chrono::milliseconds(static_cast<int>(options.timeout_s * 1000));
  std::vector<Check> checks;
  const auto config = load_agent_config(options.config);
  if (config) {
    checks.push_back(
        {"config", State::kGood, fmt::format("{}, node {}", options.config, config->node), ""});
    checks.push_back(check_daemon(*config, patience));
    checks.push_back(check_rank_dir(*config));
    checks.push_back(check_ranks(*config));
  } else {
    checks.push_back({"config", State::kBroken, config.error().message,
                      "`tapas-agent --help` has every key, config/examples/agent.json an example; "
                      "--config takes another file"});
  }
  checks.push_back(check_clock());
  if (node) {
    checks.push_back(check_gpus(*node));
    checks.push_back(check_rdma(*node));
    checks.push_back(check_pressure(*node));
  } else {
    checks.push_back({"health", State::kNote, node.error().message,
                      "mount /sys into the agent's container to have the node's health"});
  }
  checks.push_back(check_nccl(options.ras, patience));
  return checks;
}

std::string to_json(const std::vector<Check>& checks) {
  json::Value list = json::Value::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"state", to_string(check.state)},
                    {"seen", check.seen},
                    {"advice", check.advice}});
  }
  return json::dump({{"schema", "tapas.doctor/1"}, {"checks", std::move(list)}}, 2) + "\n";
}

std::string to_text(const std::vector<Check>& checks) {
  std::string text;
  for (const Check& check : checks) {
    text += fmt::format("{:<7} {:<9} {}\n", to_string(check.state), check.name, check.seen);
    if (!check.advice.empty()) {
      text += fmt::format("{:<17} -> {}\n", "", check.advice);
    }
  }
  return text;
}

int run(const Options& options) {
  log::set_up("tapas-agent", log::Level::kError);  // The checks say it themselves.
  const std::vector<Check> checks = examine(options);
  const std::string text = options.format == "json" ? to_json(checks) : to_text(checks);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return 1;
  }
  return std::any_of(checks.begin(), checks.end(),
                     [](const Check& check) { return check.state == State::kBroken; })
             ? 1
             : 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, std::function<int()>& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "doctor", "Say what this node lacks for TAPAS and how to get it; changes nothing");
  verb->add_option("--config", options->config, "The agent's configuration")->capture_default_str();
  verb->add_option("-o,--output", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  verb->add_option("--ras", options->ras, "Where a job's NCCL listens, host:port")
      ->envname("NCCL_RAS_ADDR")
      ->capture_default_str();
  verb->add_option("--timeout", options->timeout_s,
                   "Seconds that the daemon, and NCCL, may take to answer")
      ->check(CLI::Range(0.1, 60.0))
      ->capture_default_str();
  verb->footer(
      "Exit code: 0 the agent works, 1 something is broken, 2 usage.\n"
      "Examples:\n"
      "  sudo -u tapas tapas-agent doctor             as the agent's user, who reads its key\n"
      "  tapas-agent doctor -o json | jq '.checks[] | select(.state != \"good\")'\n"
      "  tapas-agent doctor --config ./agent.json\n");
  verb->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace tapas::agent::doctor
