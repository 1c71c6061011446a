#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <string_view>

namespace tapas {

/// An integer that means one thing only: ids of different kinds do not mix.
template <typename Tag, typename Int>
class StrongId {
 public:
  using value_type = Int;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int value) : value_(value) {}
  [[nodiscard]] constexpr Int value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Int value_ = 0;
};

/// A device slot of the cluster: node index * devices of the nodes before it + local index.
/// Ranks name slots, so a rank's node never changes while a cluster file stands.
using RankId = StrongId<struct RankTag, std::uint32_t>;
/// Index of a node in the cluster file.
using NodeId = StrongId<struct NodeTag, std::uint32_t>;
/// A plan's version within a job; only grows. 0 = no plan yet.
using Epoch = StrongId<struct EpochTag, std::uint64_t>;
/// Leadership of a daemon; grows by one at each start of the daemon.
using Term = StrongId<struct TermTag, std::uint64_t>;

/// FNV-1a, 64 bits (draft-eastlake-fnv): the fixed-width form of a job or node name in records.
[[nodiscard]] constexpr std::uint64_t name_hash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

/// True for names that may stand for a node or a job: 1 to 253 characters out of letters, digits,
/// '.', '_', '-', starting with a letter or digit. Whole names are compared, case included.
[[nodiscard]] bool valid_name(std::string_view name);

}  // namespace tapas

template <typename Tag, typename Int>
struct std::hash<tapas::StrongId<Tag, Int>> {
  std::size_t operator()(tapas::StrongId<Tag, Int> id) const noexcept {
    return std::hash<Int>{}(id.value());
  }
};

template <typename Tag, typename Int>
struct fmt::formatter<tapas::StrongId<Tag, Int>> : fmt::formatter<Int> {
  template <typename Context>
  auto format(tapas::StrongId<Tag, Int> id, Context& context) const {
    return fmt::formatter<Int>::format(id.value(), context);
  }
};
