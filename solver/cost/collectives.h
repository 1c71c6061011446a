#pragma once

#include "solver/model/comm.h"

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

/// Times of collectives as NCCL 2.28 estimates them when it chooses an algorithm and a protocol.
/// The equations are in docs/cost-model.md, section "Collectives". Pure and cheap: safe in inner
/// loops.
namespace tapas::solver {

enum class Algorithm : std::uint8_t { kRing, kTree, kNvls, kNvlsTree, kPat };
enum class Protocol : std::uint8_t { kLl, kLl128, kSimple };
[[nodiscard]] std::string_view to_string(Collective op);
[[nodiscard]] std::string_view to_string(Algorithm algorithm);
[[nodiscard]] std::string_view to_string(Protocol protocol);

struct GroupShape {
  std::uint32_t nodes = 1;
  std::uint32_t per_node = 1;
};

/// What lies between the nodes besides their NICs: other groups on the same NICs, oversubscription,
/// long cables.
struct Fabric {
  double bytes_per_s = std::numeric_limits<double>::infinity();  ///< a group's share out of a node
  double latency_s = 0;  ///< beyond a hop through one switch; counts as a NIC's does
};

/// One way to do it: seconds = latency_s + bytes / bytes_per_s.
struct CollectiveEstimate {
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  double latency_s = 0;
  double bytes_per_s = 0;
};

/// Every algorithm and protocol that NCCL would consider, before corrections that depend on size.
[[nodiscard]] std::vector<CollectiveEstimate> collective_estimates(const CommGraph& graph,
                                                                   Collective op, GroupShape group);

/// Seconds of one estimate for a size, with those corrections.
[[nodiscard]] double seconds_of(const CollectiveEstimate& estimate, const CommGraph& graph,
                                Collective op, double bytes, GroupShape group);

struct CollectiveTime {
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  double seconds = 0;
};

/// The fastest way. `bytes`: of the whole vector; for all-gather what each device has afterwards,
/// for reduce-scatter what it has before. 0 s for a single device; infinite when nothing connects
/// them.
[[nodiscard]] CollectiveTime best_collective(const CommGraph& graph, Collective op, double bytes,
                                             GroupShape group);

/// Seconds for a group of a node type's devices: a measured time where the table has one for this
/// operation and shape, else the model.
[[nodiscard]] double collective_time_s(const CommTable& table, Collective op, double bytes,
                                       GroupShape group, const Fabric& fabric = {});

/// Seconds of one message over a path, inside a node or through the network. NCCL has no model for
/// this; the constants are those of its collectives. Infinite when there is no path.
[[nodiscard]] double send_time_s(const DevicePath& path, double bytes, bool between_nodes);

/// The graph with less between nodes: its channels share what the fabric leaves.
[[nodiscard]] CommGraph limit_fabric(CommGraph graph, const Fabric& fabric);

/// A graph as it runs after links became slower: channels are fixed when a job starts and each
/// carries the same part of a message, so all go at the pace of the worst. `pace`: the worst
/// channel's present rate over its planned one, 0 to 1.
[[nodiscard]] CommGraph slow_channels(CommGraph graph, double pace);

}  // namespace tapas::solver
