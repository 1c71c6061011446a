#include "daemon/recording/recorder.h"

#include "base/log/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace tapas::daemon {
namespace {

/// Room for the last line.
constexpr std::uint64_t kEndBytes = 512;

/// Only a file: what is no recording, a device or a link to somewhere, stays where it is.
Result<void> move_away(const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) {
    return {};
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kInvalid, "{} is there and no file; name another one in `recording`",
                path);
  }
  if (std::rename(path.c_str(), (path + ".1").c_str()) != 0) {
    return fail(ErrorCode::kIo, "cannot move {} to {}.1: {}", path, path, std::strerror(errno));
  }
  return {};
}

/// 0, or what errno says.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      return errno;
    }
    text.remove_prefix(written > 0 ? static_cast<std::size_t>(written) : 0);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Recorder>> Recorder::open(const std::string& path, const Limits& limits,
                                                 const recording::Beginning& beginning) {
  std::string first;
  recording::append_beginning(beginning, first);
  first += '\n';
  if (first.size() + kEndBytes > limits.file_bytes) {
    return fail(ErrorCode::kInvalid,
                "its first line takes {} bytes, recording_mib allows {}: raise recording_mib",
                first.size(), limits.file_bytes);
  }
  if (auto ok = move_away(path); !ok) {
    return tl::unexpected(ok.error());
  }
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
  if (file < 0) {
    return fail(
        ErrorCode::kIo,
        "cannot create {}: {}; see that its folder is there and that tapasd may write to it", path,
        std::strerror(errno));
  }
  return std::unique_ptr<Recorder>(
      new Recorder(path, file, limits, beginning.jobs, std::move(first)));
}

Recorder::Recorder(std::string path, int file, const Limits& limits, JobMap jobs, std::string first)
    : path_(std::move(path)),
      file_(file),
      limits_(limits),
      jobs_(std::move(jobs)),
      bytes_(first.size()),
      waiting_(std::move(first)),
      thread_([this] { run(); }) {}

Recorder::~Recorder() {
  if (!ended_) {
    end("tapasd stopped");
  }
  thread_.join();
  ::close(file_);
}

void Recorder::add(const Event& event, const Now& now, const std::vector<Action>& actions) {
  if (ended_) {
    return;
  }
  line_.clear();
  recording::append_step(jobs_, event, now, actions, line_);
  line_ += '\n';
  bytes_ += line_.size();
  if (bytes_ + kEndBytes > limits_.file_bytes) {
    return give_up(fmt::format("the file has the {} MiB that recording_mib allows",
                               limits_.file_bytes >> 20U));
  }
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    ended_ = refused_;
    full = waiting_.size() + line_.size() > limits_.waiting_bytes;
    if (!full && !refused_) {
      waiting_ += line_;
    }
  }
  ready_.notify_one();
  if (full && !ended_) {
    give_up("the disk did not keep up");
  }
}

void Recorder::give_up(const std::string& why) {
  log::warning("recorder", fmt::format("the recording {} ends: {}", path_, why));
  end(why);
}

void Recorder::end(std::string_view why) {
  ended_ = true;
  std::string line;
  recording::append_end(why, line);
  {
    const std::lock_guard lock(mutex_);
    waiting_ += line + '\n';
    closed_ = true;
  }
  ready_.notify_one();
}

void Recorder::run() {
  std::string text;
  for (bool last = false; !last;) {
    text.clear();
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
      std::swap(text, waiting_);
      last = closed_;
    }
    if (const int error = write_all(file_, text); error != 0) {
      log::warning("recorder",
                   fmt::format("the recording ends: cannot write {}: {}; what is there can be "
                               "replayed",
                               path_, std::strerror(error)));
      const std::lock_guard lock(mutex_);
      refused_ = true;
      waiting_.clear();
      return;
    }
  }
}

}  // namespace tapas::daemon
