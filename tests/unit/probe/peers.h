#pragma once

#include "agent/probe/listener.h"
#include "agent/probe/messages.h"
#include "agent/probe/prober.h"
#include "agent/probe/stream.h"
#include "agent/probe/transfer.h"

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tapas::agent::probe {

/// Only against a test that would hang; what is to run out is shorter.
inline Clock::time_point later() { return Clock::now() + std::chrono::seconds(60); }

/// A small load for loopback, which has no nominal speed.
inline Limits small_limits() {
  Limits limits;
  limits.share.reset();
  limits.bytes_per_s = 1e7;
  limits.seconds = 0.2;
  limits.bytes = 8U << 20U;
  return limits;
}

inline Load small_load() { return *agree(small_limits(), small_limits(), std::nullopt); }

inline HostPort at(const Door& door) { return {"127.0.0.1", std::to_string(door.port())}; }

/// Somebody who listens and is not what the other side hopes for: serves one connection in its own
/// manner.
class Pretender {
 public:
  explicit Pretender(std::function<void(Stream&)> manner)
      : door_(*Door::open({"127.0.0.1", "0"})), thread_([this, manner = std::move(manner)] {
          auto visitor = door_.next(later());
          if (visitor && *visitor) {
            manner((*visitor)->stream);
          }
        }) {}
  Pretender(const Pretender&) = delete;
  Pretender& operator=(const Pretender&) = delete;
  ~Pretender() { thread_.join(); }

  [[nodiscard]] HostPort address() const { return at(door_); }

 private:
  Door door_;
  std::thread thread_;
};

/// Says nothing until the other side goes.
inline void hang(Stream& stream) {
  std::vector<char> bytes(1U << 16U);
  while (stream.receive(bytes, later())) {
  }
}

/// The real listener in a thread. Ends with its first probe.
class Listening {
 public:
  explicit Listening(std::vector<IpRange> allowed = {}) : door_(*Door::open({"127.0.0.1", "0"})) {
    service_.limits = small_limits();
    service_.token = *make_token();
    service_.allowed = std::move(allowed);
    service_.until = later();
    service_.once = true;
    thread_ = std::thread([this] {
      const auto done = serve(door_, service_, [this](const std::string& line) {
        const std::lock_guard lock(mutex_);
        told_.push_back(line);
      });
      EXPECT_TRUE(done.has_value());
      done_ = done.value_or(-1);
    });
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  [[nodiscard]] HostPort address() const { return at(door_); }
  [[nodiscard]] const std::string& token() const { return service_.token; }
  [[nodiscard]] Stream visit() const { return *Stream::connect(address(), later()); }
  [[nodiscard]] Result<Report> probe_it(const Limits& limits = small_limits()) const {
    return probe(address(), token(), limits, later());
  }

  /// How many probes it did; only once.
  int ended() {
    thread_.join();
    return done_;
  }
  [[nodiscard]] std::string told() const {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const std::string& line : told_) {
      all += line + "\n";
    }
    return all;
  }

 private:
  Door door_;
  Service service_;
  mutable std::mutex mutex_;
  std::vector<std::string> told_;
  int done_ = -1;
  std::thread thread_;
};

}  // namespace tapas::agent::probe
