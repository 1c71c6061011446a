#include "base/log/log.h"

#include "base/log/limiter.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace tapas::log {

namespace {

/// sd-daemon(3): the variable holds the device and inode of the stream that the journal reads. A
/// child with its own stderr inherits the variable too, so the numbers decide.
bool stderr_is_journal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat status {};
  return stream != nullptr && fstat(STDERR_FILENO, &status) == 0 &&
         fmt::format("{}:{}", status.st_dev, status.st_ino) == stream;
}

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

/// syslog(3) priorities.
std::string_view journal_prefix(Level level) {
  switch (level) {
    case Level::kDebug:
      return "<7>";
    case Level::kInfo:
      return "<6>";
    case Level::kWarning:
      return "<4>";
    case Level::kError:
      return "<3>";
  }
  return "<3>";
}

struct Output {
  std::shared_ptr<spdlog::logger> logger;
  bool journal = false;
};

Output make_output(std::string_view program, Level level) {
  Output output;
  output.journal = stderr_is_journal();
  output.logger = std::make_shared<spdlog::logger>(
      std::string(program), std::make_shared<spdlog::sinks::stderr_sink_mt>());
  output.logger->set_level(spdlog_level(level));
  output.logger->set_pattern(output.journal ? "%v" : "%Y-%m-%dT%H:%M:%S.%e%z %l %n %v");
  return output;
}

Output& output() {
  static Output instance = make_output("tapas", Level::kInfo);
  return instance;
}

/// One line whatever a message quotes: a peer must not be able to forge lines or priorities.
std::string one_line(std::string_view message) {
  std::string line(message);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      c = ' ';
    }
  }
  return line;
}

}  // namespace

void set_up(std::string_view program, Level level) { output() = make_output(program, level); }

bool parse_level(std::string_view text, Level& level) {
  if (text == "debug") {
    level = Level::kDebug;
  } else if (text == "info") {
    level = Level::kInfo;
  } else if (text == "warning") {
    level = Level::kWarning;
  } else if (text == "error") {
    level = Level::kError;
  } else {
    return false;
  }
  return true;
}

void write(Level level, std::string_view module, std::string_view message) {
  const Output& out = output();
  if (!out.logger->should_log(spdlog_level(level))) {
    return;
  }
  const std::string line =
      fmt::format("{}{}: {}", out.journal ? journal_prefix(level) : "", module, one_line(message));
  out.logger->log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

void warning_limited(std::string_view module, const std::string& key, std::string_view message) {
  static std::mutex mutex;
  static Limiter limiter(std::chrono::seconds(10), 1024);
  std::optional<std::uint64_t> held;
  {
    const std::lock_guard lock(mutex);
    held = limiter.admit(fmt::format("{}/{}", module, key), Limiter::Clock::now());
  }
  if (!held) {
    return;
  }
  if (*held == 0) {
    warning(module, message);
  } else {
    warning(module, fmt::format("{} ({} more like this held back)", message, *held));
  }
}

}  // namespace tapas::log
