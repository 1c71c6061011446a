#include "agent/probe/command.h"

#include "agent/probe/listener.h"
#include "agent/probe/prober.h"
#include "agent/probe/report.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapas::agent::probe {

namespace {

constexpr int kWell = 0;
constexpr int kSlow = 1;
constexpr int kUsage = 2;
constexpr int kNoAnswer = 3;
constexpr const char* kListenAt = "0.0.0.0:28100";
constexpr double kBytesPerGbit = 1e9 / 8;

struct Options {
  std::string peer;
  std::string token;
  std::string format = "text";
  double timeout_s = 20;

  bool listen = false;
  std::string listen_at;
  std::vector<std::string> allowed;
  double open_s = 600;
  bool once = false;

  double share = 0.1;
  double gbit_per_s = 0;  ///< 0: a share.
  bool full = false;
  double seconds = 2;
  std::uint64_t bytes = std::uint64_t{1} << 30U;
};

Limits limits_of(const Options& options) {
  Limits limits;
  limits.share.reset();
  if (options.gbit_per_s > 0) {
    limits.bytes_per_s = options.gbit_per_s * kBytesPerGbit;
  } else if (!options.full) {
    limits.share = options.share;
  }
  limits.seconds = options.seconds;
  limits.bytes = options.bytes;
  return limits;
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

int complain(const Error& error, int exit_code) {
  fmt::print(stderr, "tapas-agent probe: {}\n", error.message);
  return exit_code;
}

int listen(const Options& options) {
  const auto at = parse_host_port(options.listen_at.empty() ? kListenAt : options.listen_at, true);
  if (!at) {
    return complain(at.error(), kUsage);
  }
  Service service;
  for (const std::string& text : options.allowed) {
    const auto range = IpRange::parse(text);
    if (!range) {
      return complain(range.error(), kUsage);
    }
    service.allowed.push_back(*range);
  }
  auto token = make_token();
  if (!token) {
    return complain(token.error(), kNoAnswer);
  }
  auto door = Door::open(*at);
  if (!door) {
    return complain(door.error(), kNoAnswer);
  }
  service.limits = limits_of(options);
  service.token = *std::move(token);
  service.until = after(options.open_s);
  service.once = options.once;
  fmt::print(
      "Listening at port {} for {:g} s. On the other node:\n"
      "tapas-agent probe THIS_NODE:{} --token {}\n",
      door->port(), options.open_s, door->port(), service.token);
  std::fflush(stdout);
  const auto done = serve(*door, service, [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  });
  if (!done) {
    return complain(done.error(), kNoAnswer);
  }
  if (*done == 0) {
    return complain({ErrorCode::kTimeout, "nobody was served"}, kNoAnswer);
  }
  return kWell;
}

int ask(const Options& options) {
  const auto peer = parse_host_port(options.peer);
  if (!peer) {
    return complain(peer.error(), kUsage);
  }
  const auto report = probe(*peer, options.token, limits_of(options), after(options.timeout_s));
  if (!report) {
    complain(report.error(), kNoAnswer);
    if (report.error().code == ErrorCode::kUnavailable) {
      fmt::print(
          stderr,
          "Does tapas-agent probe --listen run there, does its --allow name this node, and does no "
          "firewall stop it?\n");
    } else if (report.error().code == ErrorCode::kTimeout) {
      fmt::print(stderr,
                 "The listener may serve another node: try again. If it does not: that the "
                 "connection stands still is a finding about this link or that node.\n");
    }
    return kNoAnswer;
  }
  if (options.format == "json") {
    fmt::print("{}\n", json::dump(to_json(*report), 2));
  } else {
    fmt::print("{}", to_text(*report));
  }
  return well(*report) ? kWell : kSlow;
}

int run(const Options& options) {
  if (options.listen == !options.peer.empty()) {
    return complain(
        {ErrorCode::kInvalid, "give either --listen, or the HOST:PORT where another node listens"},
        kUsage);
  }
  return options.listen ? listen(options) : ask(options);
}

void add_limits(CLI::App& command, Options& options) {
  auto* share = command.add_option("--share", options.share, "Most of the nominal speed to use")
                    ->check(CLI::Range(0.001, 1.0))
                    ->capture_default_str();
  auto* rate =
      command.add_option("--rate", options.gbit_per_s, "Gbit/s to try, instead of a share")
          ->check(CLI::Range(0.0001, 8000.0))
          ->excludes(share);
  command.add_flag("--full", options.full, "As fast as it goes: for drills, not beside a job")
      ->excludes(share)
      ->excludes(rate);
  command.add_option("--seconds", options.seconds, "Most seconds each way")
      ->check(CLI::Range(0.2, kMaxSeconds))
      ->capture_default_str();
  command.add_option("--bytes", options.bytes, "Most bytes each way, such as 512MiB")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::Range(std::uint64_t{1} << 20U, kMaxBytes))
      ->default_str("1GiB");
}

}  // namespace

void add_probe_command(CLI::App& app, std::function<int()>& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "probe", "Measure what the link between two nodes carries, each way, with a bounded load");
  command->add_option("HOST:PORT", options->peer, "Where the other node listens");
  command->add_option("--token", options->token, "What the listener printed")
      ->envname("TAPAS_PROBE_TOKEN");
  command->add_option("-o,--output", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command->add_option("--timeout", options->timeout_s, "Seconds until all must be over")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  auto* listen = command->add_option("--listen", options->listen_at,
                                     "Serve other nodes at ADDRESS:PORT (0.0.0.0:28100)");
  listen->expected(0, 1);
  command->add_option("--allow", options->allowed, "Listener: serve only these, such as 10.0.0.0/8")
      ->needs(listen);
  command->add_option("--for", options->open_s, "Listener: seconds until it stops")
      ->check(CLI::Range(0.1, 86'400.0))
      ->capture_default_str()
      ->needs(listen);
  command->add_flag("--once", options->once, "Listener: stop after one probe")->needs(listen);
  add_limits(*command, *options);
  command->footer(
      "Each end keeps to its own limits, so a load is the lesser of what both allow.\n\n"
      "Examples:\n"
      "  tapas-agent probe --listen --once                on one node; prints a token\n"
      "  tapas-agent probe n17:28100 --token TOKEN        on the other\n"
      "  tapas-agent probe n17:28100 --token TOKEN -o json --rate 5\n\n"
      "Exit codes: 0 both directions carry what was tried, 1 one does not, 2 usage, 3 no "
      "answer.\n");
  command->callback([options, listen, &chosen] {
    options->listen = listen->count() > 0;
    chosen = [options] { return run(*options); };
  });
}

}  // namespace tapas::agent::probe
