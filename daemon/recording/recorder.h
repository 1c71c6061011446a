#pragma once

#include "base/result.h"
#include "daemon/recording/format.h"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tapas::daemon {

/// Writes what the core is told and does into a file, on a thread of its own: the core pays for
/// putting it into text. A recording with a hole would be worth nothing, so it ends for good, with
/// a line that says why, when its file is as large as it may be or the disk does not keep up; and
/// without one when the disk refuses. Each is logged once.
class Recorder {
 public:
  struct Limits {
    std::uint64_t file_bytes = 256U << 20U;
    std::size_t waiting_bytes = 64U << 20U;  ///< for the disk
  };

  /// A file that is there already moves to PATH.1. Errors name the path.
  [[nodiscard]] static Result<std::unique_ptr<Recorder>> open(
      const std::string& path, const Limits& limits, const recording::Beginning& beginning);
  /// Writes what waits, and a last line.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// What one Core::apply() was told and did. Core thread only.
  void add(const Event& event, const Now& now, const std::vector<Action>& actions);

 private:
  Recorder(std::string path, int file, const Limits& limits, JobMap jobs, std::string first);
  void give_up(const std::string& why);
  void end(std::string_view why);
  void run();

  const std::string path_;
  const int file_;
  const Limits limits_;
  const JobMap jobs_;

  // Core thread.
  std::string line_;
  std::uint64_t bytes_;  ///< of all lines so far
  bool ended_ = false;

  std::mutex mutex_;
  std::condition_variable ready_;
  std::string waiting_;   ///< whole lines
  bool closed_ = false;   ///< nothing more comes
  bool refused_ = false;  ///< by the disk
  std::thread thread_;
};

}  // namespace tapas::daemon
