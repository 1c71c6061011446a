#pragma once

#include "base/result.h"
#include "wire/message.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tapas::agent {

/// The agent's connection to the daemon: a ZeroMQ DEALER with CURVE that reconnects by itself.
/// Never blocks longer than asked to and keeps no backlog: what cannot be sent now is refused. One
/// thread, one per process.
class DaemonLink {
 public:
  struct Options {
    std::string endpoint;  ///< "tcp://host:port"
    std::string node;
    std::uint64_t nonce = 0;
    std::string daemon_key;  ///< daemon's public key, Z85
    std::string secret_key;  ///< ours, Z85
  };
  struct Incoming {
    bool lost = false;       ///< the connection went away
    bool connected = false;  ///< a connection stands that did not before; after `lost`
    std::vector<wire::ToAgent> messages;
  };

  /// Starts to connect; an endpoint or key that can never work is an error.
  [[nodiscard]] static Result<DaemonLink> open(Options options);
  DaemonLink(DaemonLink&&) noexcept;
  DaemonLink& operator=(DaemonLink&&) noexcept;
  ~DaemonLink();

  /// What happened, waiting up to `wait` for it. Malformed messages are logged and left out.
  [[nodiscard]] Incoming poll(std::chrono::milliseconds wait);
  /// False when there is no connection, or it is full.
  [[nodiscard]] bool send(const wire::ToDaemon& message);
  [[nodiscard]] bool connected() const;
  /// Drops the connection and makes a new one.
  [[nodiscard]] Result<void> rebuild();

 private:
  struct Impl;
  explicit DaemonLink(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tapas::agent
