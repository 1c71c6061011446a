#include "agent/ras/command.h"

#include "agent/ras/client.h"
#include "agent/ras/output.h"
#include "base/endpoint.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

namespace tapas::agent::ras {

namespace {

constexpr int kNothingWrong = 0;
constexpr int kSomethingWrong = 1;
constexpr int kUsage = 2;
constexpr int kNoAnswer = 3;
constexpr std::size_t kSentencesShown = 50;

struct Options {
  std::string address = "localhost:28028";
  std::string format = "text";
  double timeout_s = 10;
  double wait_s = 5;
};

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000.0));
}

/// Asks again where what RAS says may be a matter of the moment.
Result<Report> look(const HostPort& address, const Options& options) {
  Limits limits;
  limits.deadline = to_ms(options.timeout_s);
  auto first = query(address, limits);
  const bool passing =
      first && std::any_of(first->findings.begin(), first->findings.end(),
                           [](const Finding& finding) { return may_pass(finding.kind); });
  if (!passing || options.wait_s <= 0) {
    return first;
  }
  std::this_thread::sleep_for(to_ms(options.wait_s));
  auto second = query(address, limits);
  if (!second) {
    return second;
  }
  return lasting(*first, *std::move(second));
}

void print(const Report& report, const Options& options) {
  if (options.format == "json") {
    fmt::print("{}\n", json::dump(to_json(report), 2));
    return;
  }
  fmt::print("{}\n", summary(report));
  const std::size_t shown = std::min(report.findings.size(), kSentencesShown);
  for (std::size_t i = 0; i < shown; ++i) {
    fmt::print("{}\n", sentence(report.findings[i]));
  }
  const std::size_t rest = report.findings.size() - shown + report.left_out;
  if (rest > 0) {
    fmt::print("{} more; -o json lists them.\n", rest);
  }
  if (report.findings.empty() && report.left_out == 0) {
    fmt::print("Nothing wrong: every rank answers, none lags.\n");
  }
}

int run(const Options& options) {
  const auto address = parse_host_port(options.address);
  if (!address) {
    fmt::print(stderr, "tapas-agent ras: {}\n", address.error().message);
    return kUsage;
  }
  const auto report = look(*address, options);
  if (!report) {
    fmt::print(stderr, "tapas-agent ras: {}\n", report.error().message);
    if (report.error().code == ErrorCode::kUnavailable) {
      fmt::print(stderr,
                 "Does a job run on this host with NCCL 2.24 or later, without NCCL_RAS_ENABLE=0? "
                 "Give its NCCL_RAS_ADDR if it has one.\n");
    } else if (report.error().code == ErrorCode::kTimeout) {
      fmt::print(stderr,
                 "The processes that listen there may hang themselves: ask on another host of the "
                 "job, or with a larger --timeout.\n");
    }
    return kNoAnswer;
  }
  print(*report, options);
  return report->findings.empty() && report->left_out == 0 ? kNothingWrong : kSomethingWrong;
}

}  // namespace

void add_ras_command(CLI::App& app, std::function<int()>& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "ras", "Ask NCCL which ranks of a job on this host are dead, missing or behind");
  command->add_option("ADDRESS", options->address, "Where a job's NCCL listens, host:port")
      ->envname("NCCL_RAS_ADDR")
      ->capture_default_str();
  command->add_option("-o,--output", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command->add_option("--timeout", options->timeout_s, "Seconds until an answer must be there")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--wait", options->wait_s,
                   "Seconds until it asks again where ranks lag, leave or are not there yet, and "
                   "tells only what has not moved; 0: ask once")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  tapas-agent ras                       the job of this host, at NCCL's usual port\n"
      "  tapas-agent ras 10.0.0.7:28028        another address, if the job's NCCL_RAS_ADDR has it\n"
      "  tapas-agent ras -o json --wait 0      for a script, one look\n\n"
      "Exit codes: 0 nothing wrong, 1 something wrong, 2 usage, 3 no answer.\n");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace tapas::agent::ras
