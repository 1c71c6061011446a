#include "solver/profile/readers.h"

#include <algorithm>
#include <map>
#include <regex>
#include <utility>

namespace tapas::solver::profile {
namespace {

constexpr std::uint32_t kMaxSamples = 1 << 16;
constexpr std::uint32_t kMaxTokens = 1 << 24;
constexpr std::uint32_t kMaxWidth = 4096;
constexpr double kMillisecond = 1e-3;
// Galvatron's own rules: the backward takes twice the forward, and a width divides the time.
constexpr double kBackward = 2;

/// Forward milliseconds per sample, of one block and of all the rest.
struct Times {
  double block_ms = -1;
  double rest_ms = -1;
};

/// "layertype_0_bsz4_seq2048" and "layertype_other_0_bsz4_seq2048"; size and sequence may lack.
struct TimeKey {
  bool rest = false;
  std::uint32_t samples = 0;
  std::uint32_t tokens = 0;
};
std::optional<TimeKey> time_key(const std::string& key) {
  static const std::regex kPattern(
      "layertype_(other_|)(0|)_?(?:bsz([0-9]{1,6})|)(?:_seq([0-9]{1,8})|)");
  std::smatch match;
  if (key.size() > 80 || !std::regex_match(key, match, kPattern) ||
      (match.length(1) == 0 && match.length(2) == 0)) {
    return std::nullopt;
  }
  TimeKey found;
  found.rest = match.length(1) > 0;
  found.samples = whole(match.str(3), 1, kMaxSamples).value_or(0);
  found.tokens = whole(match.str(4), 1, kMaxTokens).value_or(0);
  return found;
}

/// Number that follows `mark` in a file's name, 0 without.
std::uint32_t number_after(const File& file, std::string_view mark) {
  const std::string_view name = base_name(file);
  const std::size_t at = name.find(mark);
  if (at == std::string_view::npos) {
    return 0;
  }
  std::string_view digits = name.substr(at + mark.size());
  digits = digits.substr(0, digits.find_first_not_of("0123456789"));
  return whole(digits, 1, kMaxTokens).value_or(0);
}

/// What a width holds of one block: parameter bytes and activation bytes of one sample.
struct Memory {
  double param_bytes = 0;                     ///< as profiled, in fp32 at width 1
  std::map<std::uint32_t, double> act_bytes;  ///< by TP width, per sample
};

/// {"parameter_size": MB, "tp_activation_per_bsz_dict": {width: MB}}, possibly below a sequence
/// length.
Result<Memory> read_memory(const json::Value& value, const std::string& where,
                           std::uint32_t tokens) {
  const std::string by_length = std::to_string(tokens);
  if (value.is_object() && value.contains(by_length)) {
    return read_memory(value[by_length], where + "." + by_length, 0);
  }
  json::ObjectReader in(value, where);
  Memory memory;
  memory.param_bytes = in.number("parameter_size", 0, kMaxBytes / kMebibyte) * kMebibyte;
  for (const auto& [key, item] : in.object("tp_activation_per_bsz_dict").items()) {
    const std::string at = in.child("tp_activation_per_bsz_dict") + "." + key;
    const auto bytes = amount(item, at, kMaxBytes / kMebibyte);
    const auto width = whole(key, 1, kMaxWidth);
    if (!bytes) {
      in.absorb(bytes.error());
    } else if (width) {
      memory.act_bytes[*width] = *bytes * kMebibyte;
    } else if (key != "checkpoint") {
      in.absorb({ErrorCode::kInvalid, at + ": the key is not a TP width"});
    }
  }
  if (auto done = in.finish(); !done) {
    return tl::unexpected(done.error());
  }
  if (memory.act_bytes.empty()) {
    return fail(ErrorCode::kInvalid, "{}: no TP width was profiled", where);
  }
  return memory;
}

class Builder {
 public:
  Builder(const Options& options, std::uint32_t hidden, std::uint32_t tokens)
      : options_(options), hidden_(hidden), tokens_(tokens) {
    graph().name = options.name.empty() ? "galvatron" : options.name;
    graph().hidden_size = hidden;
    graph().sequence_length = tokens;
  }

  Graph& graph() { return profile_.graph; }

  Result<Profile> build(const std::map<std::uint32_t, Times>& times, const Memory& memory,
                        double rest_bytes) {
    times_ = &times;
    memory_ = &memory;
    graph().micro_batch_size =
        options_.micro_batch_size > 0 ? options_.micro_batch_size : times.begin()->first;
    const double hidden_bytes =
        1.0 * graph().micro_batch_size * tokens_ * hidden_ * options_.bytes_per_element;
    // Four operators, so that collectives are counted as in any block.
    static constexpr std::pair<const char*, OpKind> kParts[] = {
        {"attention in", OpKind::kColumnParallelLinear},
        {"attention out", OpKind::kRowParallelLinear},
        {"mlp in", OpKind::kColumnParallelLinear},
        {"mlp out", OpKind::kRowParallelLinear}};
    constexpr double kShare = 0.25;
    append("embedding", OpKind::kEmbedding, 0, hidden_bytes, rest_bytes / 2, 0, &Times::rest_ms);
    for (std::uint32_t layer = 1; layer <= options_.layers; ++layer) {
      for (const auto& [name, kind] : kParts) {
        append(name, kind, layer, hidden_bytes, memory.param_bytes * kShare, kShare,
               &Times::block_ms);
      }
    }
    append("head", OpKind::kHead, options_.layers + 1, hidden_bytes, rest_bytes / 2, 1,
           &Times::rest_ms);
    profile_.notes.push_back(
        "times at other widths are those of width 1 divided, and backwards twice the forward, as "
        "Galvatron takes them; what is not a block is timed with the head");
    return std::move(profile_);
  }

 private:
  void append(const char* name, OpKind kind, std::uint32_t layer, double hidden_bytes,
              double fp32_bytes, double share, double Times::*part) {
    OpNode op;
    op.id = static_cast<std::uint32_t>(graph().nodes.size());
    op.name = name;
    op.kind = kind;
    op.layer = layer;
    op.out_bytes = hidden_bytes;
    op.param_bytes = fp32_bytes / 4 * options_.bytes_per_element;
    const bool block = kind == OpKind::kColumnParallelLinear || kind == OpKind::kRowParallelLinear;
    for (const auto& [samples, time] : *times_) {
      for (const auto& [width, act_bytes] : memory_->act_bytes) {
        MeasuredOp m;
        m.device = options_.device;
        m.micro_batch_size = samples;
        m.tp_width = static_cast<std::uint16_t>(width);
        m.forward_s = time.*part * share * samples * kMillisecond / width;
        m.backward_s = kBackward * m.forward_s;
        if (block) {
          m.act_bytes = act_bytes * share * samples;
        }
        if (width == 1 && samples == graph().micro_batch_size && m.act_bytes) {
          op.act_bytes = *m.act_bytes;
        }
        op.measured.push_back(std::move(m));
      }
    }
    if (op.id > 0) {
      graph().edges.push_back({op.id - 1, op.id, hidden_bytes, "unstated"});
    }
    graph().nodes.push_back(std::move(op));
  }

  const Options& options_;
  const std::uint32_t hidden_;
  const std::uint32_t tokens_;
  const std::map<std::uint32_t, Times>* times_ = nullptr;
  const Memory* memory_ = nullptr;
  Profile profile_;
};

/// Both kinds of table: "allreduce_size_8_consec_1" in GB/s and "allreduce_size_8_64MB_time" in ms.
struct CollectiveKey {
  std::uint32_t devices = 0;
  double megabytes = 0;  ///< 0 = the value is a rate
  bool neighbours = true;
};
std::optional<CollectiveKey> collective_key(const std::string& key) {
  static const std::regex kPattern(
      "allreduce_size_([0-9]{1,4})_(?:consec_([01])|([0-9]{1,6})MB_time)");
  std::smatch match;
  if (key.size() > 80 || !std::regex_match(key, match, kPattern)) {
    return std::nullopt;
  }
  CollectiveKey found;
  found.devices = whole(match.str(1), 0, kMaxWidth).value_or(0);
  found.megabytes = whole(match.str(3), 1, 1'000'000).value_or(0);
  found.neighbours = match.str(2) != "0";
  return found;
}

}  // namespace

Result<Profile> read_galvatron(const std::vector<File>& files, const Options& options) {
  if (options.device.empty() || options.layers == 0) {
    return fail(ErrorCode::kInvalid,
                "{}: the files say neither which device was profiled nor how many blocks the model "
                "has; give both",
                files.front().name);
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, Times> all;  // by tokens, samples
  std::optional<json::Value> sizes;
  std::string sizes_name;
  std::uint32_t hidden = options.hidden_size;
  std::uint32_t tokens = options.sequence_length;
  for (const File& file : files) {
    auto value = parse_object(file);
    if (!value) {
      return tl::unexpected(value.error());
    }
    hidden = hidden > 0 ? hidden : number_after(file, "_h");
    tokens = tokens > 0 ? tokens : number_after(file, "_seq");
    if (value->contains("layertype_0_sp") ||
        (value->contains("layertype_0") && (*value)["layertype_0"].is_object())) {
      if (sizes) {
        return fail(ErrorCode::kInvalid, "{}: a second file with memory", file.name);
      }
      sizes = std::move(*value);
      sizes_name = file.name;
      continue;
    }
    for (const auto& [key, item] : value->items()) {
      const auto found = time_key(key);
      if (!found || found->samples == 0) {
        continue;  // totals of several blocks, from which the others were made
      }
      const auto ms = amount(item, file.name + ": " + key, kMaxSeconds / kMillisecond);
      if (!ms) {
        return tl::unexpected(ms.error());
      }
      Times& entry = all[{found->tokens, found->samples}];
      (found->rest ? entry.rest_ms : entry.block_ms) = *ms;
    }
  }
  if (tokens == 0 && !all.empty()) {
    tokens = all.begin()->first.first;
  }
  if (hidden == 0 || tokens == 0) {
    return fail(ErrorCode::kInvalid,
                "{}: the names say neither hidden size (\"_h4096\") nor sequence length "
                "(\"_seq2048\"); give both",
                files.front().name);
  }
  std::map<std::uint32_t, Times> times;
  for (const auto& [key, entry] : all) {
    if ((key.first == 0 || key.first == tokens) && entry.block_ms >= 0 && entry.rest_ms >= 0) {
      times[key.second] = entry;
    }
  }
  if (times.empty() || !sizes) {
    return fail(ErrorCode::kInvalid,
                "layout galvatron takes one file with times of a block and of the rest "
                "(\"layertype_0_bsz1\", \"layertype_other_0_bsz1\") for {} tokens and one with its "
                "memory (\"layertype_0\" as an object); {}",
                tokens, times.empty() ? "found no times" : "found no memory");
  }
  if (options.micro_batch_size > 0 && times.count(options.micro_batch_size) == 0) {
    return fail(ErrorCode::kInvalid, "micro-batch size {} was not profiled",
                options.micro_batch_size);
  }
  const char* layer = sizes->contains("layertype_0") ? "layertype_0" : "layertype_0_sp";
  const auto memory = read_memory((*sizes)[layer], sizes_name + ": " + layer, tokens);
  if (!memory) {
    return tl::unexpected(memory.error());
  }
  // Model states of the rest are parameter, gradient and two moments in fp32: four times its size.
  double rest_bytes = 0;
  if (const auto rest = sizes->find("other_memory_pp_off"); rest != sizes->end()) {
    const std::string where = sizes_name + ": other_memory_pp_off.model_states";
    if (!rest->is_object() || !rest->contains("model_states")) {
      return fail(ErrorCode::kInvalid, "{}: is missing", where);
    }
    const auto states = amount((*rest)["model_states"], where, kMaxBytes / kMebibyte);
    if (!states) {
      return tl::unexpected(states.error());
    }
    constexpr double kStates = 4;
    rest_bytes = *states * kMebibyte / kStates;
  }
  return Builder(options, hidden, tokens).build(times, *memory, rest_bytes);
}

Result<Collectives> read_galvatron_collectives(const File& file) {
  const auto value = parse_object(file);
  if (!value) {
    return tl::unexpected(value.error());
  }
  const std::uint32_t nodes = [&] {
    const std::string_view name = base_name(file);
    const std::size_t at = name.find("nodes_");
    return at == std::string_view::npos || at == 0
               ? 1U
               : whole(name.substr(at - 1, 1), 1, 9).value_or(1);
  }();
  const std::uint32_t per_node = number_after(file, "nodes_");
  Collectives all;
  for (const auto& [key, item] : value->items()) {
    const auto found = collective_key(key);
    if (!found || found->devices < 2 || !found->neighbours) {
      continue;
    }
    const std::string where = file.name + ": " + key;
    const auto number = amount(item, where, 1e9);
    if (!number) {
      return tl::unexpected(number.error());
    }
    const std::uint32_t spans = per_node > 0 && found->devices > per_node ? nodes : 1;
    if (found->megabytes > 0) {
      all.push_back({Collective::kAllReduce, spans, found->devices, found->megabytes * kMebibyte,
                     *number * kMillisecond});
      continue;
    }
    if (*number == 0) {
      return fail(ErrorCode::kInvalid, "{}: a rate of 0", where);
    }
    // A bus rate, one for all sizes; two points make the line through the origin.
    for (const double bytes : {kMegabyte, 1000 * kMegabyte}) {
      all.push_back({Collective::kAllReduce, spans, found->devices, bytes,
                     2 * (found->devices - 1.0) / found->devices * bytes / (*number * 1e9)});
    }
  }
  if (all.empty()) {
    return fail(ErrorCode::kInvalid, "{}: no key like \"allreduce_size_8_consec_1\"", file.name);
  }
  return all;
}

}  // namespace tapas::solver::profile
