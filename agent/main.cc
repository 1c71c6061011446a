#include "agent/collect/agent_protocol.h"
#include "agent/collect/daemon_link.h"
#include "agent/collect/health_feed.h"
#include "agent/collect/rank_directory.h"
#include "agent/doctor/command.h"
#include "agent/health/command.h"
#include "agent/probe/command.h"
#include "agent/ras/command.h"
#include "base/log/log.h"
#include "config/agent_config.h"
#include "config/key_file.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/random.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace tapas::agent {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitConfig = 78;  // EX_CONFIG: systemd does not restart on it.
constexpr std::string_view kModule = "agent";

volatile std::sig_atomic_t stop_requested = 0;

void request_stop(int /*signal*/) { stop_requested = 1; }

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000.0));
}

std::string_view name_of(AgentProtocol::State state) {
  switch (state) {
    case AgentProtocol::State::kDown:
      return "no connection to";
    case AgentProtocol::State::kGreeting:
      return "waiting for a welcome of";
    case AgentProtocol::State::kWelcome:
      return "connected to";
    case AgentProtocol::State::kRejected:
      return "rejected by";
  }
  return "";
}

/// Ranks -> protocol -> link -> daemon, and back. One thread, so nothing here is locked.
class Agent {
 public:
  Agent(const AgentConfig& config, DaemonLink link, std::uint64_t nonce)
      : config_(config),
        link_(std::move(link)),
        protocol_(protocol_options(config, nonce)),
        ranks_(config.rank_dir, config.node, protocol_) {
    if (config.health_interval_s > 0) {
      health_.emplace(HealthFeed::Options{config.health_interval_s, config.health_root});
    }
  }

  void run() {
    std::uint64_t watchdog_us = 0;
    const bool watched = sd_watchdog_enabled(0, &watchdog_us) > 0;
    auto scan_at = TimePoint::min();
    auto watchdog_at = TimePoint::min();
    while (stop_requested == 0) {
      const TimePoint now = std::chrono::steady_clock::now();
      if (now >= scan_at) {
        ranks_.scan(now);
        scan_at = now + to_ms(config_.scan_interval_s);
      }
      ranks_.poll(now);
      if (health_) {
        if (auto findings = health_->poll(now)) {
          protocol_.set_findings(*std::move(findings));
        }
      }
      protocol_.tick(now);
      act();
      send_telemetry(now);
      show_status();
      if (watched && now >= watchdog_at) {
        sd_notify(0, "WATCHDOG=1");
        watchdog_at = now + std::chrono::microseconds(watchdog_us / 2);
      }
      exchange(now);
    }
  }

 private:
  static AgentProtocol::Options protocol_options(const AgentConfig& config, std::uint64_t nonce) {
    AgentProtocol::Options options;
    options.node = config.node;
    options.nonce = nonce;
    options.phase_timeout = Seconds{config.phase_timeout_s};
    options.order_timeout = Seconds{config.order_timeout_s};
    options.flush_interval = Seconds{config.flush_interval_s};
    options.max_queued_records = static_cast<std::size_t>(config.max_queued_records);
    return options;
  }

  /// Waits for the daemon, at most until the ranks are to be looked at again.
  void exchange(TimePoint now) {
    auto wait = to_ms(config_.poll_interval_s);
    if (const TimePoint wakeup = protocol_.next_wakeup(); wakeup < now + wait) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(wakeup - now);
      wait = std::max(rest, std::chrono::milliseconds{0});
    }
    const DaemonLink::Incoming incoming = link_.poll(wait);
    const TimePoint after = std::chrono::steady_clock::now();
    if (incoming.lost) {
      log::warning(kModule, fmt::format("lost the connection to {}", config_.daemon_endpoint));
      protocol_.disconnected(after);
    }
    if (incoming.connected) {
      protocol_.connected(after);
    }
    for (const wire::ToAgent& message : incoming.messages) {
      protocol_.received(message, after);
    }
    link_.set_spread(protocol_.reconnect_spread_s());
    act();
  }

  void act() {
    for (const Action& action : protocol_.take_actions()) {
      std::visit([this](const auto& typed) { perform(typed); }, action);
    }
  }

  void perform(const wire::ToDaemon& message) {
    if (!link_.send(message)) {
      // The protocol says it again when the connection is back.
      perform(Reconnect{"the connection does not take messages"});
    }
  }
  void perform(const RankCommand& command) { ranks_.send(command); }
  void perform(const StorePlan& plan) {
    if (auto ok = ranks_.store(plan); !ok) {
      log::error(kModule, ok.error().message);  // The ranks cannot read it and will vote no.
    }
  }
  void perform(const Reconnect& reconnect) {
    log::warning_limited(
        kModule, "reconnect",
        fmt::format("new connection to {}: {}", config_.daemon_endpoint, reconnect.reason));
    protocol_.disconnected(std::chrono::steady_clock::now());
    link_.rebuild();
  }
  void perform(const Notice& notice) {
    if (notice.warning) {
      log::warning_limited(kModule, notice.key, notice.text);
    } else {
      log::info(kModule, notice.text);
    }
  }

  void send_telemetry(TimePoint now) {
    while (link_.ready()) {
      auto telemetry = protocol_.next_telemetry(now);
      if (!telemetry) {
        return;
      }
      perform(wire::ToDaemon{*std::move(telemetry)});
    }
  }

  void show_status() {
    std::string status =
        fmt::format("node {}, {} {}, term {}, {} ranks", config_.node, name_of(protocol_.state()),
                    config_.daemon_endpoint, protocol_.term(), protocol_.rank_count());
    if (status != status_) {
      status_ = std::move(status);
      sd_notifyf(0, "STATUS=%s", status_.c_str());
    }
  }

  const AgentConfig& config_;
  DaemonLink link_;
  AgentProtocol protocol_;
  RankDirectory ranks_;
  std::optional<HealthFeed> health_;
  std::string status_;
};

Result<DaemonLink> open_link(const AgentConfig& config, std::uint64_t nonce) {
  auto daemon_key = read_public_key(config.daemon_public_key);
  if (!daemon_key) {
    return tl::unexpected(daemon_key.error());
  }
  auto secret_key = read_secret_key(config.secret_key);
  if (!secret_key) {
    return tl::unexpected(secret_key.error());
  }
  if (::access(config.rank_dir.c_str(), R_OK | W_OK | X_OK) != 0) {
    return fail(ErrorCode::kNotFound, "rank_dir {} cannot be written; create it for this user",
                config.rank_dir);
  }
  return DaemonLink::open({std::make_shared<LinkContext>(), config.daemon_endpoint, config.node,
                           nonce, *std::move(daemon_key), *std::move(secret_key)});
}

int run(int argc, char** argv) {
  CLI::App app{
      "TAPAS agent: sends step records of this node's ranks to tapasd and carries its "
      "switch orders to them.",
      "tapas-agent"};
  app.set_version_flag("--version", "tapas-agent " TAPAS_VERSION);
  std::string path = "/etc/tapas/agent.json";
  bool check_only = false;
  app.add_option("--config", path, "Configuration file")->capture_default_str();
  app.add_flag("--check-config", check_only, "Check the configuration and its keys, then exit");
  app.footer(
      std::string(
          "Examples:\n"
          "  tapas-agent                                run with /etc/tapas/agent.json\n"
          "  tapas-agent --config agent.json            run with another file\n"
          "  tapas-agent --check-config                 exit 0 when it is good, 78 when not\n\n") +
      describe_agent_options());
  std::function<int()> chosen;
  doctor::add_doctor_command(app, chosen);
  health::add_health_command(app, chosen);
  ras::add_ras_command(app, chosen);
  probe::add_probe_command(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (chosen) {
    return chosen();
  }

  const auto config = load_agent_config(path);
  if (!config) {
    fmt::print(stderr, "tapas-agent: {}\n", config.error().message);
    return kExitConfig;
  }
  log::set_up("tapas-agent", config->log_level);
  std::uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof(nonce), 0) != static_cast<ssize_t>(sizeof(nonce))) {
    fmt::print(stderr, "tapas-agent: the system gives no random numbers\n");
    return 1;
  }
  auto link = open_link(*config, nonce);
  if (!link) {
    fmt::print(stderr, "tapas-agent: {}\n", link.error().message);
    return kExitConfig;
  }
  if (check_only) {
    fmt::print("{}: good, node {}, daemon {}\n", path, config->node, config->daemon_endpoint);
    return 0;
  }

  struct sigaction action = {};
  action.sa_handler = request_stop;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);

  Agent agent(*config, *std::move(link), nonce);
  sd_notify(0, "READY=1");
  log::info(kModule, fmt::format("node={} daemon={} rank_dir={}", config->node,
                                 config->daemon_endpoint, config->rank_dir));
  agent.run();
  sd_notify(0, "STOPPING=1");
  return 0;
}

}  // namespace
}  // namespace tapas::agent

int main(int argc, char** argv) { return tapas::agent::run(argc, argv); }
