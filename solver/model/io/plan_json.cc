#include "solver/model/io/load.h"
#include "solver/model/io/read.h"

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace tapas::solver {

namespace {

constexpr std::size_t kMaxLayers = 100'000;
constexpr std::size_t kMaxStages = 4096;
constexpr std::size_t kMaxReplicas = 100'000;
constexpr std::size_t kMaxGroup = 1024;

using NodesByName = std::unordered_map<std::string_view, NodeId>;

template <typename Int>
std::vector<Int> integers(json::ObjectReader& in, const json::Value& array,
                          const std::string& where, std::uint64_t max) {
  std::vector<Int> out;
  out.reserve(array.size());
  for (const json::Value& item : array) {
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > max) {
      in.absorb({ErrorCode::kInvalid,
                 fmt::format("{}[{}] must be an integer from 0 to {}", where, out.size(), max)});
      return out;
    }
    out.push_back(static_cast<Int>(item.get<std::uint64_t>()));
  }
  return out;
}

template <typename Int>
std::vector<Int> integers(json::ObjectReader& in, std::string_view key, std::size_t max_items,
                          std::uint64_t max) {
  return integers<Int>(in, in.array(key, max_items), in.child(key), max);
}

std::vector<double> numbers(json::ObjectReader& in, std::string_view key) {
  std::vector<double> out;
  for (const json::Value& item : in.array(key, kMaxStages)) {
    if (!item.is_number()) {
      in.absorb({ErrorCode::kInvalid, fmt::format("{} must hold numbers", in.child(key))});
      return out;
    }
    out.push_back(item.get<double>());
  }
  return out;
}

std::vector<bool> flags(json::ObjectReader& in, const json::Value& array,
                        const std::string& where) {
  std::vector<bool> out;
  for (const json::Value& item : array) {
    if (!item.is_boolean()) {
      in.absorb({ErrorCode::kInvalid, fmt::format("{} must hold true or false", where)});
      return out;
    }
    out.push_back(item.get<bool>());
  }
  return out;
}

Position read_position(json::ObjectReader& parent, const json::Value& value,
                       const std::string& where, const NodesByName& nodes) {
  json::ObjectReader in(value, where);
  Position position;
  const std::string name = in.string("node");
  if (const auto node = nodes.find(name); node != nodes.end()) {
    position.node = node->second;
  } else {
    in.absorb({ErrorCode::kInvalid,
               fmt::format("{}: the job's cluster has no node \"{}\"", in.child("node"), name)});
  }
  position.devices = integers<std::uint16_t>(in, "devices", kMaxGroup, kMaxGroup - 1);
  if (const auto done = in.finish(); !done) {
    parent.absorb(done.error());
  }
  return position;
}

/// Rows of an array of arrays, one per replica.
const json::Value& row(json::ObjectReader& in, const json::Value& rows, std::string_view key,
                       std::size_t index, std::size_t max_items) {
  static const json::Value empty = json::Value::array();
  if (!rows[index].is_array() || rows[index].size() > max_items) {
    in.absorb({ErrorCode::kInvalid, fmt::format("{} must be an array of at most {} entries",
                                                in.child(key, index), max_items)});
    return empty;
  }
  return rows[index];
}

void read_placement(json::ObjectReader& in, const Job& job, Plan& plan) {
  NodesByName nodes;
  for (std::uint32_t i = 0; i < job.cluster.nodes.size(); ++i) {
    nodes.emplace(job.cluster.nodes[i].name, NodeId(i));
  }
  const json::Value& rows = in.array("placement", kMaxReplicas);
  for (std::size_t replica = 0; replica < rows.size() && in.ok(); ++replica) {
    const json::Value& stages = row(in, rows, "placement", replica, kMaxStages);
    std::vector<Position>& positions = plan.placement.emplace_back();
    for (std::size_t stage = 0; stage < stages.size() && in.ok(); ++stage) {
      const std::string where = fmt::format("{}[{}]", in.child("placement", replica), stage);
      positions.push_back(read_position(in, stages[stage], where, nodes));
    }
  }
}

void read_predicted(json::ObjectReader& parent, Prediction& predicted) {
  json::ObjectReader in(parent.object("predicted"), parent.child("predicted"));
  constexpr double kMost = io::kMaxAmount;
  predicted.step_time_s = in.number("step_time_s", 0, kMost);
  predicted.lower_bound_s = in.number("lower_bound_s", 0, kMost);
  predicted.gap_ratio = in.number("gap_ratio", -kMost, kMost);
  predicted.peak_fraction = in.number("peak_fraction", 0, kMost);
  predicted.stage_time_s = numbers(in, "stage_time_s");
  predicted.stage_memory_bytes = numbers(in, "stage_memory_bytes");
  predicted.tp_bytes = in.number("tp_bytes", 0, kMost);
  predicted.pp_bytes = in.number("pp_bytes", 0, kMost);
  predicted.dp_bytes = in.number("dp_bytes", 0, kMost);
  if (const auto done = in.finish(); !done) {
    parent.absorb(done.error());
  }
}

json::Value predicted_to_json(const Prediction& predicted) {
  return {{"step_time_s", predicted.step_time_s},
          {"lower_bound_s", predicted.lower_bound_s},
          {"gap_ratio", predicted.gap_ratio},
          {"peak_fraction", predicted.peak_fraction},
          {"stage_time_s", predicted.stage_time_s},
          {"stage_memory_bytes", predicted.stage_memory_bytes},
          {"tp_bytes", predicted.tp_bytes},
          {"pp_bytes", predicted.pp_bytes},
          {"dp_bytes", predicted.dp_bytes}};
}

}  // namespace

json::Value io::position_to_json(const Position& position, const Cluster& cluster) {
  return {{"node", cluster.nodes[position.node.value()].name}, {"devices", position.devices}};
}

Result<Plan> plan_from_json(const json::Value& value, const Job& job) {
  json::ObjectReader in(value, "plan");
  in.require_schema("tapas.plan/1");
  Plan plan;
  plan.job = in.string("job");
  plan.epoch = Epoch(static_cast<std::uint64_t>(in.integer("epoch", 0, INT64_MAX)));
  plan.parent = Epoch(static_cast<std::uint64_t>(in.integer("parent", 0, INT64_MAX)));
  const std::string schedule = in.word("schedule", {"1f1b", "gpipe", "interleaved"});
  plan.schedule = schedule == "gpipe"         ? Schedule::kGpipe
                  : schedule == "interleaved" ? Schedule::kInterleaved
                                              : Schedule::k1f1b;
  plan.interleave = io::u32_or(in, "interleave", 1, 1, kMaxStages);
  plan.micro_batch_size = io::u32_or(in, "micro_batch_size", 0, 1, 1 << 16);
  plan.pp_splits = integers<std::uint32_t>(in, "pp_splits", kMaxStages, kMaxLayers);
  plan.tp_width = integers<std::uint16_t>(in, "tp_width", kMaxLayers, kMaxGroup);
  plan.checkpoint = flags(in, in.array("checkpoint", kMaxLayers), in.child("checkpoint"));
  plan.sp_width =
      static_cast<std::uint16_t>(in.integer("sp_width", 1, static_cast<std::int64_t>(kMaxGroup)));
  plan.microbatches = integers<std::uint32_t>(in, "microbatches", kMaxReplicas, 1U << 30U);
  read_placement(in, job, plan);
  if (in.has("replica_splits")) {
    const json::Value& rows = in.array("replica_splits", kMaxReplicas);
    for (std::size_t replica = 0; replica < rows.size() && in.ok(); ++replica) {
      plan.replica_splits.push_back(
          integers<std::uint32_t>(in, row(in, rows, "replica_splits", replica, kMaxStages),
                                  in.child("replica_splits", replica), kMaxLayers));
    }
  }
  if (in.has("replica_checkpoint")) {
    const json::Value& rows = in.array("replica_checkpoint", kMaxReplicas);
    for (std::size_t replica = 0; replica < rows.size() && in.ok(); ++replica) {
      plan.replica_checkpoint.push_back(
          flags(in, row(in, rows, "replica_checkpoint", replica, kMaxLayers),
                in.child("replica_checkpoint", replica)));
    }
  }
  if (in.has("predicted")) {
    read_predicted(in, plan.predicted);
  }
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  return plan;
}

Result<Plan> load_plan(const std::string& path, const Job& job) {
  const auto value = json::parse_file(path);
  if (!value) {
    return tl::unexpected<Error>(value.error());
  }
  auto plan = plan_from_json(*value, job);
  if (!plan) {
    return fail_in(path, plan.error());
  }
  return plan;
}

json::Value plan_to_json(const Plan& plan, const Job& job) {
  json::Value out = {{"schema", "tapas.plan/1"},
                     {"job", plan.job},
                     {"epoch", plan.epoch.value()},
                     {"parent", plan.parent.value()},
                     {"schedule", to_string(plan.schedule)},
                     {"pp_splits", plan.pp_splits},
                     {"tp_width", plan.tp_width},
                     {"checkpoint", plan.checkpoint},
                     {"sp_width", plan.sp_width},
                     {"microbatches", plan.microbatches}};
  json::Value& placement = out["placement"] = json::Value::array();
  for (const std::vector<Position>& stages : plan.placement) {
    json::Value& positions = placement.emplace_back(json::Value::array());
    for (const Position& position : stages) {
      positions.push_back(io::position_to_json(position, job.cluster));
    }
  }
  if (plan.interleave > 1) {
    out["interleave"] = plan.interleave;
  }
  if (plan.micro_batch_size > 0) {
    out["micro_batch_size"] = plan.micro_batch_size;
  }
  if (!plan.replica_splits.empty()) {
    out["replica_splits"] = plan.replica_splits;
  }
  if (!plan.replica_checkpoint.empty()) {
    out["replica_checkpoint"] = plan.replica_checkpoint;
  }
  out["predicted"] = predicted_to_json(plan.predicted);
  return out;
}

json::Value moves_to_json(const std::vector<LayerMove>& moves, const Job& job) {
  json::Value out = json::Value::array();
  for (const LayerMove& move : moves) {
    out.push_back({{"replica", move.replica},
                   {"layer", move.layer},
                   {"from_stage", move.from_stage},
                   {"to_stage", move.to_stage},
                   {"from", io::position_to_json(move.from, job.cluster)},
                   {"to", io::position_to_json(move.to, job.cluster)},
                   {"bytes", move.bytes}});
  }
  return out;
}

}  // namespace tapas::solver
