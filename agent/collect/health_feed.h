#pragma once

#include "agent/collect/agent_protocol.h"
#include "wire/message.h"

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tapas::agent {

/// What is wrong with the node, from `tapas-agent health --follow` in a process of its own: a read
/// of a driver that hangs must not hold up records and orders. Never blocks. One thread.
///
/// A finding stays for kHold after it was seen last, so that a counter that grows now and then is
/// one condition. A process that is silent for long is itself a finding, and is started anew.
class HealthFeed {
 public:
  struct Options {
    double interval_s = 30;
    std::string root = "/";
    std::string program = "/proc/self/exe";
  };
  static constexpr std::chrono::minutes kHold{10};

  explicit HealthFeed(Options options);
  ~HealthFeed();
  HealthFeed(const HealthFeed&) = delete;
  HealthFeed& operator=(const HealthFeed&) = delete;

  /// All that is wrong now; nothing when no new reading came.
  [[nodiscard]] std::optional<std::vector<wire::Finding>> poll(TimePoint now);

 private:
  void start(TimePoint now);
  /// A reading must come within two intervals and some patience.
  void expect_word(TimePoint now);
  void stop();
  [[nodiscard]] bool gone();
  [[nodiscard]] bool read_lines();
  void take(const std::string& line);
  [[nodiscard]] std::vector<wire::Finding> held(TimePoint now);

  struct Held {
    std::string text;
    TimePoint seen;
  };

  const Options options_;
  pid_t child_ = -1;
  int pipe_ = -1;
  std::string partial_;  ///< of a line
  std::vector<wire::Finding> latest_;
  TimePoint silent_at_ = TimePoint::min();  ///< when the process counts as hanging
  TimePoint start_at_ = TimePoint::min();   ///< when it is started (again)
  std::map<std::pair<std::string, std::string>, Held> held_;  ///< by device and kind
};

}  // namespace tapas::agent
