#include "solver/search/fleet.h"

#include "solver/cost/links.h"
#include "solver/search/reach.h"

#include <algorithm>
#include <utility>

namespace tapas::solver {

Fleet::Fleet(const Job& job) : job_(job), pools_(usable_pools(job.cluster)) {
  // The weakest types beyond what one search can trade against each other stay unused.
  if (pools_.size() > kMostPools) {
    pools_.resize(kMostPools);
  }
  std::vector<std::uint32_t> batches = job.search.micro_batch_sizes;
  if (batches.empty()) {
    batches.push_back(job.graph.micro_batch_size);
  }
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  std::uint32_t widest = 1;
  for (const Pool& pool : pools_) {
    for (const std::uint32_t width : list_widths(job, pool)) {
      widest = std::max(widest, width);
    }
  }
  bool chain = true;
  std::size_t kinds = 0;
  for (const std::uint32_t batch : batches) {
    Size& size = *sizes_.emplace_back(std::make_unique<Size>());
    size.job = with_micro_batch_size(job, batch);
    size.model = make_cost_model(size.job);
    for (const Pool& pool : pools_) {
      const NodeType& type = job.cluster.node_types[pool.node_type];
      std::uint32_t before = 1;
      std::vector<std::uint32_t> widths = list_widths(job, pool);
      std::sort(widths.begin(), widths.end());
      for (const std::uint32_t width : widths) {
        const auto measured =
            check_measured(size.job.graph, job.cluster.device_types[type.device_type].name, width);
        if (!measured) {
          not_measured_.push_back(measured.error().message);
          continue;
        }
        chain = chain && width % before == 0 && type.devices % width == 0;
        before = width;
        ++kinds;
        for (const bool sequence_parallel : {false, true}) {
          if (sequence_parallel && widest == 1) {
            continue;
          }
          const Sharding sharding{pool.node_type, static_cast<std::uint16_t>(width),
                                  sequence_parallel};
          size.tables[sharding] = std::make_unique<LayerTable>(size.job, *size.model, sharding);
        }
      }
    }
  }
  const bool wanted = (job.search.stage_widths || pools_.size() > 1) && kinds > sizes_.size();
  mixes_ = wanted && chain;
  if (wanted && !chain) {
    not_mixed_ =
        "rows that mix TP widths or node types: widths that do not divide one another and the "
        "nodes' devices are not packed together, so the bound speaks of rows of one kind";
  }
}

std::uint32_t Fleet::pool_of(const Sharding& sharding) const {
  const auto pool = std::find_if(pools_.begin(), pools_.end(),
                                 [&](const Pool& p) { return p.node_type == sharding.node_type; });
  return static_cast<std::uint32_t>(pool - pools_.begin());
}

std::uint32_t Fleet::slots(const Sharding& sharding) const {
  return static_cast<std::uint32_t>(pools_[pool_of(sharding)].nodes.size()) *
         (job_.cluster.node_types[sharding.node_type].devices / sharding.width);
}

GroupKind Fleet::kind(const Size& size, const Sharding& sharding, std::uint32_t replicas) const {
  const LayerTable& table = *size.tables.at(sharding);
  const NodeType& node = job_.cluster.node_types[sharding.node_type];
  GroupKind kind;
  kind.table = &table;
  kind.rule = memory_rule(size.job, sharding.node_type, replicas);
  kind.pool = pool_of(sharding);
  kind.node_devices = node.devices;
  kind.tail = size.model->step_tail(
      best_ring(job_.cluster, sharding.node_type, sharding.width, replicas), sharding);
  double bytes = kNever;
  for (std::uint32_t l = 1; l < table.layers(); ++l) {
    bytes = std::min(bytes, table.cut_bytes(l));
  }
  if (table.layers() > 1) {
    constexpr std::uint32_t kLeastStages = 2;
    const Hop far = size.model->hop(best_link_out(job_.cluster, sharding.node_type), sharding,
                                    bytes, kLeastStages);
    const Hop near = size.model->hop(link_inside(node), sharding, bytes, kLeastStages);
    kind.far_s = far.delay_s;
    kind.near_s = std::min(near.delay_s, far.delay_s);
    kind.busy_s = std::min(near.busy_s, far.busy_s);
  }
  return kind;
}

RowProblem Fleet::problem(const Size& size, const Sharding& sharding,
                          std::uint32_t replicas) const {
  RowProblem problem;
  problem.schedule = job_.schedule;
  problem.overlap_gradients = job_.overlap_gradients;
  problem.replicas = replicas;
  problem.kinds.push_back(kind(size, sharding, replicas));
  problem.budget.assign(pools_.size(), 0);
  problem.budget[problem.kinds.front().pool] = slots(sharding) / replicas * sharding.width;
  return problem;
}

RowProblem Fleet::problem(const Size& size, bool sequence_parallel, std::uint32_t replicas) const {
  RowProblem problem;
  problem.schedule = job_.schedule;
  problem.overlap_gradients = job_.overlap_gradients;
  problem.replicas = replicas;
  for (const auto& [sharding, table] : size.tables) {
    if (sharding.sequence_parallel == sequence_parallel) {
      problem.kinds.push_back(kind(size, sharding, replicas));
    }
  }
  for (const Pool& pool : pools_) {
    problem.budget.push_back(static_cast<std::uint32_t>(pool.nodes.size()) *
                             job_.cluster.node_types[pool.node_type].devices / replicas);
  }
  return problem;
}

std::vector<std::uint32_t> shares(std::uint32_t total, std::uint32_t replicas, std::uint32_t unit) {
  std::vector<std::uint32_t> result;
  if (total % unit != 0 || total / unit < replicas) {
    return result;
  }
  const std::uint32_t units = total / unit;
  for (std::uint32_t r = 0; r < replicas; ++r) {
    result.push_back((units / replicas + (r < units % replicas ? 1 : 0)) * unit);
  }
  return result;
}

}  // namespace tapas::solver
