#include "solver/profile/layers.h"
#include "solver/profile/readers.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tapas::solver::profile {
namespace {

constexpr std::size_t kMaxNodes = 100'000;
constexpr std::size_t kMaxEdges = 1'000'000;
constexpr std::int64_t kMaxId = (std::int64_t{1} << 32) - 1;
constexpr std::uint32_t kMaxWidth = 4096;
constexpr std::size_t kMaxVariants = 16;

/// One way to run a node at one TP degree.
struct Variant {
  std::string id;
  double time = 0;
  double param_bytes = 0;
  double act_bytes = 0;  ///< per sample in flight
  double fixed_bytes = 0;
};

Result<Variant> read_variant(const json::Value& value, const std::string& where) {
  json::ObjectReader in(value, where);
  Variant v;
  v.id = in.string("id");
  v.time = in.number("timePerSample", 0, kMaxSeconds);
  v.param_bytes = in.number("parameterSize", 0, kMaxBytes);
  v.act_bytes = in.number("memoryUsageA", 0, kMaxBytes);
  v.fixed_bytes = in.number("memoryUsageB", 0, kMaxBytes);
  // Bytes to re-shard a cut tensor: zero between groups of equal width, all that a plan has.
  (void)in.object("syncTimeFw");
  (void)in.object("syncTimeBw");
  if (auto done = in.finish(); !done) {
    return tl::unexpected(done.error());
  }
  return v;
}

struct Choice {
  Variant plain;
  std::optional<Variant> recomputed;
};

Result<Choice> read_choice(const json::Value& value, const std::string& where) {
  if (!value.is_array() || value.empty() || value.size() > kMaxVariants) {
    return fail(ErrorCode::kInvalid, "{}: expected a list of 1 to {} variants", where,
                kMaxVariants);
  }
  std::optional<Variant> plain;
  std::optional<Variant> recomputed;
  for (std::size_t k = 0; k < value.size(); ++k) {
    auto variant = read_variant(value[k], fmt::format("{}[{}]", where, k));
    if (!variant) {
      return tl::unexpected(variant.error());
    }
    if (variant->id == "vanilla") {
      plain = std::move(*variant);
    } else if (variant->id == "activation recomp") {
      recomputed = std::move(*variant);
    } else {
      return fail(ErrorCode::kInvalid,
                  "{}[{}]: unknown variant \"{}\"; known are \"vanilla\" and \"activation recomp\"",
                  where, k, variant->id);
    }
  }
  if (!plain) {
    return fail(ErrorCode::kInvalid, "{}: has no variant \"vanilla\"", where);
  }
  return Choice{std::move(*plain), std::move(recomputed)};
}

}  // namespace

Result<Profile> read_piper(const std::vector<File>& files, const Options& options) {
  if (files.size() != 1) {
    return fail(ErrorCode::kInvalid, "layout piper takes one file, not {}", files.size());
  }
  const File& file = files[0];
  if (options.device.empty()) {
    return fail(ErrorCode::kInvalid, "{}: the file does not say which device was profiled; name it",
                file.name);
  }
  const auto value = parse_object(file);
  if (!value) {
    return tl::unexpected(value.error());
  }
  json::ObjectReader in(*value, file.name);
  (void)in.number("maxDevices", 0, 1e9);
  (void)in.number("maxMemoryPerDevice", 0, kMaxBytes);
  (void)in.number("bandwidth", 0, kMaxBytes);
  (void)in.number("mbsInBatch", 0, 1e9);
  Profile profile;
  Graph& graph = profile.graph;
  graph.name = options.name;
  if (graph.name.empty()) {
    graph.name = base_name(file);
    graph.name = graph.name.substr(0, graph.name.find('.'));
  }
  graph.micro_batch_size = options.micro_batch_size > 0 ? options.micro_batch_size : 1;
  const double samples = graph.micro_batch_size;
  std::size_t guessed = 0;
  const json::Value& nodes = in.array("nodes", kMaxNodes);
  for (std::size_t k = 0; k < nodes.size() && in.ok(); ++k) {
    json::ObjectReader node(nodes[k], in.child("nodes", k));
    OpNode op;
    op.id = static_cast<std::uint32_t>(node.integer("id", 0, kMaxId));
    op.name = node.string_or("name", fmt::format("node {}", op.id));
    const json::Value& choices = node.object("TMPCs");
    for (const auto& [key, variants] : choices.items()) {
      const std::string where = node.child("TMPCs") + "." + key;
      const auto width = whole(key, 1, kMaxWidth);
      if (!width) {
        node.absorb({ErrorCode::kInvalid, fmt::format("{}: the key is not a TP degree", where)});
        break;
      }
      const auto choice = read_choice(variants, where);
      if (!choice) {
        node.absorb(choice.error());
        break;
      }
      MeasuredOp m;
      m.device = options.device;
      m.micro_batch_size = graph.micro_batch_size;
      m.tp_width = static_cast<std::uint16_t>(*width);
      // Recomputing runs the forward once more: the difference of the variants is its time.
      const double total = choice->plain.time * options.seconds_per_unit * samples;
      double forward = total / 3;
      if (choice->recomputed && choice->recomputed->time > choice->plain.time) {
        forward = std::min(total, (choice->recomputed->time - choice->plain.time) *
                                      options.seconds_per_unit * samples);
      } else if (total > 0) {
        ++guessed;
      }
      m.forward_s = forward;
      m.backward_s = total - forward;
      m.forward_comm_s = 0;
      m.backward_comm_s = 0;
      m.param_bytes = choice->plain.param_bytes;
      m.act_bytes = choice->plain.act_bytes * samples;
      m.work_bytes = std::max(0.0, choice->plain.fixed_bytes - 2 * choice->plain.param_bytes);
      if (*width == 1 || op.measured.empty()) {
        op.param_bytes = *m.param_bytes;
        op.act_bytes = *m.act_bytes;
        op.work_bytes = *m.work_bytes;
      }
      op.measured.push_back(std::move(m));
    }
    if (auto done = node.finish(); !done) {
      in.absorb(done.error());
    }
    graph.nodes.push_back(std::move(op));
  }
  std::map<std::uint32_t, double> out_bytes;
  const json::Value& edges = in.array("edges", kMaxEdges);
  for (std::size_t k = 0; k < edges.size() && in.ok(); ++k) {
    json::ObjectReader edge(edges[k], in.child("edges", k));
    OpEdge made;
    made.src = static_cast<std::uint32_t>(edge.integer("sourceId", 0, kMaxId));
    made.dst = static_cast<std::uint32_t>(edge.integer("destId", 0, kMaxId));
    made.bytes = edge.number("communicationCost", 0, kMaxBytes) * samples;
    made.dtype = "unstated";
    if (auto done = edge.finish(); !done) {
      in.absorb(done.error());
    }
    double& most = out_bytes[made.src];
    most = std::max(most, made.bytes);
    graph.edges.push_back(std::move(made));
  }
  if (auto done = in.finish(); !done) {
    return tl::unexpected(done.error());
  }
  for (OpNode& op : graph.nodes) {
    op.out_bytes = out_bytes[op.id];
  }
  if (auto ok = arrange(graph); !ok) {
    return fail_in(file.name, ok.error());
  }
  profile.notes.push_back(
      "the forward is what the recomputing variant takes longer; TP collectives are within the "
      "times; twice the parameter bytes of a node count as its states, the rest as scratch memory");
  if (guessed > 0) {
    profile.notes.push_back(fmt::format(
        "{} times without a slower recomputing variant were split 1:2 into forward and backward",
        guessed));
  }
  return profile;
}

}  // namespace tapas::solver::profile
