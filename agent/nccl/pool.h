#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tapas::nccl {

/// Places for things under way, taken and given back by any thread without waiting. A place has a
/// generation, so that who comes late finds somebody else there and keeps off. What was never given
/// back (its end got lost) is taken over after kStaleNs, when the turn comes to its place again.
template <typename T, std::size_t kPlaces>
class Pool {
  static_assert(kPlaces <= 65'536);

 public:
  static constexpr std::uint64_t kStaleNs = 20'000'000'000;
  struct Taken {
    T* item = nullptr;  ///< nullptr = no place
    std::uint16_t index = 0;
    std::uint32_t generation = 0;
  };

  constexpr Pool() = default;

  Taken take(std::uint64_t now_ns) {
    for (std::size_t tries = 0; tries < kTries; ++tries) {
      const auto index =
          static_cast<std::uint16_t>(next_.fetch_add(1, std::memory_order_relaxed) % kPlaces);
      Place& place = places_[index];
      std::uint64_t life = place.life.load(std::memory_order_relaxed);
      const std::uint64_t since = place.since_ns.load(std::memory_order_relaxed);
      if ((life & kUsed) != 0 && now_ns - since < kStaleNs) {
        continue;
      }
      const std::uint64_t mine = (((life >> 1U) + 1) & UINT32_MAX) << 1U | kUsed;
      if (place.life.compare_exchange_strong(life, mine, std::memory_order_acq_rel)) {
        place.since_ns.store(now_ns, std::memory_order_relaxed);
        return {&place.item, index, static_cast<std::uint32_t>(mine >> 1U)};
      }
    }
    return {};
  }

  /// nullptr when it is no longer there.
  T* find(std::uint16_t index, std::uint32_t generation) {
    if (index >= kPlaces) {
      return nullptr;
    }
    Place& place = places_[index];
    return place.life.load(std::memory_order_acquire) == life_of(generation) ? &place.item
                                                                             : nullptr;
  }

  /// True for the one caller that gives it back.
  bool give_back(std::uint16_t index, std::uint32_t generation) {
    std::uint64_t life = life_of(generation);
    return index < kPlaces && places_[index].life.compare_exchange_strong(
                                  life, life & ~kUsed, std::memory_order_acq_rel);
  }

  /// Calls visit(item, index, generation) for all that are taken now.
  template <typename Visit>
  void for_each(Visit visit) {
    for (std::size_t i = 0; i < kPlaces; ++i) {
      const std::uint64_t life = places_[i].life.load(std::memory_order_acquire);
      if ((life & kUsed) != 0) {
        visit(places_[i].item, static_cast<std::uint16_t>(i),
              static_cast<std::uint32_t>(life >> 1U));
      }
    }
  }

 private:
  static constexpr std::uint64_t kUsed = 1;
  static constexpr std::size_t kTries = 8;
  static std::uint64_t life_of(std::uint32_t generation) {
    return std::uint64_t{generation} << 1U | kUsed;
  }

  struct Place {
    std::atomic<std::uint64_t> life{0};  ///< generation, then kUsed
    std::atomic<std::uint64_t> since_ns{0};
    T item{};  ///< atomics only: a stale reader may look while another one writes
  };
  std::array<Place, kPlaces> places_{};
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace tapas::nccl
