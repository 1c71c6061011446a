#include "agent/twin/session.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <sstream>
#include <vector>

namespace tapas::twin {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration;

constexpr double kLongestWaitS = 0.1;
/// How far the job may fall behind its speed before it stops catching up.
constexpr double kMaxBehindS = 0.1;
/// After the last step: time for the last records to leave.
constexpr double kFarewellS = 0.6;
constexpr std::size_t kMaxLine = 4096;

bool readable(int fd) {
  pollfd item = {fd, POLLIN, 0};
  return ::poll(&item, 1, 0) > 0;
}

double seconds_until(agent::TimePoint when, agent::TimePoint now) {
  return when == agent::TimePoint::max() ? kLongestWaitS : duration<double>(when - now).count();
}

}  // namespace

Session::Session(const solver::Job& model, VirtualJob& job, Fleet& fleet, Report& report,
                 int signal_fd, bool quiet)
    : model_(model),
      job_(job),
      fleet_(fleet),
      report_(report),
      signal_fd_(signal_fd),
      quiet_(quiet) {}

Result<void> Session::run() {
  auto before = Clock::now();
  auto shown = before;
  double behind_s = 0;
  auto end = agent::TimePoint::max();
  while (!quit_ && before < end) {
    const double wait_s = std::min({kLongestWaitS, seconds_until(fleet_.next_wakeup(), before),
                                    std::max(0.0, job_.next_event_s() - behind_s)});
    std::vector<int> fds = {signal_fd_};
    if (commands_open_) {
      fds.push_back(STDIN_FILENO);
    }
    fleet_.wait(std::max(0.0, wait_s), fds);
    const auto now = Clock::now();
    if (readable(signal_fd_)) {
      break;
    }
    read_commands();
    fleet_.run(now);
    behind_s =
        std::min(kMaxBehindS, job_.advance(duration<double>(now - before).count() + behind_s));
    collect(now);
    fleet_.run(now);
    before = now;

    if (now - shown >= std::chrono::seconds(1)) {
      shown = now;
      show_progress();
    }
    if (job_.phase() == VirtualJob::Phase::kDone && end == agent::TimePoint::max()) {
      end = now + std::chrono::duration_cast<Clock::duration>(duration<double>(kFarewellS));
    }
    if (job_.phase() == VirtualJob::Phase::kWaitingForPlan && fleet_.running() > 0 &&
        fleet_.rejected() == fleet_.running()) {
      return fail(
          ErrorCode::kDenied,
          "the daemon rejects all {} agents; see its log, and check that its agent_keys hold "
          "<node>.pub of this cluster's nodes",
          fleet_.running());
    }
  }
  return {};
}

void Session::collect(agent::TimePoint now) {
  if (const auto change = job_.take_switch()) {
    report_.add(*change);
  }
  if (const auto step = job_.take_step()) {
    fleet_.record(*step, now);
    report_.add(*step, std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count());
    last_step_s_ = step->truth.wall_s;
    faults_ = report_.describe(step->faults);
  }
}

void Session::show_progress() {
  if (quiet_) {
    return;
  }
  std::string text = fmt::format("agents {}/{}  ", fleet_.welcome(), model_.cluster.nodes.size());
  switch (job_.phase()) {
    case VirtualJob::Phase::kWaitingForPlan:
      text += "waiting for a plan";
      break;
    case VirtualJob::Phase::kBroken:
      text += fmt::format("step {}  a rank died, the job starts anew", job_.last_step());
      break;
    case VirtualJob::Phase::kHolding:
      text += fmt::format("step {}  epoch {}  holding for switch to epoch {}", job_.last_step(),
                          job_.epoch(), job_.pending_epoch());
      break;
    case VirtualJob::Phase::kBetweenSteps:
    case VirtualJob::Phase::kStepping:
    case VirtualJob::Phase::kDone:
      text += fmt::format("step {}  epoch {}  {:.3f} s/step", job_.last_step(), job_.epoch(),
                          last_step_s_);
      break;
  }
  if (!faults_.empty()) {
    text += "  slowed: " + faults_;
  }
  fmt::print(stderr, "{}\n", text);
}

void Session::read_commands() {
  if (!commands_open_ || !readable(STDIN_FILENO)) {
    return;
  }
  std::array<char, 1024> buffer = {};
  const ssize_t size = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (size <= 0) {
    commands_open_ = false;
    return;
  }
  typed_.append(buffer.data(), static_cast<std::size_t>(size));
  for (std::size_t end = typed_.find('\n'); end != std::string::npos; end = typed_.find('\n')) {
    const std::string answer = command(typed_.substr(0, end));
    if (!answer.empty()) {
      fmt::print("{}\n", answer);
      std::fflush(stdout);
    }
    typed_.erase(0, end + 1);
  }
  if (typed_.size() > kMaxLine) {
    typed_.clear();
  }
}

std::string Session::add_fault(std::string_view verb, std::istringstream& words) {
  std::string first;
  std::string second;
  std::string third;
  std::string fourth;
  words >> first >> second >> third >> fourth;
  std::string text;
  if (verb == "slow" || verb == "input") {
    text = fmt::format("node={} {}={}{}", first, verb == "slow" ? "slowdown" : "input_s", second,
                       third.empty() ? "" : fmt::format(" {}={}", third, fourth));
  } else if (verb == "link") {
    text = fmt::format("node={} {}={}", first, second, third);
  } else {
    text = fmt::format("from={} to={} path={}", first, second, third);
  }
  const auto fault = parse_fault(text, model_.cluster);
  if (!fault) {
    return fault.error().message;
  }
  job_.faults().add(*fault);
  return fmt::format("{} from the next step on", report_.describe({*fault}));
}

std::string Session::kill_rank(const std::string& number) {
  std::uint32_t value = 0;
  const char* end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, value);
  if (error != std::errc{} || rest != end || value >= model_.cluster.device_count()) {
    return fmt::format("kill-rank: \"{}\" is no rank of cluster {}; they are 0 to {}", number,
                       model_.cluster.name, model_.cluster.device_count() - 1);
  }
  const RankId rank{value};
  if (!job_.kill(rank)) {
    return fmt::format("rank {}: dead already, or the job is done", rank);
  }
  return fmt::format("rank {} on {}: killed; the job starts anew after step {}", rank,
                     model_.cluster.nodes[model_.cluster.node_of(rank).value()].name,
                     job_.last_step());
}

std::string Session::command(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string verb;
  std::string name;
  words >> verb;
  if (verb.empty()) {
    return {};
  }
  if (verb == "quit") {
    quit_ = true;
    return "stopping";
  }
  if (verb == "status") {
    return fmt::format("step {} epoch {} pending {} job time {:.1f} s agents {}/{} faults: {}",
                       job_.last_step(), job_.epoch(), job_.pending_epoch(), job_.time_s(),
                       fleet_.welcome(), fleet_.running(), faults_.empty() ? "none" : faults_);
  }
  if (verb == "slow" || verb == "input" || verb == "link" || verb == "path") {
    return add_fault(verb, words);
  }
  if (verb == "kill-rank") {
    words >> name;
    return kill_rank(name);
  }
  if (verb != "heal" && verb != "kill-agent" && verb != "start-agent") {
    return fmt::format(
        "unknown command {}; known: slow NODE FACTOR [device K], input NODE SECONDS [device K], "
        "link NODE send|receive|inside FACTOR, path FROM TO FACTOR, heal NODE, kill-agent NODE, "
        "start-agent NODE, kill-rank RANK, status, quit",
        verb);
  }
  words >> name;
  const auto node = model_.cluster.find(name);
  if (!node) {
    return fmt::format("{}: cluster {} has no node \"{}\"", verb, model_.cluster.name, name);
  }
  if (verb == "heal") {
    const std::size_t healed = job_.faults().heal(*node, job_.last_step() + 1, job_.time_s());
    return fmt::format("{}: {} fault(s) end with this step", name, healed);
  }
  if (verb == "kill-agent") {
    fleet_.kill(*node);
    return fmt::format("{}: agent stopped", name);
  }
  const auto started = fleet_.start(*node, Clock::now());
  return started ? fmt::format("{}: agent started", name) : started.error().message;
}

}  // namespace tapas::twin
