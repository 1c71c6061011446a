#include "solver/cost/switch_cost.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace tapas::solver {
namespace {

double nics_bytes_per_s(const Job& job, NodeId node) {
  const NodeType& type = job.cluster.type_of(node);
  return type.nic_bytes_per_s * type.nics;
}

}  // namespace

double transfer_s(const Job& job, const std::vector<LayerMove>& moves, const ClusterState& state) {
  std::map<NodeId, double> out;
  std::map<NodeId, double> in;
  std::map<std::pair<NodeId, NodeId>, double> between;  // where the path itself is slow
  std::map<std::tuple<NodeId, std::uint16_t, bool>, double> inside;  // true: what a device gives
  for (const LayerMove& move : moves) {
    const NodeId from = move.from.node;
    const NodeId to = move.to.node;
    if (from != to) {
      out[from] += move.bytes;
      in[to] += move.bytes;
      if (state.path(from, to) != 1) {
        between[{from, to}] += move.bytes;
      }
      continue;
    }
    for (const auto& [position, gives] :
         {std::pair{&move.from, true}, std::pair{&move.to, false}}) {
      for (const std::uint16_t device : position->devices) {
        inside[{to, device, gives}] += move.bytes / static_cast<double>(position->devices.size());
      }
    }
  }
  double slowest = 0;
  for (const auto& [node, bytes] : out) {
    slowest = std::max(slowest, bytes * state.links(node).send / nics_bytes_per_s(job, node));
  }
  for (const auto& [node, bytes] : in) {
    slowest = std::max(slowest, bytes * state.links(node).receive / nics_bytes_per_s(job, node));
  }
  for (const auto& [ends, bytes] : between) {
    const auto& [from, to] = ends;
    const double rate = std::min(nics_bytes_per_s(job, from) / state.links(from).send,
                                 nics_bytes_per_s(job, to) / state.links(to).receive);
    slowest = std::max(slowest, bytes * state.path(from, to) / rate);
  }
  for (const auto& [device, bytes] : inside) {
    const NodeId node = std::get<NodeId>(device);
    slowest = std::max(slowest, bytes * state.links(node).inside /
                                    job.cluster.type_of(node).fast_link_bytes_per_s);
  }
  return slowest;
}

}  // namespace tapas::solver
