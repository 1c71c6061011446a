#pragma once

#include "solver/model/job.h"
#include "solver/replan/micro_replan.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Jobs with a running plan and something that got slow: what the local search is judged by. All
/// are the same for the same seed.
namespace tapas::solver::testing {

struct Instance {
  std::string name;
  Job job;
  ReplanRequest request;
};

/// A family of instances so small that exact_optimum() finishes. A position is a whole node.
struct SmallFamily {
  std::string name;
  std::string what;  ///< half a sentence
};
[[nodiscard]] const std::vector<SmallFamily>& small_families();
/// Requires a name of small_families().
[[nodiscard]] Instance small_instance(std::string_view family, std::uint64_t seed);
/// A job of two to four stages, for plain enumeration: all capabilities, faults and spares drawn.
[[nodiscard]] Instance tiny_instance(std::uint64_t seed);

/// What the runtime of the job can change.
enum class Runtime : std::uint8_t { kFree, kFrozen, kTied };
[[nodiscard]] std::string_view to_string(Runtime runtime);

/// E1 one slow node, no spare. E2 the same, two spares. E3 four slow nodes, no spare. E4 the same,
/// two spares. E5 two slow nodes and two bad NICs, two spares, network 4 times slower. E6 eight
/// slow nodes and two bad NICs, three partly slow spares, network 8 times slower. E7 one bad NIC,
/// no spare, network 8 times slower. E8 three slow nodes, layers of two kinds, memory tight, one
/// spare.
inline constexpr std::uint32_t kEvents = 8;
/// 175e9 parameters in 96 blocks on 16 stages of 8 devices times `replicas`, 32 microbatches per
/// replica, an episode of 1800 s, a pause of 5 s. 8 replicas are 1,024 devices. Event: 1..kEvents.
[[nodiscard]] Instance large_instance(std::uint32_t event, std::uint64_t seed, Runtime runtime,
                                      std::uint32_t replicas = 8);

/// 110e9 parameters in 80 blocks on 64 devices in 8 nodes, three of the devices slow.
[[nodiscard]] Instance malleus_shape(std::uint64_t seed);

}  // namespace tapas::solver::testing
