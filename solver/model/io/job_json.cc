#include "solver/model/io/load.h"
#include "solver/model/io/read.h"

#include <cstdint>
#include <filesystem>
#include <utility>

namespace tapas::solver {

namespace {

namespace fs = std::filesystem;

void read_limits(json::ObjectReader& job_in, Limits& limits) {
  if (!job_in.has("limits")) {
    return;
  }
  json::ObjectReader in(job_in.object("limits"), job_in.child("limits"));
  limits.device_memory_bytes = in.number_or("device_memory_bytes", 0, 0, io::kMaxAmount);
  limits.memory_reserve_ratio =
      in.number_or("memory_reserve_ratio", limits.memory_reserve_ratio, 0, 0.9);
  limits.step_time_s = in.number_or("step_time_s", 0, 0, 1e6);
  limits.recompute_ratio = in.number_or("recompute_ratio", limits.recompute_ratio, 0, 1);
  if (const auto done = in.finish(); !done) {
    job_in.absorb(done.error());
  }
}

void read_capabilities(json::ObjectReader& job_in, Capabilities& capabilities) {
  if (!job_in.has("capabilities")) {
    return;
  }
  json::ObjectReader in(job_in.object("capabilities"), job_in.child("capabilities"));
  capabilities.replica_splits = in.boolean_or("replica_splits", true);
  capabilities.microbatch_counts = in.boolean_or("microbatch_counts", true);
  capabilities.recompute = in.boolean_or("recompute", true);
  capabilities.placement = in.boolean_or("placement", true);
  capabilities.narrower_groups = in.boolean_or("narrower_groups", false);
  if (const auto done = in.finish(); !done) {
    job_in.absorb(done.error());
  }
}

void read_weights(json::ObjectReader& search_in, ObjectiveWeights& weights) {
  if (!search_in.has("weights")) {
    return;
  }
  json::ObjectReader in(search_in.object("weights"), search_in.child("weights"));
  weights.memory_per_byte = in.number_or("memory_per_byte", weights.memory_per_byte, 0, 1e12);
  weights.communication_per_s =
      in.number_or("communication_per_s", weights.communication_per_s, 0, 1e12);
  weights.stage_time_per_s = in.number_or("stage_time_per_s", weights.stage_time_per_s, 0, 1e12);
  if (const auto done = in.finish(); !done) {
    search_in.absorb(done.error());
  }
}

void read_integers(json::ObjectReader& in, const char* key, std::uint64_t most,
                   std::vector<std::uint32_t>& out) {
  if (!in.has(key)) {
    return;
  }
  for (const json::Value& item : in.array(key, 64)) {
    const std::uint64_t number = item.is_number_unsigned() ? item.get<std::uint64_t>() : 0;
    if (number < 1 || number > most) {
      in.absorb({ErrorCode::kInvalid,
                 fmt::format("{} must hold integers from 1 to {}", in.child(key), most)});
      return;
    }
    out.push_back(static_cast<std::uint32_t>(number));
  }
}

void read_search(json::ObjectReader& job_in, SearchSettings& search) {
  if (!job_in.has("search")) {
    return;
  }
  json::ObjectReader in(job_in.object("search"), job_in.child("search"));
  if (in.has("model") && in.word("model", {"physical", "document"}) == "document") {
    search.model = CostModelKind::kDocument;
  }
  search.seed = static_cast<std::uint64_t>(in.integer_or("seed", 1, 0, INT64_MAX));
  search.min_stages = io::u32_or(in, "min_stages", search.min_stages, 1, 4096);
  search.max_stages = io::u32_or(in, "max_stages", search.max_stages, 1, 4096);
  read_integers(in, "tp_widths", 1024, search.tp_widths);
  search.stage_widths = in.boolean_or("stage_widths", search.stage_widths);
  read_integers(in, "micro_batch_sizes", 1 << 16, search.micro_batch_sizes);
  read_integers(in, "interleave", 1024, search.interleave);
  search.anneal = in.boolean_or("anneal", false);
  read_weights(in, search.weights);
  if (const auto done = in.finish(); !done) {
    job_in.absorb(done.error());
  }
}

/// A part of the job that is written inline or named as a file beside the job file.
struct Part {
  json::Value value;
  std::string where;   ///< for errors
  std::string folder;  ///< of the file it came from
};

Result<Part> load_part(const json::Value& job, const char* key, const fs::path& folder) {
  const json::Value& value = job[key];
  if (value.is_object()) {
    return Part{value, std::string("job.") + key, folder};
  }
  if (!value.is_string()) {
    return fail(ErrorCode::kInvalid, "job.{} must be an object or the name of a file", key);
  }
  const fs::path path = folder / value.get<std::string>();
  auto parsed = json::parse_file(path);
  if (!parsed) {
    return fail_in(std::string("job.") + key, parsed.error());
  }
  return Part{std::move(*parsed), path, path.parent_path()};
}

Result<Graph> load_graph(const Part& part, const io::ModelDefaults& defaults, bool batch_given) {
  if (part.value.is_object() && part.value.contains("model")) {
    return io::read_named_model(part.value, part.where, defaults);
  }
  if (part.value.is_object() && part.value.contains("schema") &&
      part.value["schema"] == "tapas.model/1") {
    auto model = io::read_model(part.value, part.where);
    if (!model) {
      return tl::unexpected<Error>(model.error());
    }
    model->shape.micro_batch_size = defaults.micro_batch_size;
    model->shape.bytes_per_element = defaults.bytes_per_element;
    return build_decoder(model->shape);
  }
  auto graph = io::read_graph(part.value, part.where);
  if (graph && batch_given && graph->micro_batch_size != defaults.micro_batch_size) {
    return fail(ErrorCode::kInvalid,
                "job.micro_batch_size is {}, but the numbers of graph {} are for {}; export the "
                "graph again or leave the key out",
                defaults.micro_batch_size, graph->name, graph->micro_batch_size);
  }
  return graph;
}

Result<Job> job_from_json(const json::Value& value, const fs::path& folder) {
  json::ObjectReader in(value, "job");
  in.require_schema("tapas.job/1");
  Job job;
  job.name = in.string("name");
  const bool has_parts = in.has("graph") && in.has("cluster");
  job.global_batch = io::u32(in, "global_batch", 1, 1 << 30);
  const bool batch_given = in.has("micro_batch_size");
  io::ModelDefaults defaults;
  defaults.micro_batch_size = io::u32_or(in, "micro_batch_size", 1, 1, 1 << 16);
  job.dtype = in.has("dtype") ? in.word("dtype", {"bf16", "fp16", "fp32"}) : job.dtype;
  defaults.bytes_per_element = job.dtype == "fp32" ? 4 : 2;
  job.bytes_per_param = defaults.bytes_per_element;
  job.optimizer_bytes_per_param =
      in.number_or("optimizer_bytes_per_param", job.optimizer_bytes_per_param, 0, 1024);
  job.gradient_bytes_per_param =
      in.number_or("gradient_bytes_per_param", job.gradient_bytes_per_param, 0, 1024);
  job.zero_stage = io::u32_or(in, "zero_stage", job.zero_stage, 0, 1);
  if (in.has("schedule")) {
    const std::string word = in.word("schedule", {"1f1b", "gpipe", "interleaved"});
    job.schedule = word == "gpipe"         ? Schedule::kGpipe
                   : word == "interleaved" ? Schedule::kInterleaved
                                           : Schedule::k1f1b;
  }
  job.overlap_tp = in.boolean_or("overlap_tp", job.overlap_tp);
  job.overlap_gradients = in.boolean_or("overlap_gradients", job.overlap_gradients);
  read_limits(in, job.limits);
  read_capabilities(in, job.capabilities);
  read_search(in, job.search);
  job.switch_pause_s = in.number_or("switch_pause_s", job.switch_pause_s, 0, 1e5);
  if (!has_parts && in.ok()) {
    in.absorb({ErrorCode::kInvalid, "job needs both \"graph\" and \"cluster\""});
  }
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }

  const auto graph_part = load_part(value, "graph", folder);
  if (!graph_part) {
    return tl::unexpected<Error>(graph_part.error());
  }
  auto graph = load_graph(*graph_part, defaults, batch_given);
  if (!graph) {
    return tl::unexpected<Error>(graph.error());
  }
  job.graph = std::move(*graph);

  const auto cluster_part = load_part(value, "cluster", folder);
  if (!cluster_part) {
    return tl::unexpected<Error>(cluster_part.error());
  }
  auto cluster = io::read_cluster(cluster_part->value, cluster_part->where, cluster_part->folder);
  if (!cluster) {
    return tl::unexpected<Error>(cluster.error());
  }
  job.cluster = std::move(*cluster);

  if (const auto valid = validate(job); !valid) {
    return tl::unexpected<Error>(valid.error());
  }
  return job;
}

}  // namespace

Result<Job> load_job(const std::string& path) {
  const auto value = json::parse_file(path);
  if (!value) {
    return tl::unexpected<Error>(value.error());
  }
  auto job = job_from_json(*value, fs::path(path).parent_path());
  if (!job) {
    return fail_in(path, job.error());
  }
  return job;
}

}  // namespace tapas::solver
