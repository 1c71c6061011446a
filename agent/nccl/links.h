#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tapas::nccl {

/// What one rank sent through the network to the peers of one communicator. Any thread.
class Links {
 public:
  static constexpr std::size_t kLinks = 64;
  static constexpr std::size_t kNone = kLinks;
  struct Sent {
    std::uint64_t bytes = 0;
    std::uint64_t busy_ns = 0;
    std::uint32_t transfers = 0;
  };

  constexpr Links() = default;

  /// Place of the peer; kNone when there are too many.
  std::size_t find(std::uint32_t peer) {
    for (std::size_t i = 0; i < kLinks; ++i) {
      std::uint64_t key = links_[i].peer.load(std::memory_order_relaxed);
      if (key == 0 && links_[i].peer.compare_exchange_strong(key, peer + std::uint64_t{1},
                                                             std::memory_order_relaxed)) {
        return i;
      }
      if (key == peer + std::uint64_t{1}) {
        return i;
      }
    }
    return kNone;
  }

  /// A transfer that was under way from `begin_ns` to `end_ns`. Time in which several are under way
  /// counts once: a link carries them side by side.
  void add(std::size_t at, std::uint64_t bytes, std::uint64_t begin_ns, std::uint64_t end_ns) {
    Link& link = links_[at];
    std::uint64_t covered = link.covered_ns.load(std::memory_order_relaxed);
    while (covered < end_ns &&
           !link.covered_ns.compare_exchange_weak(covered, end_ns, std::memory_order_relaxed)) {
    }
    const std::uint64_t begin = begin_ns > covered ? begin_ns : covered;
    link.busy_ns.fetch_add(end_ns > begin ? end_ns - begin : 0, std::memory_order_relaxed);
    link.bytes.fetch_add(bytes, std::memory_order_relaxed);
    link.transfers.fetch_add(1, std::memory_order_relaxed);
  }

  /// Calls visit(peer, Sent) for what was sent since the last call.
  template <typename Visit>
  void take(Visit visit) {
    for (Link& link : links_) {
      const std::uint64_t key = link.peer.load(std::memory_order_relaxed);
      if (key == 0) {
        return;
      }
      const Sent sent = {link.bytes.exchange(0, std::memory_order_relaxed),
                         link.busy_ns.exchange(0, std::memory_order_relaxed),
                         link.transfers.exchange(0, std::memory_order_relaxed)};
      if (sent.transfers != 0) {
        visit(static_cast<std::uint32_t>(key - 1), sent);
      }
    }
  }

  void clear() {
    for (Link& link : links_) {
      link.peer.store(0, std::memory_order_relaxed);
      link.bytes.store(0, std::memory_order_relaxed);
      link.busy_ns.store(0, std::memory_order_relaxed);
      link.transfers.store(0, std::memory_order_relaxed);
      link.covered_ns.store(0, std::memory_order_relaxed);
    }
  }

 private:
  struct Link {
    std::atomic<std::uint64_t> peer{0};  ///< rank in the communicator + 1; 0 = free
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> busy_ns{0};
    std::atomic<std::uint64_t> covered_ns{0};
    std::atomic<std::uint32_t> transfers{0};
  };
  std::array<Link, kLinks> links_{};
};

}  // namespace tapas::nccl
