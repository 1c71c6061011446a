#include "agent/health/command.h"

#include "agent/health/look.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace tapas::agent::health {
namespace {

constexpr double kMaxSeconds = 3600;

struct Options {
  std::string root = "/";
  std::string format = "table";
  std::string nvml;
  double interval_s = 1;
  double timeout_s = 10;
  bool follow = false;
};

int run(const Options& options) {
  const bool here = options.root == "/";
  LookOptions look_options;
  look_options.roots = {here ? "/sys" : options.root + "/sys",
                        here ? "/proc" : options.root + "/proc"};
  look_options.nvml = here && options.nvml.empty() ? "libnvidia-ml.so.1" : options.nvml;
  look_options.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_s * 1000));
  look_options.interval = std::chrono::duration<double>(options.interval_s);
  bool written = false;
  const auto looked = look(look_options, [&](const Report& report) {
    const std::string text =
        options.format == "json" ? to_json(report, options.follow) : to_text(report);
    written =
        std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    return written && options.follow;
  });
  if (!looked) {
    fmt::print(stderr, "tapas-agent health: {}; --root takes a folder that holds sys and proc\n",
               looked.error().message);
    return 1;
  }
  return written ? 0 : 1;
}

}  // namespace

void add_health_command(CLI::App& app, std::function<int()>& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("health",
                         "Show what /sys, /proc and NVIDIA's driver tell of this node's "
                         "GPUs, NICs and pressure, and what is wrong. Needs no "
                         "configuration and no daemon");
  verb->add_option("--root", options->root,
                   "Folder that holds sys and proc, such as a copy of them")
      ->capture_default_str();
  verb->add_option("-o,--output", options->format, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  verb->add_option("--interval", options->interval_s,
                   "Seconds between the two readings that rates come from")
      ->check(CLI::Range(0.001, kMaxSeconds))
      ->capture_default_str();
  verb->add_option("--timeout", options->timeout_s,
                   "Seconds that the kernel, and NVML, each have for one reading")
      ->check(CLI::Range(0.001, kMaxSeconds))
      ->capture_default_str();
  verb->add_option(
      "--nvml", options->nvml,
      "NVIDIA's management library; libnvidia-ml.so.1 by default, and none with --root");
  verb->add_flag("--follow", options->follow,
                 "Go on: a report every interval, in JSON one line each");
  verb->footer(
      "Examples:\n"
      "  tapas-agent health                         devices, rates over a second, findings\n"
      "  tapas-agent health --interval 60           errors that come once a minute, too\n"
      "  tapas-agent health -o json | jq .findings  for programs (docs/agent.md)\n"
      "  tapas-agent health --follow --interval 60 -o json >> health.jsonl\n"
      "  tapas-agent health --root /tmp/node7       what a copied tree says\n");
  verb->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace tapas::agent::health
