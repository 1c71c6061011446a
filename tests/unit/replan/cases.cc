#include "cases.h"

#include "solver/check/check_plan.h"
#include "solver/cost/predict.h"
#include "tests/unit/solver/jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace tapas::solver::testing {
namespace {

bool coin(Draw& draw, double probability) { return draw.between(0.0, 1.0) < probability; }

std::vector<std::uint32_t> random_cuts(Draw& draw, std::uint32_t layers, std::uint32_t stages) {
  std::set<std::uint32_t> cuts{0};
  while (cuts.size() < stages) {
    cuts.insert(draw.between(1U, layers - 1));
  }
  return {cuts.begin(), cuts.end()};
}

std::vector<bool> random_flags(Draw& draw, std::uint32_t layers, double probability) {
  std::vector<bool> flags(layers);
  for (std::uint32_t l = 0; l < layers; ++l) {
    flags[l] = coin(draw, probability);
  }
  return flags;
}

void add_node_type(Job& job, Draw& draw) {
  Cluster& cluster = job.cluster;
  DeviceType device = cluster.device_types[0];
  device.name = "other";
  device.matmul_efficiency *= draw.between(0.5, 0.9);
  NodeType node = cluster.node_types[0];
  node.name = "other";
  node.device_type = 1;
  node.nic_bytes_per_s *= draw.between(0.4, 1.0);
  cluster.device_types.push_back(device);
  cluster.node_types.push_back(node);
  for (Node& one : cluster.nodes) {
    one.type = draw.between(0U, 1U);
  }
}

ClusterState draw_state(const Cluster& cluster, Draw& draw) {
  if (coin(draw, 0.4)) {
    return random_state(cluster, draw, cluster.nodes.size() > 2 ? draw.between(0U, 4U) : 0);
  }
  ClusterState state;
  const auto nodes = static_cast<std::uint32_t>(cluster.nodes.size());
  state.device_slowdown.assign(cluster.device_count(), 1);
  for (std::uint32_t k = draw.between(0U, 3U); k > 0; --k) {
    state.device_slowdown[draw.between(0U, cluster.device_count() - 1)] = draw.between(1.2, 4.0);
  }
  if (coin(draw, 0.5)) {
    state.node_links.assign(nodes, {});
    state.node_links[draw.between(0U, nodes - 1)].send = draw.between(2.0, 20.0);
    state.node_links[draw.between(0U, nodes - 1)].receive = draw.between(2.0, 20.0);
  }
  if (coin(draw, 0.3)) {
    state.drained.assign(nodes, false);
    state.drained[draw.between(0U, nodes - 1)] = true;
  }
  return state;
}

std::optional<Case> draw_case(Draw& draw) {
  constexpr std::uint32_t kDevices = 4;
  const std::uint32_t stages = draw.between(2U, 4U);
  const std::uint32_t replicas = draw.between(1U, 4U);
  const std::uint32_t groups = draw.between(1U, 2U);
  const std::uint32_t layers = draw.between(stages + 2, 12U);
  const std::uint32_t used = (stages * replicas + groups - 1) / groups;
  const std::uint32_t nodes = used + draw.between(0U, 2U);
  const std::uint32_t batch = replicas * draw.between(1U, 8U) + draw.between(0U, replicas - 1);
  Case what;
  Job& job = what.job;
  job = coin(draw, 0.3) ? small_job(layers - 2, nodes, kDevices, batch)
                        : uneven_job(draw.between(1U, 1000000U), layers, nodes, kDevices, batch);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    job.cluster.nodes[n].tor = fmt::format("tor{}", n / 2);
    job.cluster.nodes[n].pod = fmt::format("pod{}", n / 4);
    job.cluster.nodes[n].spare = n >= used;
  }
  if (coin(draw, 0.25)) {
    add_node_type(job, draw);
  }
  job.zero_stage = draw.between(0U, 1U);
  job.overlap_gradients = coin(draw, 0.3);
  job.schedule = coin(draw, 0.2) ? Schedule::kGpipe : Schedule::k1f1b;
  job.search.model = coin(draw, 0.2) ? CostModelKind::kDocument : CostModelKind::kPhysical;
  job.limits.recompute_ratio = 0.4;
  job.switch_pause_s = draw.between(0.0, 3.0);
  job.capabilities = {.replica_splits = coin(draw, 0.75),
                      .microbatch_counts = coin(draw, 0.75),
                      .recompute = coin(draw, 0.75),
                      .placement = coin(draw, 0.85),
                      .narrower_groups = coin(draw, 0.3)};

  const std::uint32_t all = job.graph.layer_count();
  Plan plan = simple_plan(job, random_cuts(draw, all, stages), replicas,
                          static_cast<std::uint16_t>(kDevices / groups));
  const double recomputed = coin(draw, 0.5) ? 0.5 : 0;
  plan.checkpoint = random_flags(draw, all, recomputed);
  if (job.capabilities.replica_splits && coin(draw, 0.6)) {
    for (std::uint32_t r = 0; r < replicas; ++r) {
      plan.replica_splits.push_back(random_cuts(draw, all, stages));
    }
  }
  if (job.capabilities.recompute && coin(draw, 0.3)) {
    for (std::uint32_t r = 0; r < replicas; ++r) {
      plan.replica_checkpoint.push_back(random_flags(draw, all, recomputed));
    }
  }
  for (std::uint32_t k = 0; k < 3 && job.capabilities.microbatch_counts; ++k) {
    std::uint32_t& giver = plan.microbatches[draw.between(0U, replicas - 1)];
    if (giver > 1) {
      --giver;
      ++plan.microbatches[draw.between(0U, replicas - 1)];
    }
  }
  for (auto& row : plan.placement) {
    for (Position& position : row) {
      if (job.capabilities.narrower_groups && coin(draw, 0.15)) {
        position.devices.resize(position.devices.size() / 2);
      }
    }
  }
  if (recomputed > 0 && coin(draw, 0.7)) {
    const std::vector<double> needs = predict(job, plan).stage_memory_bytes;
    job.limits.device_memory_bytes = *std::max_element(needs.begin(), needs.end()) /
                                     (1 - job.limits.memory_reserve_ratio) *
                                     draw.between(1.001, 1.5);
  }
  if (!check_plan(job, plan)) {
    return std::nullopt;
  }
  what.request.current = std::move(plan);
  what.request.state = draw_state(job.cluster, draw);
  what.request.expected_episode_s = draw.between(5.0, 2000.0);
  return what;
}

}  // namespace

Case random_case(std::uint64_t seed) {
  Draw draw(seed);
  for (;;) {
    if (auto what = draw_case(draw)) {
      return *std::move(what);
    }
  }
}

Case even_case(const std::vector<std::uint32_t>& cuts, std::uint32_t layers, std::uint32_t replicas,
               std::uint32_t spares) {
  const auto used = static_cast<std::uint32_t>(cuts.size()) * replicas;
  constexpr std::uint32_t kMicrobatches = 16;  // of a replica
  Case what;
  Job& job = what.job;
  job = uneven_job(1, layers, used + spares, 4, kMicrobatches * replicas);
  for (OpNode& op : job.graph.nodes) {
    op.out_bytes = 0.2e9;
    op.act_bytes = 0.2e9;
    op.work_bytes = 0;
    if (op.kind != OpKind::kNorm) {
      op.fwd_flops = 6e12;
      op.bwd_flops = 12e12;
      op.param_bytes = 1e8;
    }
  }
  for (auto& edge : job.graph.edges) {
    edge.bytes = 0.2e9;
  }
  for (std::uint32_t n = used; n < used + spares; ++n) {
    job.cluster.nodes[n].spare = true;
  }
  what.request.current = simple_plan(job, cuts, replicas, 4);
  what.request.state.device_slowdown.assign(job.cluster.device_count(), 1);
  what.request.expected_episode_s = 1800;
  return what;
}

void slow_node(Case& what, NodeId node, double factor) {
  for (std::uint32_t d = 0; d < what.job.cluster.type_of(node).devices; ++d) {
    what.request.state.device_slowdown[what.job.cluster.rank_of(node, d).value()] = factor;
  }
}

void slow_links(Case& what, NodeId node, const NodeLinks& links) {
  what.request.state.node_links.resize(what.job.cluster.nodes.size());
  what.request.state.node_links[node.value()] = links;
}

bool keeps_pinned(const Layout& layout, std::uint32_t replica,
                  const std::vector<std::uint32_t>& cuts) {
  const Problem& problem = layout.problem();
  const auto old = layout.cuts(replica);
  for (std::uint32_t r = 0; r < problem.replicas(); ++r) {
    for (std::uint32_t s = 0; s < problem.stages() && (r == replica || problem.tied()); ++s) {
      if (problem.unit(layout.unit(r, s)).pinned &&
          (cuts[s] != old[s] || cuts[s + 1] != old[s + 1])) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace tapas::solver::testing
