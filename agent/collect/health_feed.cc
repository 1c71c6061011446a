#include "agent/collect/health_feed.h"

#include "base/json/json.h"
#include "base/log/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

extern char** environ;

namespace tapas::agent {

namespace {

constexpr std::string_view kModule = "health";
constexpr std::size_t kMaxLineBytes = 4U << 20U;
constexpr json::ParseLimits kLimits{.max_bytes = kMaxLineBytes, .max_depth = 8, .comments = false};
/// A reading that takes this much longer than it should hangs.
constexpr std::chrono::seconds kPatience{30};
constexpr std::chrono::minutes kRestart{1};

std::string text_of(const json::Value& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

HealthFeed::HealthFeed(Options options) : options_(std::move(options)) {}

HealthFeed::~HealthFeed() { stop(); }

void HealthFeed::start(TimePoint now) {
  std::array<int, 2> ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return;
  }
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const std::string interval = fmt::format("{}", options_.interval_s);
  std::array<const char*, 10> words = {
      "tapas-agent",         "health", "--follow", "--interval", interval.c_str(), "--root",
      options_.root.c_str(), "-o",     "json",     nullptr};
  const int error = ::posix_spawn(&child_, options_.program.c_str(), &actions, nullptr,
                                  const_cast<char**>(words.data()), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    child_ = -1;
    log::warning_limited(kModule, "start",
                         fmt::format("the node's health is not read: {}", std::strerror(error)));
    return;
  }
  pipe_ = ends[0];
  partial_.clear();
  expect_word(now);
}

void HealthFeed::expect_word(TimePoint now) {
  const std::chrono::duration<double> two_readings(2 * options_.interval_s);
  silent_at_ = now + kPatience + std::chrono::duration_cast<TimePoint::duration>(two_readings);
}

void HealthFeed::stop() {
  if (pipe_ >= 0) {
    ::close(pipe_);
    pipe_ = -1;
    ::kill(child_, SIGKILL);
  }
}

/// A process in an uninterruptible read outlives its kill: it is not waited for, and no other one
/// started beside it.
bool HealthFeed::gone() {
  if (child_ > 0 && ::waitpid(child_, nullptr, WNOHANG) == child_) {
    child_ = -1;
  }
  return child_ < 0;
}

/// False at the end of the process.
bool HealthFeed::read_lines() {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t count = ::read(pipe_, buffer.data(), buffer.size());
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
      return false;
    }
    if (count < 0) {
      return true;
    }
    partial_.append(buffer.data(), static_cast<std::size_t>(count));
    if (partial_.size() > kMaxLineBytes) {
      return false;
    }
  }
}

void HealthFeed::take(const std::string& line) {
  const auto report = json::parse(line, kLimits);
  latest_.clear();
  if (!report || !report->is_object() || !report->contains("findings")) {
    return;
  }
  for (const json::Value& finding : (*report)["findings"]) {
    if (finding.is_object()) {
      latest_.push_back(
          {text_of(finding, "device"), text_of(finding, "kind"), text_of(finding, "text")});
    }
  }
}

std::vector<wire::Finding> HealthFeed::held(TimePoint now) {
  for (wire::Finding& finding : latest_) {
    held_[{finding.device, finding.kind}] = {std::move(finding.text), now};
  }
  latest_.clear();
  std::erase_if(held_, [now](const auto& one) { return now - one.second.seen > kHold; });
  std::vector<wire::Finding> out;
  for (const auto& [key, value] : held_) {
    out.push_back({key.first, key.second, value.text});
  }
  return out;
}

std::optional<std::vector<wire::Finding>> HealthFeed::poll(TimePoint now) {
  if (pipe_ < 0) {
    if (gone() && now >= start_at_) {
      start_at_ = now + kRestart;
      start(now);
    }
    return std::nullopt;
  }
  const bool alive = read_lines();
  bool fresh = false;
  for (std::size_t end = 0; (end = partial_.find('\n')) != std::string::npos;) {
    take(partial_.substr(0, end));
    partial_.erase(0, end + 1);
    expect_word(now);
    fresh = true;
  }
  if (!alive || now >= silent_at_) {
    stop();
    latest_.push_back({"node", "health_silent",
                       alive ? "the node's health cannot be read: a driver that is asked does not "
                               "answer"
                             : "the node's health cannot be read: what reads it has ended"});
    fresh = true;
  }
  return fresh ? std::optional(held(now)) : std::nullopt;
}

}  // namespace tapas::agent
