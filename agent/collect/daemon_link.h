#pragma once

#include "base/result.h"
#include "wire/message.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tapas::agent {

/// The input and output thread of the links of a process, and room for so many. A process has one:
/// several may crash on close before libzmq 4.3.5.
class LinkContext {
 public:
  explicit LinkContext(std::size_t links = 1);
  ~LinkContext();
  LinkContext(const LinkContext&) = delete;
  LinkContext& operator=(const LinkContext&) = delete;

 private:
  friend class DaemonLink;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// An agent's connection to the daemon: a ZeroMQ DEALER with CURVE that reconnects by itself, each
/// time after a random part of set_spread(), so that a fleet does not come back in one moment.
/// Never blocks longer than asked to and keeps no backlog but a few messages. Not thread-safe.
class DaemonLink {
 public:
  struct Options {
    std::shared_ptr<LinkContext> context;
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
  /// False when there is no connection, or it has been full for a while.
  [[nodiscard]] bool send(const wire::ToDaemon& message);
  /// There is a connection, and it takes a message now.
  [[nodiscard]] bool ready() const;
  /// Drops the connection and makes a new one after the usual pause.
  void rebuild();
  /// The longest pause before a connection is made anew; at least a second.
  void set_spread(double seconds);

  // For owners of many links, who wait for all of them at once.
  /// Readable when poll() or ready() may have something new. Others after rebuilds.
  [[nodiscard]] std::array<int, 2> descriptors() const;
  /// Grows with each connection that is tried.
  [[nodiscard]] std::uint64_t rebuilds() const;
  /// When poll() has something to do even if nothing comes.
  [[nodiscard]] std::chrono::steady_clock::time_point next_wakeup() const;
  /// The daemon turned this node's key down.
  [[nodiscard]] bool refused() const;
  /// Somebody is there and has not let us in so far: for lack of the right keys on either side,
  /// which a daemon does not tell, or because it has too much to do.
  [[nodiscard]] bool kept_out() const;

 private:
  struct Impl;
  explicit DaemonLink(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tapas::agent
