#include "base/log/log.h"
#include "config/daemon_config.h"
#include "config/key_file.h"
#include "config/open_files.h"
#include "daemon/control/api.h"
#include "daemon/control/asio.h"
#include "daemon/control/listener.h"
#include "daemon/control/server.h"
#include "daemon/core/core.h"
#include "daemon/dispatch.h"
#include "daemon/net/net.h"
#include "daemon/net/pacing.h"
#include "daemon/recording/recorder.h"
#include "daemon/solver_thread.h"
#include "daemon/store/store.h"
#include "daemon/supervision.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapas::daemon {
namespace {

constexpr int kExitBadConfig = 78;  // EX_CONFIG: systemd does not restart on it
constexpr std::chrono::milliseconds kTick{100};
constexpr std::size_t kOtherFiles = 256;  // Operators, the store, threads.
constexpr unsigned kTicksPerStatus = 10;

struct Inputs {
  std::string path;  ///< of the configuration
  DaemonConfig config;
  std::string secret_key;
  AllowList agents;
  JobMap jobs;
};

/// Everything that can be wrong before anything is touched: what --check-config checks.
Result<Inputs> read_inputs(const std::string& path) {
  Inputs in;
  in.path = path;
  auto config = load_daemon_config(path);
  if (!config) {
    return tl::unexpected(config.error());
  }
  in.config = *std::move(config);
  auto key = read_secret_key(in.config.server_key);
  if (!key) {
    return tl::unexpected(key.error());
  }
  in.secret_key = *std::move(key);
  auto agents = AllowList::load(in.config.agent_keys);
  if (!agents) {
    return tl::unexpected(agents.error());
  }
  in.agents = *std::move(agents);
  auto jobs = load_jobs(in.config.jobs);
  if (!jobs) {
    return tl::unexpected(jobs.error());
  }
  in.jobs = *std::move(jobs);
  return in;
}

Now now() {
  return {std::chrono::steady_clock::now().time_since_epoch(),
          std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::system_clock::now().time_since_epoch())
              .count()};
}

std::vector<std::shared_ptr<const solver::Job>> job_list(const JobMap& jobs) {
  std::vector<std::shared_ptr<const solver::Job>> list;
  for (const auto& [name, job] : jobs) {
    list.push_back(job);
  }
  return list;
}

std::string status_line(const StatusView& status) {
  std::size_t connected = 0;
  for (const AgentView& agent : status.agents) {
    connected += agent.connected ? 1 : 0;
  }
  std::string line = fmt::format("term {}, {} agents, automatic replans {}", status.term, connected,
                                 status.auto_replan ? "on" : "off");
  for (const JobView& job : status.jobs) {
    line +=
        fmt::format("; {} plan {}: {}", job.job, job.plan ? job.plan->epoch.value() : 0, job.phase);
  }
  return line;
}

WireView wire_view(const Net& net) {
  const RecentTimes::Summary reaction = net.reaction();
  return {net.received(),    net.over_limit(), reaction.count,
          reaction.median_s, reaction.p99_s,   reaction.max_s};
}

/// Signals reach the core thread only: the other threads inherit this mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_ = {};
};

/// Reads the configuration again. The core's options take effect, paced for the nodes that may
/// connect; others are named; a file with a mistake changes nothing.
void reload_config(const std::string& path, DaemonConfig& running, std::size_t agents,
                   const std::function<void(const Event&)>& feed) {
  auto fresh = load_daemon_config(path);
  if (!fresh) {
    log::error("main", "the old configuration stays: " + fresh.error().message);
    return;
  }
  if (const auto others = other_changes(running, *fresh); !others.empty()) {
    log::warning("main", fmt::format("needs a restart of tapasd: {}", fmt::join(others, ", ")));
  }
  const auto changes = core_changes(running, *fresh);
  running.core = fresh->core;
  feed(Reconfigured{paced(running.core, agents), fmt::format("{}", fmt::join(changes, ", "))});
}

/// Null when none is wanted. One that cannot be made keeps no daemon from its work.
std::unique_ptr<Recorder> start_recording(const DaemonConfig& config, const CoreConfig& core,
                                          const JobMap& jobs, const Restored& restored) {
  if (config.recording.empty()) {
    return nullptr;
  }
  Recorder::Limits limits;
  limits.file_bytes = static_cast<std::uint64_t>(config.recording_mib) << 20U;
  auto recorder = Recorder::open(config.recording, limits, {TAPAS_VERSION, core, jobs, restored});
  if (!recorder) {
    log::error("main", "nothing is recorded: " + recorder.error().message);
    return nullptr;
  }
  log::info("main",
            fmt::format("recording to {}, {} MiB at most", config.recording, config.recording_mib));
  return *std::move(recorder);
}

/// The wiring. Threads: core (this one, the io_context), net, store, solver, and recorder where
/// there is one. They share nothing but the queues inside Net, Store, SolverThread and Recorder and
/// the io_context's own.
Result<void> serve(Inputs in) {
  DaemonConfig& config = in.config;
  std::size_t node_keys = in.agents.size();

  // Claims state_dir, so that nobody else serves it; everything below relies on that.
  auto store = Store::open({config.state_dir, config.event_rows}, in.jobs);
  if (!store) {
    return tl::unexpected(store.error());
  }
  const CoreConfig core_config = paced(config.core, node_keys);
  Core core(core_config, job_list(in.jobs), (*store)->restored());

  const std::size_t files = node_keys + kOtherFiles;
  if (const std::size_t limit = raise_open_files(); limit < files) {
    log::warning("main", fmt::format("{} nodes may connect, which takes {} open files, but {} are "
                                     "allowed: raise LimitNOFILE of tapasd.service (ulimit -Hn)",
                                     node_keys, files, limit));
  }
  RejectCounter rejects;  // net counts, control reads
  auto net = Net::open({config.listen, in.secret_key, config.agent_keys}, std::move(in.agents),
                       in.jobs, rejects);
  if (!net) {
    return tl::unexpected(net.error());
  }

  asio::io_context io(1);
  std::function<void(const Event&)> feed;  // core thread: event -> core -> actions
  // Any thread -> core.
  const auto post_event = [&io, &feed](Event event) {
    asio::post(io, [&feed, event = std::move(event)] { feed(event); });
  };

  Api api({.status = [&core] { return core.status(now()); },
           .wire = [&net] { return wire_view(**net); },
           .rejected =
               [&core, &rejects] {
                 auto counts = rejects.counts();
                 for (const auto& [reason, count] : core.status(now()).rejected) {
                   counts[reason] += count;
                 }
                 return counts;
               },
           .plan = [&core](const std::string& job) { return core.plan(job); },
           .submit = [&feed](OperatorCommand command) { feed(std::move(command)); },
           .store = store->get(),
           .post = [&io](std::function<void()> work) { asio::post(io, std::move(work)); }},
          in.jobs, config.operator_group);
  auto control = ControlServer::open(io, config.control_socket, config.operator_group, api);
  if (!control) {
    return tl::unexpected(control.error());
  }

  std::unique_ptr<ReadListener> readers;
  if (!config.http_listen.empty()) {
    auto listener = ReadListener::open(io, config.http_listen, api);
    if (!listener) {
      return tl::unexpected(listener.error());
    }
    readers = *std::move(listener);
  }

  std::optional<SignalsBlocked> blocked(std::in_place);
  const auto recorder = start_recording(config, core_config, in.jobs, (*store)->restored());
  SolverThread solver(in.jobs, post_event);  // core -> solver -> core
  Dispatch dispatch(**net, **store, solver, api, post_event);
  const auto decide = [&](const Event& event, std::optional<Net::TimePoint> cause) {
    const Now at = now();
    std::vector<Action> actions = core.apply(event, at);
    if (recorder) {
      recorder->add(event, at, actions);  // core -> recorder
    }
    dispatch.carry_out(std::move(actions), cause);
  };
  feed = [&](const Event& event) { decide(event, std::nullopt); };
  (*store)->start(post_event,  // core -> store -> core, control
                  [&io, &api](std::int64_t last) {
                    asio::post(io, [&api, last] { api.events_stored(last); });
                  });
  (*net)->start([&](std::vector<Event> events, Net::TimePoint came) {  // agents -> net -> core
    asio::post(io, [&decide, &net, events = std::move(events), came] {
      for (const Event& event : events) {
        decide(event, came);
      }
      (*net)->batch_done();
    });
  });
  blocked.reset();

  Supervision supervision;
  unsigned ticks = 0;
  asio::steady_timer timer(io);
  std::function<void(boost::system::error_code)> tick = [&](boost::system::error_code error) {
    if (error) {
      return;
    }
    feed(Tick{});
    const auto steady = std::chrono::steady_clock::now();
    api.tick(steady);
    if (ticks++ % kTicksPerStatus == 0) {
      supervision.status(status_line(core.status(now())));
    }
    supervision.beat((*net)->beats(), (*store)->beats(), steady);
    timer.expires_after(kTick);
    timer.async_wait(tick);
  };
  tick({});

  asio::signal_set stop_signals(io, SIGTERM, SIGINT);
  stop_signals.async_wait([&io](boost::system::error_code error, int signal) {
    if (!error) {
      log::info("main", fmt::format("stopping on signal {}", signal));
      Supervision::stopping();
      io.stop();
    }
  });
  asio::signal_set reload_signals(io, SIGHUP);
  std::function<void(boost::system::error_code, int)> reload = [&](boost::system::error_code error,
                                                                   int) {
    if (error) {
      return;
    }
    Supervision::reloading();
    if (auto agents = AllowList::load(config.agent_keys)) {
      node_keys = agents->size();
      log::info("main", fmt::format("agent keys read again: {} nodes may connect", node_keys));
      (*net)->set_agents(*std::move(agents));
    } else {
      log::error("main", "the old agent keys stay: " + agents.error().message);
    }
    reload_config(in.path, config, node_keys, feed);
    Supervision::ready();
    reload_signals.async_wait(reload);
  };
  reload_signals.async_wait(reload);

  (*control)->start();
  if (readers != nullptr) {
    readers->start();
    log::info("main", fmt::format("metrics and reading at http://{}/", readers->address()));
  }
  Supervision::ready();
  log::info("main", fmt::format("tapasd {} serves {} jobs on {}, {} nodes may connect, term {}, "
                                "operators at {}",
                                TAPAS_VERSION, in.jobs.size(), (*net)->endpoint(), node_keys,
                                (*store)->restored().term, config.control_socket));
  io.run();

  control->reset();  // no new operators
  readers.reset();
  (*net)->stop();    // the last messages go out
  (*store)->stop();  // what the core wanted written is written
  return {};
}

int run(int argc, char** argv) {
  CLI::App app{"tapasd keeps training jobs at their best plan while the cluster changes."};
  std::string config_path = "/etc/tapas/tapasd.json";
  std::string level_name = "info";
  bool check_only = false;
  app.add_option("--config", config_path, "Configuration file (tapas.tapasd/1, JSON with comments)")
      ->capture_default_str();
  app.add_flag("--check-config", check_only,
               "Read the configuration, keys and jobs, say what is wrong, and exit");
  app.add_option("--log-level", level_name, "debug, info, warning or error")->capture_default_str();
  app.set_version_flag("--version", "tapasd " TAPAS_VERSION);
  app.footer(
      fmt::format("\nConfiguration:\n{}\nExamples:\n"
                  "  tapasd --check-config --config /etc/tapas/tapasd.json\n"
                  "  tapasctl key new server --dir /etc/tapas\n"
                  "  systemctl start tapasd && tapasctl status\n\n"
                  "Exit status: 0 stopped, 1 failed, 2 usage, 78 bad configuration.",
                  describe_daemon_options()));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  log::Level level = log::Level::kInfo;
  if (!log::parse_level(level_name, level)) {
    std::cerr << "--log-level " << level_name << ": debug, info, warning or error is expected\n";
    return 2;
  }
  umask(0027);
  log::set_up("tapasd", level);
  auto inputs = read_inputs(config_path);
  if (!inputs) {
    log::error("main", inputs.error().message);
    return kExitBadConfig;
  }
  if (check_only) {
    std::cout << fmt::format("{} is good: {} jobs, {} nodes may connect\n", config_path,
                             inputs->jobs.size(), inputs->agents.size());
    return 0;
  }
  if (auto ok = serve(*std::move(inputs)); !ok) {
    log::error("main", ok.error().message);
    return ok.error().code == ErrorCode::kInvalid ? kExitBadConfig : 1;
  }
  return 0;
}

}  // namespace
}  // namespace tapas::daemon

int main(int argc, char** argv) {
  try {
    return tapas::daemon::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "tapasd: " << error.what() << '\n';
    return 1;
  }
}
