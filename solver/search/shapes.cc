#include "solver/search/shapes.h"

#include "solver/model/device_order.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

namespace tapas::solver {

std::vector<Pool> usable_pools(const Cluster& cluster) {
  std::vector<double> peak(cluster.node_types.size(), 0);
  for (const Node& node : cluster.nodes) {
    const NodeType& type = cluster.node_types[node.type];
    peak[node.type] += node.spare ? 0
                                  : cluster.device_types[type.device_type].peak_flops *
                                        static_cast<double>(type.devices);
  }
  std::vector<Pool> pools;
  for (std::uint32_t t = 0; t < cluster.node_types.size(); ++t) {
    Pool pool;
    pool.node_type = t;
    for (std::uint32_t n = 0; n < cluster.nodes.size(); ++n) {
      if (!cluster.nodes[n].spare && cluster.nodes[n].type == t) {
        pool.nodes.emplace_back(n);
      }
    }
    if (pool.nodes.empty()) {
      continue;
    }
    std::stable_sort(pool.nodes.begin(), pool.nodes.end(), [&](NodeId a, NodeId b) {
      const Node& x = cluster.nodes[a.value()];
      const Node& y = cluster.nodes[b.value()];
      return std::tie(x.pod, x.tor) < std::tie(y.pod, y.tor);
    });
    const NodeType& type = cluster.node_types[t];
    pool.device_order = device_order(comm_table(type), type.devices);
    pools.push_back(std::move(pool));
  }
  std::stable_sort(pools.begin(), pools.end(), [&](const Pool& a, const Pool& b) {
    return peak[a.node_type] > peak[b.node_type];
  });
  return pools;
}

Pool usable_nodes(const Cluster& cluster) {
  std::vector<Pool> pools = usable_pools(cluster);
  return pools.empty() ? Pool{} : std::move(pools.front());
}

std::vector<std::uint32_t> list_widths(const Job& job, const Pool& pool) {
  const std::uint32_t devices = job.cluster.node_types[pool.node_type].devices;
  std::vector<std::uint32_t> widths;
  if (job.search.tp_widths.empty()) {
    for (std::uint32_t width = 1; width <= devices; width *= 2) {
      widths.push_back(width);
    }
  } else {
    std::copy_if(job.search.tp_widths.begin(), job.search.tp_widths.end(),
                 std::back_inserter(widths), [&](std::uint32_t width) { return width <= devices; });
  }
  return widths;
}

std::vector<Shape> list_shapes(const Job& job, const Pool& pool) {
  const NodeType& node_type = job.cluster.node_types[pool.node_type];
  const std::string& device = job.cluster.device_types[node_type.device_type].name;
  const std::uint32_t devices = node_type.devices;
  const auto nodes = static_cast<std::uint32_t>(pool.nodes.size());
  std::vector<std::uint32_t> widths = list_widths(job, pool);
  std::erase_if(widths, [&](std::uint32_t width) {
    return !check_measured(job.graph, device, width).has_value();
  });
  const std::uint32_t total = job.total_microbatches();
  std::vector<Shape> shapes;
  for (const std::uint32_t width : widths) {
    const std::uint32_t slots = nodes * (devices / width);
    const std::uint32_t most_stages =
        std::min({job.search.max_stages, job.graph.layer_count(), slots});
    for (std::uint32_t stages = job.search.min_stages; stages <= most_stages; ++stages) {
      const std::uint32_t most = std::min(slots / stages, total);
      for (std::uint32_t replicas = most; replicas >= 1; --replicas) {
        const std::uint32_t share = (total + replicas - 1) / replicas;
        for (const bool sequence_parallel : {false, true}) {
          if (!sequence_parallel || width > 1) {
            shapes.push_back(
                {{pool.node_type, static_cast<std::uint16_t>(width), sequence_parallel},
                 stages,
                 replicas,
                 share});
          }
        }
      }
    }
  }
  return shapes;
}

}  // namespace tapas::solver
