#include "solver/profile/csv.h"
#include "solver/profile/readers.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace tapas::solver::profile {
namespace {

constexpr std::uint32_t kMaxSamples = 1 << 16;
constexpr std::uint32_t kMaxWidth = 4096;
constexpr std::string_view kBlock = "enc-";  ///< operators of the repeated block start so
constexpr std::string_view kEmbedding = "encoder-embedding";
constexpr double kMicrosecond = 1e-6;

OpKind kind_of(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, OpKind>, 10> kKinds = {{
      {"encoder-embedding", OpKind::kEmbedding},
      {"enc-attention-qkv", OpKind::kColumnParallelLinear},
      {"enc-attention-score", OpKind::kAttention},
      {"enc-attention-softmax", OpKind::kAttention},
      {"enc-attention-dropout", OpKind::kAttention},
      {"enc-attention-context", OpKind::kAttention},
      {"enc-attention-dense", OpKind::kRowParallelLinear},
      {"enc-MLP-GEMM-1", OpKind::kColumnParallelLinear},
      {"enc-MLP-GEMM-2", OpKind::kRowParallelLinear},
      {"gpt-post-process", OpKind::kHead},
  }};
  for (const auto& [known, kind] : kKinds) {
    if (known == name) {
      return kind;
    }
  }
  return name.find("norm") != std::string_view::npos ? OpKind::kNorm : OpKind::kOther;
}

/// A block is five layers: up to the attention core, the core, its projection, the MLP's first half
/// and its second. Cuts come finer so, and recomputing the core alone saves most of the memory.
bool starts_layer(std::string_view name) {
  return name == "enc-attention-score" || name == "enc-attention-dense" ||
         name == "enc-2nd-layernorm" || name == "enc-MLP-GEMM-2";
}

/// One operator as profiled.
struct Operator {
  std::string name;
  std::vector<MeasuredOp> measured;
  std::map<std::uint32_t, double> out_bytes;  ///< by micro-batch size: all that leaves it
};

void describe(OpNode& op, const Operator& from, std::uint32_t samples, double hidden_bytes) {
  op.name = from.name;
  op.kind = kind_of(from.name);
  op.measured = from.measured;
  op.out_bytes = hidden_bytes;
  for (const MeasuredOp& m : from.measured) {
    if (m.micro_batch_size == samples && m.tp_width == 1) {
      op.param_bytes = *m.param_bytes;
      op.act_bytes = *m.act_bytes;
      op.work_bytes = *m.work_bytes;
    }
  }
}

}  // namespace

Result<Profile> read_aceso(const std::vector<File>& files, const Options& options) {
  if (files.size() != 1) {
    return fail(ErrorCode::kInvalid, "layout aceso takes one table of operators, not {} files",
                files.size());
  }
  const File& file = files[0];
  if (options.device.empty() || options.layers == 0) {
    return fail(ErrorCode::kInvalid,
                "{}: the table says neither which device was profiled nor how many blocks the "
                "model has; give both",
                file.name);
  }
  const auto table = Csv::parse(
      file, {"mbs", "tp", "algo", "op_name", "forward_us", "backward_us", "input_MB", "output_MB",
             "weights_MB", "activations_MB", "fwd_reserved_MB", "bwd_reserved_MB"});
  if (!table) {
    return tl::unexpected(table.error());
  }
  std::vector<Operator> operators;
  std::map<std::string, std::size_t, std::less<>> index;
  std::map<std::uint32_t, double> hidden_bytes;  ///< by micro-batch size
  for (std::size_t row = 0; row < table->rows(); ++row) {
    const auto samples = table->integer(row, 0, 1, kMaxSamples);
    const auto width = table->integer(row, 1, 1, kMaxWidth);
    const auto algorithm = table->integer(row, 2, 0, 1);
    std::array<double, 8> values{};
    Error problem;
    for (std::size_t k = 0; k < values.size(); ++k) {
      const auto value = table->number(row, 4 + k, 0, 1e12);
      if (!value) {
        return tl::unexpected(value.error());
      }
      values[k] = *value;
    }
    if (!samples || !width || !algorithm) {
      return tl::unexpected(!samples ? samples.error()
                            : !width ? width.error()
                                     : algorithm.error());
    }
    if (*algorithm != 0) {
      continue;
    }
    const std::string_view name = table->text(row, 3);
    auto known = index.find(name);
    if (known == index.end()) {
      known = index.emplace(std::string(name), operators.size()).first;
      operators.push_back({std::string(name), {}, {}});
    }
    MeasuredOp m;
    m.device = options.device;
    m.micro_batch_size = *samples;
    m.tp_width = static_cast<std::uint16_t>(*width);
    m.forward_s = values[0] * kMicrosecond;
    m.backward_s = values[1] * kMicrosecond;
    m.forward_comm_s = 0;
    m.backward_comm_s = 0;
    m.param_bytes = values[4] * kMebibyte;
    m.act_bytes = values[5] * kMebibyte;
    m.work_bytes = std::max(values[6], values[7]) * kMebibyte;
    operators[known->second].measured.push_back(std::move(m));
    if (*width == 1) {
      operators[known->second].out_bytes[*samples] = values[3] * kMebibyte;
    }
    if (name == kEmbedding && *width == 1) {
      hidden_bytes[*samples] = values[3] * kMebibyte;
    }
  }
  if (hidden_bytes.empty()) {
    return fail(ErrorCode::kInvalid, "{}: no row of {} at TP width 1", file.name, kEmbedding);
  }
  Profile profile;
  Graph& graph = profile.graph;
  graph.name = options.name;
  if (graph.name.empty()) {
    graph.name = base_name(file);
    graph.name = graph.name.substr(0, graph.name.find("_op_profile"));
  }
  graph.micro_batch_size =
      options.micro_batch_size > 0 ? options.micro_batch_size : hidden_bytes.begin()->first;
  graph.hidden_size = options.hidden_size;
  graph.sequence_length = options.sequence_length;
  const auto hidden = hidden_bytes.find(graph.micro_batch_size);
  if (hidden == hidden_bytes.end()) {
    return fail(ErrorCode::kInvalid, "{}: micro-batch size {} was not profiled", file.name,
                graph.micro_batch_size);
  }
  const auto is_block = [](const Operator& op) {
    return std::string_view(op.name).substr(0, kBlock.size()) == kBlock;
  };
  const auto first_block = std::find_if(operators.begin(), operators.end(), is_block);
  const auto last_block = std::find_if_not(first_block, operators.end(), is_block);
  if (first_block == last_block || std::any_of(last_block, operators.end(), is_block)) {
    return fail(ErrorCode::kInvalid, "{}: the operators of a block (\"{}...\") are not in one run",
                file.name, kBlock);
  }
  std::uint32_t layer = 0;
  double entering = 0;  ///< what the operator before hands on
  const auto append = [&](const Operator& from) {
    OpNode op;
    op.id = static_cast<std::uint32_t>(graph.nodes.size());
    op.layer = layer;
    describe(op, from, graph.micro_batch_size, hidden->second);
    if (op.id > 0) {
      graph.edges.push_back({op.id - 1, op.id, entering, "fp16"});
    }
    const auto leaving = from.out_bytes.find(graph.micro_batch_size);
    entering = leaving == from.out_bytes.end() ? hidden->second : leaving->second;
    graph.nodes.push_back(std::move(op));
  };
  std::for_each(operators.begin(), first_block, append);
  for (std::uint32_t block = 0; block < options.layers; ++block) {
    layer += graph.nodes.empty() ? 0 : 1;
    for (auto op = first_block; op != last_block; ++op) {
      layer += op != first_block && starts_layer(op->name) ? 1 : 0;
      append(*op);
    }
  }
  layer += last_block == operators.end() ? 0 : 1;
  std::for_each(last_block, operators.end(), append);
  profile.notes.push_back(
      "of the two ways to split a linear the first is used; TP collectives are within the times; "
      "a block is five layers");
  return profile;
}

Result<Collectives> read_aceso_collectives(const File& file) {
  const auto table = Csv::parse(file, {"collective", "num_gpus", "data_size_MB", "time_ms"});
  if (!table) {
    return tl::unexpected(table.error());
  }
  constexpr double kMillisecond = 1e-3;
  Collectives all;
  for (std::size_t row = 0; row < table->rows(); ++row) {
    const std::string_view op = table->text(row, 0);
    const auto devices = table->integer(row, 1, 2, kMaxWidth);
    const auto size = table->number(row, 2, 1e-9, 1e9);
    const auto time = table->number(row, 3, 0, 1e9);
    if (!devices || !size || !time) {
      return tl::unexpected(!devices ? devices.error() : !size ? size.error() : time.error());
    }
    const double bytes = *size * kMebibyte;
    const double seconds = *time * kMillisecond;
    if (op == "all_reduce") {
      all.push_back({Collective::kAllReduce, 1, *devices, bytes, seconds});
    } else if (op == "reduce_scatter") {
      all.push_back({Collective::kReduceScatter, 1, *devices, bytes, seconds});
    } else if (op == "all_gather") {
      // Its size is what each device brings.
      all.push_back({Collective::kAllGather, 1, *devices, bytes * *devices, seconds});
    } else if (op != "all_to_all") {
      return fail(ErrorCode::kInvalid, "{}: unknown collective \"{}\"", table->where(row), op);
    }
  }
  return all;
}

}  // namespace tapas::solver::profile
