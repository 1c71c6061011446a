#include "tests/replan/instances.h"

#include "base/check.h"
#include "solver/check/check_plan.h"
#include "solver/cost/cost_model.h"
#include "solver/cost/layer_table.h"
#include "solver/cost/pipeline.h"
#include "solver/cost/predict.h"
#include "solver/cost/stage_fit.h"
#include "solver/model/decoder.h"
#include "tests/unit/solver/jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace tapas::solver::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool coin(Draw& draw, double probability) { return draw.between(0.0, 1.0) < probability; }

template <std::size_t N>
double one_of(Draw& draw, const std::array<double, N>& values) {
  return values[draw.between(0U, static_cast<std::uint32_t>(N) - 1)];
}

DeviceType a800() {
  return {.name = "A800-SXM4-80GB",
          .peak_flops = 312e12,
          .memory_bytes = 80e9,
          .memory_bytes_per_s = 2.039e12,
          .matmul_efficiency = 0.72,
          .matmul_half_flops = 3e10,
          .attention_efficiency = 0.45,
          .collective_library = "nccl"};
}

NodeType node_of(std::uint32_t device_type, std::uint32_t devices, double network_slower) {
  return {.name = fmt::format("type{}", device_type),
          .device_type = device_type,
          .devices = devices,
          .fast_link_bytes_per_s = 160e9,
          .fast_link_latency_s = 2e-6,
          .nic_bytes_per_s = 25e9 / network_slower,
          .nics = (devices + 1) / 2,
          .topo_file = ""};
}

/// One replica's row of positions, node after node.
std::vector<std::vector<Position>> rows(const Cluster& cluster, std::uint32_t replicas,
                                        std::uint32_t stages, std::uint16_t width) {
  std::vector<std::vector<Position>> placement(replicas);
  std::uint32_t node = 0;
  std::uint16_t device = 0;
  for (auto& row : placement) {
    for (std::uint32_t s = 0; s < stages; ++s) {
      Position& position = row.emplace_back();
      position.node = NodeId(node);
      for (std::uint16_t d = 0; d < width; ++d) {
        position.devices.push_back(device++);
      }
      if (device + width > cluster.type_of(NodeId(node)).devices) {
        ++node;
        device = 0;
      }
    }
  }
  return placement;
}

/// Equal microbatches, the cuts whose slowest stage is fastest when nodes take `slowdown` times as
/// long, the least recomputation that fits. Nothing when no cut fits.
std::optional<Plan> balanced_plan(const Job& job, std::vector<std::vector<Position>> placement,
                                  const std::vector<double>& slowdown) {
  const auto replicas = static_cast<std::uint32_t>(placement.size());
  const auto stages = static_cast<std::uint32_t>(placement.front().size());
  const std::uint32_t layers = job.graph.layer_count();
  const std::uint32_t total = job.total_microbatches();
  Plan plan;
  plan.job = job.name;
  plan.schedule = job.schedule;
  plan.placement = std::move(placement);
  const auto width = static_cast<std::uint16_t>(plan.placement[0][0].devices.size());
  plan.tp_width.assign(layers, width);
  plan.checkpoint.assign(layers, false);
  for (std::uint32_t r = 0; r < replicas; ++r) {
    plan.microbatches.push_back(total / replicas + (r < total % replicas ? 1 : 0));
  }
  const std::unique_ptr<const CostModel> model = make_cost_model(job);
  std::vector<LayerTable> tables;
  for (std::uint32_t type = 0; type < job.cluster.node_types.size(); ++type) {
    tables.emplace_back(job, *model, Sharding{type, width, false});
  }
  // What the slowest replica of a stage needs for a range, by the type of its node.
  const auto stage_s = [&](std::uint32_t s, LayerRange range) {
    const std::uint32_t held = in_flight(plan.schedule, stages, s, plan.microbatches[0]);
    std::vector<std::optional<StageFit>> fits(tables.size());
    double slowest = 0;
    for (std::uint32_t r = 0; r < replicas; ++r) {
      const std::uint32_t node = plan.placement[r][s].node.value();
      const std::uint32_t type = job.cluster.nodes[node].type;
      if (!fits[type]) {
        fits[type] = fit_stage(tables[type], memory_rule(job, type, replicas), range, held);
      }
      slowest = std::max(slowest, fits[type] ? fits[type]->total_s() * slowdown[node] : kInfinity);
    }
    return slowest;
  };
  // best[s][i]: stages s.. hold layers i..
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(layers + 1, kInfinity));
  std::vector<std::vector<std::uint32_t>> end(stages, std::vector<std::uint32_t>(layers + 1, 0));
  best[stages][layers] = 0;
  for (std::uint32_t s = stages; s-- > 0;) {
    for (std::uint32_t i = s == 0 ? 0 : s; i < (s == 0 ? 1 : layers); ++i) {
      for (std::uint32_t e = i + 1; e <= layers; ++e) {
        if (best[s + 1][e] == kInfinity || best[s + 1][e] >= best[s][i]) {
          continue;
        }
        const double own = stage_s(s, {i, e});
        if (own >= best[s][i]) {
          break;  // longer ranges take longer
        }
        best[s][i] = std::max(own, best[s + 1][e]);
        end[s][i] = e;
      }
    }
  }
  if (best[0][0] == kInfinity) {
    return std::nullopt;
  }
  std::uint32_t first = 0;
  for (std::uint32_t s = 0; s < stages; ++s) {
    plan.pp_splits.push_back(first);
    const LayerRange range{first, end[s][first]};
    const std::uint32_t type = job.cluster.nodes[plan.placement[0][s].node.value()].type;
    const auto fit = fit_stage(tables[type], memory_rule(job, type, replicas), range,
                               in_flight(plan.schedule, stages, s, plan.microbatches[0]));
    mark_recomputed(tables[type], range, *fit, plan.checkpoint);
    first = range.last;
  }
  if (!check_plan(job, plan)) {
    return std::nullopt;
  }
  plan.predicted = predict(job, plan);
  return plan;
}

/// Bytes of the fullest stage when nothing is recomputed, the reserve included.
double need_bytes(const Job& job, const Plan& plan) {
  const Prediction predicted = predict(job, plan);
  return *std::max_element(predicted.stage_memory_bytes.begin(),
                           predicted.stage_memory_bytes.end()) /
         (1 - job.limits.memory_reserve_ratio);
}

/// The same positions, taken stage by stage instead of replica by replica.
std::vector<std::vector<Position>> columns(const std::vector<std::vector<Position>>& rows) {
  std::vector<Position> all;
  for (const auto& row : rows) {
    all.insert(all.end(), row.begin(), row.end());
  }
  std::vector<std::vector<Position>> placement(rows.size());
  for (std::size_t k = 0; k < all.size(); ++k) {
    placement[k % rows.size()].push_back(all[k]);
  }
  return placement;
}

/// The healthy plan of a job whose devices hold `ratio` of what it needs without recomputation, or
/// a little more where that is too little: replicas or the rings of stages side by side, whichever
/// is faster.
Plan plan_within(Job& job, const std::vector<std::vector<Position>>& placement, double ratio,
                 const std::vector<double>& slowdown) {
  job.limits.device_memory_bytes = 1e15;
  const double need = need_bytes(job, balanced_plan(job, placement, slowdown).value());
  for (;; ratio *= 1.05) {
    job.limits.device_memory_bytes = need * ratio;
    auto plan = balanced_plan(job, placement, slowdown);
    auto other = balanced_plan(job, columns(placement), slowdown);
    if (plan && other) {
      const bool faster = predict(job, *other).step_time_s < predict(job, *plan).step_time_s;
      return faster ? *std::move(other) : *std::move(plan);
    }
    if (plan) {
      return *std::move(plan);
    }
  }
}

/// Transformer layers as long as those of a large model: 56 ms forward on one device.
Graph layers_of(Draw& draw, std::uint32_t layers) {
  constexpr double kForwardFlops = 12.6e12;
  constexpr double kParamBytes = 3.6e9;
  constexpr double kBoundaryBytes = 0.2e9;
  Graph graph;
  graph.name = "blocks";
  const auto add = [&](OpNode op) {
    op.id = static_cast<std::uint32_t>(graph.nodes.size());
    op.bwd_flops = 2 * op.fwd_flops;
    if (op.id > 0) {
      const OpNode& before = graph.nodes.back();
      graph.edges.push_back({before.id, op.id, before.out_bytes, "bf16"});
    }
    graph.nodes.push_back(std::move(op));
  };
  const double heavy_share = coin(draw, 0.5) ? 0.3 : 0;
  const double heavy = draw.between(1.3, 2.0);
  const double stash = draw.between(1e9, 5e9);
  for (std::uint32_t l = 0; l < layers; ++l) {
    const double more = coin(draw, heavy_share) ? heavy : 1;
    const double ends = l == 0 || l + 1 == layers ? 0.3 : 0;  // embedding and head
    add({.name = "norm",
         .kind = OpKind::kNorm,
         .layer = l,
         .param_bytes = 1e4,
         .act_bytes = kBoundaryBytes,
         .out_bytes = kBoundaryBytes});
    add({.name = "up",
         .kind = OpKind::kColumnParallelLinear,
         .layer = l,
         .fwd_flops = kForwardFlops / 2 * more,
         .param_bytes = kParamBytes / 2 * (more + ends),
         .act_bytes = stash / 2,
         .work_bytes = 1e8,
         .out_bytes = 4 * kBoundaryBytes});
    add({.name = "down",
         .kind = OpKind::kRowParallelLinear,
         .layer = l,
         .fwd_flops = kForwardFlops / 2 * (more + (l + 1 == layers ? ends : 0)),
         .param_bytes = kParamBytes / 2 * (more + ends),
         .act_bytes = stash / 2 * more,
         .out_bytes = kBoundaryBytes});
  }
  return graph;
}

struct Shape {
  std::uint32_t replicas;
  std::uint32_t least_stages;
  std::uint32_t most_stages;
  std::uint32_t most_layers;
};
const Shape kOneShort{1, 4, 5, 14};
const Shape kOneLong{1, 6, 7, 12};
const Shape kTwoByThree{2, 3, 3, 12};
const Shape kTwoByFour{2, 4, 4, 11};
const Shape kThreeByThree{3, 3, 3, 10};

enum class Special : std::uint8_t {
  kNone,
  kLinks,
  kMemory,
  kFlags,
  kMixed,
  kTwoFaults,
  kTied,
  kFrozen,
  kFixed,
  kPinned,
  kRecovery
};

struct Family {
  SmallFamily shown;
  std::vector<Shape> shapes;
  Special special = Special::kNone;
};

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {{"f2", "1 replica of 4 or 5 stages"}, {kOneShort}},
      {{"f2b", "1 replica of 6 or 7 stages"}, {kOneLong}},
      {{"f3a", "2 replicas of 3 stages"}, {kTwoByThree}},
      {{"f3b", "2 replicas of 4 stages"}, {kTwoByFour}},
      {{"f3c", "3 replicas of 3 stages"}, {kThreeByThree}},
      {{"links", "one or two directed link faults"},
       {kOneShort, kTwoByThree, kTwoByFour},
       Special::kLinks},
      {{"memory", "devices hold 70 to 100 % of the need without recomputation"},
       {kOneShort, kTwoByThree, kTwoByFour},
       Special::kMemory},
      {{"flags", "memory as tight, recompute flags may not change"},
       {kOneShort, kTwoByThree, kTwoByFour},
       Special::kFlags},
      {{"mixed", "two types of devices"}, {kOneShort, kTwoByThree, kTwoByFour}, Special::kMixed},
      {{"two", "two faults at once"}, {kOneLong, kTwoByFour, kThreeByThree}, Special::kTwoFaults},
      {{"tied", "all replicas share one split"}, {kTwoByFour, kThreeByThree}, Special::kTied},
      {{"frozen", "equal microbatch counts"}, {kTwoByFour, kThreeByThree}, Special::kFrozen},
      {{"fixed", "stages may not move to other nodes"},
       {kOneLong, kTwoByFour, kThreeByThree},
       Special::kFixed},
      {{"pinned", "pinned and drained nodes"},
       {kOneShort, kTwoByThree, kTwoByFour},
       Special::kPinned},
      {{"recovery", "a repaired plan, all healthy again"},
       {kOneShort, kTwoByThree, kTwoByFour},
       Special::kRecovery}};
  return kFamilies;
}

void slow_devices(const Job& job, ClusterState& state, NodeId node, double factor, bool whole,
                  Draw& draw) {
  const std::uint32_t devices = job.cluster.type_of(node).devices;
  const std::uint32_t only = draw.between(0U, devices - 1);
  for (std::uint32_t d = 0; d < devices; ++d) {
    if (whole || d == only) {
      state.device_slowdown[job.cluster.rank_of(node, d).value()] = factor;
    }
  }
}

/// One of a node's directions, both, a path to another node, or inside.
void slow_link(const Job& job, ClusterState& state, std::uint32_t node, double factor, Draw& draw) {
  NodeLinks& links = state.node_links[node];
  const auto nodes = static_cast<std::uint32_t>(job.cluster.nodes.size());
  switch (draw.between(0U, 5U)) {
    case 0:
      links.send = factor;
      break;
    case 1:
      links.receive = factor;
      break;
    case 2:
    case 3:
      links.send = links.receive = factor;
      break;
    case 4:
      links.inside = std::min(factor, 4.0);
      break;
    default: {
      const std::uint32_t other = (node + draw.between(1U, nodes - 1)) % nodes;
      if (state.path(NodeId(node), NodeId(other)) == 1) {
        state.paths.push_back({NodeId(node), NodeId(other), factor});
      }
    }
  }
}

constexpr double kSlowestNic = 0.25e9;  // bytes per second

struct Faults {
  std::uint32_t least = 1;
  std::uint32_t most = 3;
  double links = 0.3;  ///< share of link faults
};

void disturb(Instance& instance, const Faults& faults, std::uint32_t used, Draw& draw) {
  const Job& job = instance.job;
  ClusterState& state = instance.request.state;
  const auto nodes = static_cast<std::uint32_t>(job.cluster.nodes.size());
  for (std::uint32_t k = draw.between(faults.least, faults.most); k > 0; --k) {
    const std::uint32_t node = draw.between(0U, used - 1);
    if (coin(draw, faults.links)) {
      // Not so slow that a step takes longer than the episode.
      const double most = job.cluster.node_types[0].nic_bytes_per_s / kSlowestNic;
      const double factor = one_of(draw, std::array{4.0, 10.0, 33.0});
      slow_link(job, state, node, std::min(factor, std::max(most, 2.0)), draw);
    } else {
      slow_devices(job, state, NodeId(node), draw.between(1.05, 2.5), coin(draw, 0.5), draw);
    }
  }
  for (std::uint32_t node = used; node < nodes; ++node) {
    if (coin(draw, 0.25)) {
      slow_devices(job, state, NodeId(node), draw.between(1.05, 1.5), false, draw);
    }
  }
}

void set_capabilities(Job& job, Special special) {
  job.capabilities.replica_splits = special != Special::kTied;
  job.capabilities.microbatch_counts = special != Special::kFrozen;
  job.capabilities.recompute = special != Special::kFlags;
  job.capabilities.placement = special != Special::kFixed;
}

void pin_and_drain(Instance& instance, std::uint32_t used, Draw& draw) {
  const std::size_t nodes = instance.job.cluster.nodes.size();
  instance.request.pinned.assign(nodes, false);
  instance.request.state.drained.assign(nodes, false);
  for (std::uint32_t node = 0; node < used; ++node) {
    instance.request.pinned[node] = coin(draw, 0.2);
  }
  const std::uint32_t drained = draw.between(0U, used - 1);
  instance.request.state.drained[drained] = coin(draw, 0.6);
  instance.request.pinned[drained] = false;
  instance.request.state.drained[nodes - 1] = nodes > used && coin(draw, 0.25);
}

/// Job, cluster and healthy plan of a draw; faults come after.
Instance draw_instance(std::string name, const Shape& shape, std::uint32_t spares, Special special,
                       Draw& draw) {
  Instance instance;
  instance.name = std::move(name);
  Job& job = instance.job;
  const std::uint32_t stages = draw.between(shape.least_stages, shape.most_stages);
  const std::uint32_t used = shape.replicas * stages;
  const std::uint32_t devices = 1U << draw.between(0U, 3U);
  job.name = "small";
  job.graph =
      layers_of(draw, draw.between(std::min(stages + 2, shape.most_layers), shape.most_layers));
  job.global_batch = shape.replicas * (shape.most_layers > 6 ? draw.between(stages, 4 * stages)
                                                             : draw.between(1U, stages + 1));
  job.switch_pause_s = draw.between(0.3, 3.0);
  job.limits.recompute_ratio = coin(draw, 0.5) ? 0.15 : 0.34;
  set_capabilities(job, special);

  Cluster& cluster = job.cluster;
  const double network_slower =
      coin(draw, 0.5) ? std::exp(draw.between(0.0, std::log(40.0))) : draw.between(1.0, 2.0);
  cluster.name = "small";
  cluster.device_types.push_back(a800());
  cluster.node_types.push_back(node_of(0, devices, network_slower));
  if (special == Special::kMixed) {
    DeviceType other = a800();
    other.name = "other";
    other.peak_flops *= draw.between(0.5, 0.9);
    other.memory_bytes_per_s *= draw.between(0.5, 1.0);
    cluster.device_types.push_back(other);
    cluster.node_types.push_back(node_of(1, devices, network_slower * draw.between(0.5, 2.0)));
  }
  const std::uint32_t per_tor = coin(draw, 0.5) ? 16 : draw.between(2U, 4U);
  for (std::uint32_t n = 0; n < used + spares; ++n) {
    cluster.nodes.push_back({.name = fmt::format("n{}", n),
                             .type = special == Special::kMixed && coin(draw, 0.4) ? 1U : 0U,
                             .tor = fmt::format("tor{}", n / per_tor),
                             .pod = "pod",
                             .spare = n >= used});
  }
  cluster.tor = {"tor", 6e-6, 1};
  cluster.pod = {"pod", 9e-6, draw.between(1.0, 4.0)};
  cluster.core = {"core", 12e-6, 4};

  const bool tight = special == Special::kMemory || special == Special::kFlags;
  const double ratio = tight ? draw.between(0.7, 1.0) : draw.between(0.85, 1.6);
  ReplanRequest& request = instance.request;
  request.state.device_slowdown.assign(cluster.device_count(), 1);
  request.state.node_links.assign(cluster.nodes.size(), {});
  request.expected_episode_s = one_of(draw, std::array{60.0, 600.0, 3600.0});
  std::vector<double> slow(cluster.nodes.size(), 1);
  auto placement = rows(cluster, shape.replicas, stages, static_cast<std::uint16_t>(devices));
  if (special == Special::kRecovery) {
    for (std::uint32_t k = draw.between(1U, 3U); k > 0; --k) {
      slow[draw.between(0U, used - 1)] = draw.between(1.1, 2.5);
    }
    std::swap(placement[0][0], placement.back()[draw.between(0U, stages - 1)]);
  }
  if (coin(draw, 0.5)) {  // measurements are never quite alike
    for (double& factor : request.state.device_slowdown) {
      factor = draw.between(0.99, 1.01);
    }
  }
  request.current = plan_within(job, placement, ratio, slow);
  return instance;
}

// What E8's layers of the second kind cost more.
constexpr double kHeavyLayer = 1.5;

struct Event {
  std::uint32_t slow_nodes;
  std::uint32_t bad_nics;
  std::uint32_t spares;
  std::uint32_t slow_spares;
  double network_slower;
};
constexpr std::array<Event, kEvents> kEvent = {{{1, 0, 0, 0, 1},
                                                {1, 0, 2, 0, 1},
                                                {4, 0, 0, 0, 1},
                                                {4, 0, 2, 0, 1},
                                                {2, 2, 2, 0, 4},
                                                {8, 2, 3, 2, 8},
                                                {0, 1, 0, 0, 8},
                                                {3, 0, 1, 0, 1}}};

/// The job of an event and its healthy plan.
struct Healthy {
  Job job;
  Plan plan;
};

Healthy healthy_large(std::uint32_t number, std::uint32_t replicas) {
  constexpr std::uint32_t kStages = 16;
  constexpr std::uint32_t kPerReplica = 32;
  const Event& event = kEvent[number - 1];
  Healthy healthy;
  Job& job = healthy.job;
  job = gpt3_175b_on_1024();
  job.name = fmt::format("E{}", number);
  job.global_batch = replicas * kPerReplica;
  job.switch_pause_s = 5;
  const std::uint32_t used = replicas * kStages;
  const Node example = job.cluster.nodes.front();
  job.cluster.nodes.clear();
  for (std::uint32_t n = 0; n < used + event.spares; ++n) {
    Node node = example;
    node.name = fmt::format("node{:04}", n);
    node.tor = fmt::format("tor{:03}", n / 16);
    node.pod = fmt::format("pod{:02}", n / 64);
    node.spare = n >= used;
    job.cluster.nodes.push_back(std::move(node));
  }
  job.cluster.node_types[0].nic_bytes_per_s /= event.network_slower;
  const auto placement = rows(job.cluster, replicas, kStages, 8);
  double memory_ratio = 1.5;
  if (number == 8) {
    memory_ratio = 0.85;
    job.limits.recompute_ratio = 0.34;
    Draw draw(8);
    std::vector<bool> heavy(job.graph.layer_count());
    for (std::size_t l = 1; l + 1 < heavy.size(); ++l) {
      heavy[l] = coin(draw, 0.3);
    }
    for (OpNode& op : job.graph.nodes) {
      if (heavy[op.layer]) {
        op.fwd_flops *= kHeavyLayer;
        op.bwd_flops *= kHeavyLayer;
      }
    }
  }
  healthy.plan =
      plan_within(job, placement, memory_ratio, std::vector<double>(job.cluster.nodes.size(), 1));
  return healthy;
}

const Healthy& healthy_large_once(std::uint32_t number, std::uint32_t replicas) {
  static std::map<std::pair<std::uint32_t, std::uint32_t>, Healthy> known;
  auto& entry = known[{number, replicas}];
  if (entry.plan.pp_splits.empty()) {
    entry = healthy_large(number, replicas);
  }
  return entry;
}

}  // namespace

const std::vector<SmallFamily>& small_families() {
  static const std::vector<SmallFamily> kShown = [] {
    std::vector<SmallFamily> shown;
    for (const Family& family : families()) {
      shown.push_back(family.shown);
    }
    return shown;
  }();
  return kShown;
}

Instance small_instance(std::string_view family, std::uint64_t seed) {
  const auto it = std::find_if(families().begin(), families().end(),
                               [&](const Family& f) { return f.shown.name == family; });
  TAPAS_CHECK(it != families().end(), "no family {}", family);
  // Families draw apart.
  Draw draw(seed * 1000 + static_cast<std::uint64_t>(it - families().begin()));
  const Shape& shape =
      it->shapes[draw.between(0U, static_cast<std::uint32_t>(it->shapes.size()) - 1)];
  Instance instance = draw_instance(fmt::format("{}/{}", family, seed), shape, draw.between(1U, 2U),
                                    it->special, draw);
  const Plan& plan = instance.request.current;
  const std::uint32_t used = plan.replicas() * plan.stages();
  switch (it->special) {
    case Special::kLinks:
      disturb(instance, {1, 2, 1.0}, used, draw);
      break;
    case Special::kTwoFaults:
      disturb(instance, {2, 2, 0.4}, used, draw);
      break;
    case Special::kPinned:
      disturb(instance, {}, used, draw);
      pin_and_drain(instance, used, draw);
      break;
    case Special::kRecovery:
      break;
    default:
      disturb(instance, {}, used, draw);
  }
  return instance;
}

Instance tiny_instance(std::uint64_t seed) {
  Draw draw(seed);
  const std::array<Shape, 3> shapes = {{{1, 2, 3, 6}, {2, 2, 2, 4}, {1, 4, 4, 5}}};
  const std::array<Special, 10> specials = {
      Special::kNone, Special::kLinks,  Special::kMemory, Special::kFlags,  Special::kMixed,
      Special::kTied, Special::kFrozen, Special::kFixed,  Special::kPinned, Special::kRecovery};
  const Shape& shape = shapes[draw.between(0U, 2U)];
  const Special special = specials[draw.between(0U, 9U)];
  Instance instance = draw_instance(fmt::format("tiny/{}", seed), shape, 1, special, draw);
  const Plan& plan = instance.request.current;
  const std::uint32_t used = plan.replicas() * plan.stages();
  if (special != Special::kRecovery) {
    disturb(instance, {1, 2, special == Special::kLinks ? 1.0 : 0.3}, used, draw);
  }
  if (special == Special::kPinned) {
    pin_and_drain(instance, used, draw);
  }
  return instance;
}

std::string_view to_string(Runtime runtime) {
  switch (runtime) {
    case Runtime::kFree:
      return "free";
    case Runtime::kFrozen:
      return "frozen";
    default:
      return "tied";
  }
}

Instance large_instance(std::uint32_t event, std::uint64_t seed, Runtime runtime,
                        std::uint32_t replicas) {
  const Healthy& healthy = healthy_large_once(event, replicas);
  const Event& kind = kEvent[event - 1];
  Draw draw(seed * kEvents + event);
  Instance instance;
  instance.name = fmt::format("E{}/{}/{}", event, to_string(runtime), seed);
  instance.job = healthy.job;
  instance.job.capabilities.microbatch_counts = runtime != Runtime::kFrozen;
  instance.job.capabilities.replica_splits = runtime != Runtime::kTied;
  instance.request.current = healthy.plan;
  instance.request.expected_episode_s = 1800;
  const Cluster& cluster = instance.job.cluster;
  ClusterState& state = instance.request.state;
  state.device_slowdown.assign(cluster.device_count(), 1);
  state.node_links.assign(cluster.nodes.size(), {});
  const auto nodes = static_cast<std::uint32_t>(cluster.nodes.size());
  const std::uint32_t used = nodes - kind.spares;
  std::vector<bool> hit(nodes);
  const auto another = [&] {
    std::uint32_t node = draw.between(0U, used - 1);
    while (hit[node]) {
      node = draw.between(0U, used - 1);
    }
    hit[node] = true;
    return node;
  };
  for (std::uint32_t k = 0; k < kind.slow_nodes; ++k) {
    slow_devices(instance.job, state, NodeId(another()), draw.between(1.2, 2.5), coin(draw, 0.5),
                 draw);
  }
  for (std::uint32_t k = 0; k < kind.bad_nics; ++k) {
    const double factor = one_of(draw, std::array{4.0, 10.0});
    NodeLinks& links = state.node_links[another()];
    const std::uint32_t side = draw.between(0U, 3U);
    links.send = side == 0 ? 1 : factor;
    links.receive = side == 1 ? 1 : factor;
  }
  for (std::uint32_t k = 0; k < kind.slow_spares; ++k) {
    slow_devices(instance.job, state, NodeId(used + k), draw.between(1.05, 1.5), true, draw);
  }
  return instance;
}

Instance malleus_shape(std::uint64_t seed) {
  constexpr std::uint32_t kReplicas = 2;
  constexpr std::uint32_t kStages = 8;
  constexpr std::uint16_t kWidth = 4;
  Draw draw(seed);
  Instance instance;
  instance.name = fmt::format("malleus/{}", seed);
  Job& job = instance.job;
  job = gpt3_175b_on_1024();
  job.name = "110b";
  job.graph = build_decoder({.name = "110b",
                             .layers = 80,
                             .hidden_size = 8192,
                             .heads = 64,
                             .sequence_length = 4096,
                             .vocabulary = 152064,
                             .ffn_size = 49152,
                             .kv_heads = 8,
                             .gated_ffn = true,
                             .rms_norm = true,
                             .rotary = true,
                             .biases = false,
                             .dropout = false,
                             .tied_head = false})
                  .value();
  job.global_batch = 64;
  job.limits.recompute_ratio = 0.34;
  job.cluster.nodes.resize(8);
  const std::vector<double> healthy(8, 1);
  instance.request.current =
      balanced_plan(job, rows(job.cluster, kReplicas, kStages, kWidth), healthy).value();
  instance.request.expected_episode_s = 1800;
  auto& slowdown = instance.request.state.device_slowdown;
  slowdown.assign(job.cluster.device_count(), 1);
  // Each on another node.
  std::uint32_t node = draw.between(0U, 7U);
  for (std::uint32_t k = 0; k < 3; ++k) {
    slowdown[job.cluster.rank_of(NodeId(node), draw.between(0U, 7U)).value()] =
        draw.between(1.5, 4.0);
    node = (node + draw.between(1U, 3U)) % 8;
  }
  return instance;
}

}  // namespace tapas::solver::testing
