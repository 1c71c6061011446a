#include "agent/health/command.h"

#include "agent/health/read_node.h"
#include "agent/health/report.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

namespace tapas::agent::health {
namespace {

constexpr double kMaxIntervalS = 3600;

struct Options {
  std::string root = "/";
  std::string format = "table";
  double interval_s = 1;
};

int run(const Options& options) {
  const std::string root = options.root == "/" ? "" : options.root;
  const Roots roots = {root + "/sys", root + "/proc"};
  const auto before = read_node(roots);
  if (!before) {
    fmt::print(stderr, "tapas-agent health: {}; --root takes a folder that holds sys and proc\n",
               before.error().message);
    return 1;
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_s));
  auto now = read_node(roots);
  if (!now) {
    fmt::print(stderr, "tapas-agent health: {} any more\n", now.error().message);
    return 1;
  }
  Report report;
  report.rates = rates_between(*before, *now);
  report.findings = findings(*now, report.rates);
  report.node = *std::move(now);
  const std::string text = options.format == "json" ? to_json(report) : to_text(report);
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return written && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

void add_health_command(CLI::App& app, std::function<int()>& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("health",
                                      "Show what /sys and /proc tell of this node's GPUs, NICs and "
                                      "pressure, and what is wrong. Needs "
                                      "no configuration and no daemon");
  verb->add_option("--root", options->root,
                   "Folder that holds sys and proc, such as a copy of them")
      ->capture_default_str();
  verb->add_option("-o,--output", options->format, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  verb->add_option("--interval", options->interval_s,
                   "Seconds between the two readings that rates come from")
      ->check(CLI::Range(0.001, kMaxIntervalS))
      ->capture_default_str();
  verb->footer(
      "Examples:\n"
      "  tapas-agent health                         devices, rates over a second, findings\n"
      "  tapas-agent health --interval 60           errors that come once a minute, too\n"
      "  tapas-agent health -o json | jq .findings  for programs (docs/agent.md)\n"
      "  tapas-agent health --root /tmp/node7       what a copied tree says\n");
  verb->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace tapas::agent::health
