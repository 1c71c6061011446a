#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tapas::daemon {

/// Tokens that come at a steady rate, up to a store of them, which is full at first.
class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;

  TokenBucket(double per_s, double most) : per_s_(per_s), most_(most), tokens_(most) {}

  void refill(Clock::time_point now) {
    tokens_ =
        std::min(most_, tokens_ + std::chrono::duration<double>(now - last_).count() * per_s_);
    last_ = now;
  }
  [[nodiscard]] bool holds(double tokens) const { return tokens_ >= tokens; }
  void take(double tokens) { tokens_ -= tokens; }

 private:
  double per_s_;
  double most_;
  double tokens_;
  Clock::time_point last_;
};

/// What one node may send: a rate, and bursts of a few seconds of it. 64 ranks of 8 jobs at a
/// hundred steps a second stay below it.
class Quota {
 public:
  using Clock = TokenBucket::Clock;
  static constexpr double kMessagesPerS = 1000;
  static constexpr double kBytesPerS = 16e6;
  static constexpr double kBurstS = 4;

  /// False when the message is over the limit, and counts for nothing but dropped().
  [[nodiscard]] bool take(std::size_t bytes, Clock::time_point now) {
    messages_.refill(now);
    bytes_.refill(now);
    const auto size = static_cast<double>(bytes);
    if (!messages_.holds(1) || !bytes_.holds(size)) {
      ++dropped_;
      return false;
    }
    messages_.take(1);
    bytes_.take(size);
    return true;
  }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  TokenBucket messages_{kMessagesPerS, kMessagesPerS* kBurstS};
  TokenBucket bytes_{kBytesPerS, kBytesPerS* kBurstS};
  std::uint64_t dropped_ = 0;
};

/// How often one key may come in. An agent whose connection is lost at once, again and again, tries
/// it twice a second; who is refused is let in half a second later.
class HandshakeQuota {
 public:
  static constexpr double kPerS = 2;
  static constexpr double kBurst = 20;

  [[nodiscard]] bool take(TokenBucket::Clock::time_point now) {
    tokens_.refill(now);
    if (!tokens_.holds(1)) {
      return false;
    }
    tokens_.take(1);
    return true;
  }

 private:
  TokenBucket tokens_{kPerS, kBurst};
};

}  // namespace tapas::daemon
