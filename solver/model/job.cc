#include "solver/model/job.h"

#include <algorithm>
#include <cmath>

namespace tapas::solver {

std::string_view to_string(Schedule schedule) {
  switch (schedule) {
    case Schedule::kGpipe:
      return "gpipe";
    case Schedule::k1f1b:
      return "1f1b";
    case Schedule::kInterleaved:
      return "interleaved";
  }
  return "unknown";
}

std::string_view to_string(CostModelKind kind) {
  switch (kind) {
    case CostModelKind::kPhysical:
      return "physical";
    case CostModelKind::kDocument:
      return "document";
  }
  return "unknown";
}

namespace {

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

Result<void> check_search(const Job& job) {
  const SearchSettings& search = job.search;
  if (search.min_stages == 0 || search.min_stages > search.max_stages) {
    return fail(ErrorCode::kInvalid,
                "job {}: search needs 1 <= min_stages <= max_stages, not {} and {}", job.name,
                search.min_stages, search.max_stages);
  }
  std::uint32_t most = 0;
  for (const NodeType& type : job.cluster.node_types) {
    most = std::max(most, type.devices);
  }
  for (const std::uint32_t width : search.tp_widths) {
    if (width == 0 || width > most) {
      return fail(ErrorCode::kInvalid, "job {}: TP width {} does not fit a node of {} devices",
                  job.name, width, most);
    }
  }
  for (const std::uint32_t size : search.micro_batch_sizes) {
    if (size == 0 || job.global_batch % size != 0) {
      return fail(
          ErrorCode::kInvalid,
          "job {}: search.micro_batch_sizes has {}, which does not divide the global batch {}",
          job.name, size, job.global_batch);
    }
  }
  if (std::count(search.interleave.begin(), search.interleave.end(), 0U) > 0) {
    return fail(ErrorCode::kInvalid, "job {}: search.interleave must hold positive numbers",
                job.name);
  }
  if (!is_amount(search.weights.memory_per_byte) ||
      !is_amount(search.weights.communication_per_s) ||
      !is_amount(search.weights.stage_time_per_s)) {
    return fail(ErrorCode::kInvalid, "job {}: objective weights must not be negative", job.name);
  }
  return {};
}

}  // namespace

Job with_micro_batch_size(Job job, std::uint32_t size) {
  Graph& graph = job.graph;
  if (size == 0 || size == graph.micro_batch_size) {
    return job;
  }
  const double factor = static_cast<double>(size) / graph.micro_batch_size;
  for (OpNode& op : graph.nodes) {
    for (double* number : {&op.fwd_flops, &op.bwd_flops, &op.act_bytes, &op.work_bytes,
                           &op.out_bytes, &op.fwd_moved_bytes, &op.bwd_moved_bytes}) {
      *number *= factor;
    }
  }
  for (OpEdge& edge : graph.edges) {
    edge.bytes *= factor;
  }
  graph.micro_batch_size = size;
  return job;
}

Result<void> validate(const Job& job) {
  if (!valid_name(job.name)) {
    return fail(ErrorCode::kInvalid, "job name \"{}\" is not a valid name", job.name);
  }
  if (const auto ok = validate(job.graph); !ok) {
    return ok;
  }
  if (const auto ok = validate(job.cluster); !ok) {
    return ok;
  }
  if (job.global_batch == 0 || job.global_batch % job.graph.micro_batch_size != 0) {
    return fail(ErrorCode::kInvalid,
                "job {}: global_batch {} is not a positive multiple of micro_batch_size {}",
                job.name, job.global_batch, job.graph.micro_batch_size);
  }
  if (!std::isfinite(job.bytes_per_param) || job.bytes_per_param <= 0 ||
      !is_amount(job.optimizer_bytes_per_param) || !is_amount(job.gradient_bytes_per_param)) {
    return fail(ErrorCode::kInvalid, "job {}: bytes per parameter must not be negative", job.name);
  }
  if (job.zero_stage > 1) {
    return fail(ErrorCode::kInvalid, "job {}: zero_stage is {}; 0 and 1 are supported", job.name,
                job.zero_stage);
  }
  const Limits& limits = job.limits;
  if (!is_amount(limits.device_memory_bytes) || !is_amount(limits.step_time_s) ||
      !is_amount(limits.memory_reserve_ratio) || limits.memory_reserve_ratio >= 1 ||
      !is_amount(limits.recompute_ratio) || limits.recompute_ratio > 1) {
    return fail(ErrorCode::kInvalid,
                "job {}: limits must not be negative, memory_reserve_ratio must be below 1 and "
                "recompute_ratio at most 1",
                job.name);
  }
  if (!is_amount(job.switch_pause_s)) {
    return fail(ErrorCode::kInvalid, "job {}: switch_pause_s must not be negative", job.name);
  }
  return check_search(job);
}

}  // namespace tapas::solver
