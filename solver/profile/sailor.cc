#include "solver/profile/readers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace tapas::solver::profile {
namespace {

constexpr std::uint32_t kMaxLayers = 10'000;
constexpr std::uint32_t kMaxSamples = 1 << 16;
constexpr std::uint32_t kMaxWidth = 4096;
constexpr std::string_view kSuffix = "_profile.json";

/// What one device holds of one layer, in elements, for one sample.
struct LayerSize {
  double params = 0;
  double out = 0;
  double stash = 0;
};
using Sizes = std::map<std::uint32_t, std::vector<LayerSize>>;  ///< by TP width, then layer

/// The items of an object whose keys are whole numbers, in ascending order.
Result<std::map<std::uint32_t, const json::Value*>> numbered(const json::Value& value,
                                                             const std::string& where,
                                                             std::uint32_t max) {
  if (!value.is_object()) {
    return fail(ErrorCode::kInvalid, "{}: expected an object", where);
  }
  std::map<std::uint32_t, const json::Value*> items;
  for (const auto& [key, item] : value.items()) {
    const auto number = whole(key, 0, max);
    if (!number || !items.emplace(*number, &item).second) {
      return fail(ErrorCode::kInvalid, "{}: key \"{}\" is not a number from 0 to {}, once", where,
                  key, max);
    }
  }
  if (items.empty()) {
    return fail(ErrorCode::kInvalid, "{}: is empty", where);
  }
  return items;
}

/// Layers 0..n-1 without gaps.
Result<std::vector<const json::Value*>> layers_of(const json::Value& value,
                                                  const std::string& where) {
  const auto items = numbered(value, where, kMaxLayers);
  if (!items) {
    return tl::unexpected(items.error());
  }
  std::vector<const json::Value*> layers;
  for (const auto& [layer, item] : *items) {
    if (layer != layers.size()) {
      return fail(ErrorCode::kInvalid, "{}: layer {} is missing", where, layers.size());
    }
    layers.push_back(item);
  }
  return layers;
}

Result<Sizes> read_sizes(const json::Value& value, const std::string& where) {
  const auto widths = numbered(value, where, kMaxWidth);
  if (!widths) {
    return tl::unexpected(widths.error());
  }
  Sizes sizes;
  for (const auto& [width, item] : *widths) {
    const std::string at = fmt::format("{}.{}", where, width);
    const auto layers = layers_of(*item, at);
    if (!layers) {
      return tl::unexpected(layers.error());
    }
    for (std::size_t l = 0; l < layers->size(); ++l) {
      json::ObjectReader in(*(*layers)[l], fmt::format("{}.{}", at, l));
      LayerSize size;
      size.params = in.number("params_floats", 0, kMaxBytes);
      size.out = in.number("act_output_floats", 0, kMaxBytes);
      (void)in.number("act_input_floats", 0, kMaxBytes);
      size.stash = in.number("act_mem_floats", 0, kMaxBytes);
      for (const char* copy :
           {"params_bytes", "act_output_bytes", "act_input_bytes", "act_mem_bytes"}) {
        (void)in.number_or(copy, 0, 0, kMaxBytes);
      }
      if (auto done = in.finish(); !done) {
        return tl::unexpected(done.error());
      }
      sizes[width].push_back(size);
    }
    if (sizes[width].size() != sizes.begin()->second.size()) {
      return fail(ErrorCode::kInvalid, "{}: {} layers where another width has {}", at,
                  sizes[width].size(), sizes.begin()->second.size());
    }
  }
  return sizes;
}

/// [micro-batch][TP width][layer] = forward, backward, update seconds. Widths that the sizes lack
/// are left out and added to `unsized`.
Result<void> add_times(const File& file, const json::Value& value, const std::string& device,
                       const Sizes& sizes, double bytes_per_element, Graph& graph,
                       std::set<std::uint32_t>& unsized) {
  const auto batches = numbered(value, file.name, kMaxSamples);
  if (!batches) {
    return tl::unexpected(batches.error());
  }
  for (const auto& [samples, by_width] : *batches) {
    const auto widths = numbered(*by_width, fmt::format("{}: {}", file.name, samples), kMaxWidth);
    if (!widths) {
      return tl::unexpected(widths.error());
    }
    for (const auto& [width, by_layer] : *widths) {
      const std::string where = fmt::format("{}: {}.{}", file.name, samples, width);
      const auto layers = layers_of(*by_layer, where);
      if (!layers) {
        return tl::unexpected(layers.error());
      }
      const auto size = sizes.find(width);
      if (samples == 0 || width == 0) {
        return fail(ErrorCode::kInvalid, "{}: micro-batch size and TP width start at 1", where);
      }
      if (size == sizes.end()) {
        unsized.insert(width);
        continue;
      }
      if (layers->size() != graph.nodes.size()) {
        return fail(ErrorCode::kInvalid, "{}: {} layers where the model has {}", where,
                    layers->size(), graph.nodes.size());
      }
      for (std::size_t l = 0; l < layers->size(); ++l) {
        const json::Value& times = *(*layers)[l];
        const std::string at = fmt::format("{}.{}", where, l);
        if (!times.is_array() || times.size() != 3) {
          return fail(ErrorCode::kInvalid, "{}: expected [forward, backward, update]", at);
        }
        const auto forward = amount(times[0], at, kMaxSeconds);
        const auto backward = amount(times[1], at, kMaxSeconds);
        if (!forward || !backward) {
          return tl::unexpected(!forward ? forward.error() : backward.error());
        }
        const LayerSize& layer = size->second[l];
        graph.nodes[l].measured.push_back(
            {device, samples, static_cast<std::uint16_t>(width), *forward, *backward, 0.0, 0.0,
             layer.params * bytes_per_element, layer.stash * bytes_per_element * samples, 0.0});
      }
    }
  }
  return {};
}

bool holds_times(const json::Value& value) {
  return !value.empty() &&
         std::all_of(value.items().begin(), value.items().end(), [](const auto& item) {
           return whole(item.key(), 0, kMaxSamples).has_value();
         });
}

/// "MODEL_DEVICE_profile.json".
std::pair<std::string, std::string> model_and_device(const File& file) {
  std::string_view name = base_name(file);
  if (name.size() <= kSuffix.size() || name.substr(name.size() - kSuffix.size()) != kSuffix) {
    return {};
  }
  name.remove_suffix(kSuffix.size());
  const std::size_t middle = name.rfind('_');
  if (middle == std::string_view::npos) {
    return {};
  }
  return {std::string(name.substr(0, middle)), std::string(name.substr(middle + 1))};
}

/// Coefficients of GB/s as a polynomial of log2(MB), highest power first, and the most it reaches.
struct Fit {
  std::vector<double> coefficients;
  double most = 0;

  [[nodiscard]] double bytes_per_s(double log2_megabytes) const {
    double rate = 0;
    for (const double c : coefficients) {
      rate = rate * log2_megabytes + c;
    }
    return std::min(rate * 1e9, most);
  }
};

Result<Fit> read_fit(const json::Value& value, const std::string& where) {
  if (!value.is_array() || value.size() != 2 || !value[0].is_array() || value[0].empty() ||
      value[0].size() > 8) {
    return fail(ErrorCode::kInvalid, "{}: expected [[coefficients], bytes per second]", where);
  }
  Fit fit;
  for (const json::Value& c : value[0]) {
    if (!c.is_number()) {
      return fail(ErrorCode::kInvalid, "{}: a coefficient is not a number", where);
    }
    fit.coefficients.push_back(c.get<double>());
  }
  const auto most = amount(value[1], where, kMaxBytes);
  if (!most) {
    return tl::unexpected(most.error());
  }
  fit.most = *most;
  return fit;
}

}  // namespace

Result<Profile> read_sailor(const std::vector<File>& files, const Options& options) {
  using Read = std::pair<const File*, json::Value>;
  std::vector<Read> times;
  std::vector<Read> infos;
  for (const File& file : files) {
    auto value = parse_object(file);
    if (!value) {
      return tl::unexpected(value.error());
    }
    auto& list = holds_times(*value) ? times : infos;
    list.emplace_back(&file, std::move(*value));
  }
  if (infos.size() != 1 || times.empty()) {
    return fail(ErrorCode::kInvalid,
                "layout sailor takes profile files (\"MODEL_DEVICE_profile.json\") and one file "
                "with the models' sizes (\"llm_info.json\"); found {} and {}",
                times.size(), infos.size());
  }
  const auto& [info_file, info] = infos.front();
  std::string model = model_and_device(*times.front().first).first;
  if (model.empty() && info.size() == 1) {
    model = info.begin().key();
  }
  if (!info.contains(model)) {
    return fail(ErrorCode::kInvalid, "{}: no sizes of model \"{}\" for {}", info_file->name, model,
                times.front().first->name);
  }
  const auto sizes = read_sizes(info[model], info_file->name + ": " + model);
  if (!sizes) {
    return tl::unexpected(sizes.error());
  }
  const auto whole_layers = sizes->find(1);
  if (whole_layers == sizes->end()) {
    return fail(ErrorCode::kInvalid, "{}: {} has no TP width 1", info_file->name, model);
  }
  Profile profile;
  Graph& graph = profile.graph;
  graph.name = options.name.empty() ? model : options.name;
  graph.sequence_length = options.sequence_length;
  graph.hidden_size = options.hidden_size;
  const auto layers = static_cast<std::uint32_t>(whole_layers->second.size());
  for (std::uint32_t l = 0; l < layers; ++l) {
    OpNode op;
    op.id = l;
    op.name = l == 0 ? "embedding" : l + 1 == layers ? "head" : fmt::format("block {}", l - 1);
    op.layer = l;
    graph.nodes.push_back(std::move(op));
  }
  std::set<std::string> devices;
  std::set<std::uint32_t> unsized;
  for (const auto& [file, value] : times) {
    auto [its_model, device] = model_and_device(*file);
    if (times.size() == 1 && !options.device.empty()) {
      device = options.device;
    }
    if (device.empty() || (!its_model.empty() && its_model != model)) {
      return fail(ErrorCode::kInvalid,
                  "{}: the name does not say which device profiled {} "
                  "(\"MODEL_DEVICE_profile.json\")",
                  file->name, model);
    }
    if (!devices.insert(device).second) {
      return fail(ErrorCode::kInvalid, "{}: a second profile of {}", file->name, device);
    }
    if (auto ok =
            add_times(*file, value, device, *sizes, options.bytes_per_element, graph, unsized);
        !ok) {
      return tl::unexpected(ok.error());
    }
  }
  if (graph.nodes.front().measured.empty()) {
    return fail(ErrorCode::kInvalid, "{}: no TP width that {} has sizes for",
                times.front().first->name, info_file->name);
  }
  std::uint32_t smallest = kMaxSamples;
  for (const MeasuredOp& m : graph.nodes.front().measured) {
    smallest = std::min(smallest, m.micro_batch_size);
  }
  graph.micro_batch_size = options.micro_batch_size > 0 ? options.micro_batch_size : smallest;
  for (std::uint32_t l = 0; l < layers; ++l) {
    const LayerSize& size = whole_layers->second[l];
    OpNode& op = graph.nodes[l];
    op.param_bytes = size.params * options.bytes_per_element;
    op.act_bytes = size.stash * options.bytes_per_element * graph.micro_batch_size;
    op.out_bytes = size.out * options.bytes_per_element * graph.micro_batch_size;
    if (l > 0) {
      graph.edges.push_back({l - 1, l, graph.nodes[l - 1].out_bytes, "unstated"});
    }
  }
  profile.notes.push_back(
      fmt::format("TP collectives are within the times; {} bytes per parameter and activation; "
                  "optimizer update times are not used",
                  options.bytes_per_element));
  if (!unsized.empty()) {
    profile.notes.push_back(
        fmt::format("left out, as the model's sizes lack them: TP {}", fmt::join(unsized, ", ")));
  }
  return profile;
}

Result<Collectives> read_sailor_collectives(const File& file, const Options& options) {
  const auto value = parse_object(file);
  if (!value) {
    return tl::unexpected(value.error());
  }
  if (!value->contains(options.device)) {
    std::string known;
    for (const auto& item : value->items()) {
      known += (known.empty() ? "" : ", ") + item.key();
    }
    return fail(ErrorCode::kInvalid, "{}: no device \"{}\"; the file has {}", file.name,
                options.device, known);
  }
  // The fits give the rate of a ring; sampled at these powers of two in MB they become a table.
  constexpr int kLast = 10;
  const auto groups =
      numbered((*value)[options.device], file.name + ": " + options.device, kMaxWidth);
  if (!groups) {
    return tl::unexpected(groups.error());
  }
  Collectives table;
  for (const auto& [devices, item] : *groups) {
    const auto fit = read_fit(*item, fmt::format("{}: {}", file.name, devices));
    if (!fit) {
      return tl::unexpected(fit.error());
    }
    for (int k = 0; k <= kLast && devices > 1; ++k) {
      const double bytes = std::ldexp(kMegabyte, k);
      const double rate = fit->bytes_per_s(k);
      if (rate > 0) {
        table.push_back({Collective::kAllReduce, 1, devices, bytes,
                         2 * (devices - 1.0) / devices * bytes / rate});
      }
    }
  }
  return table;
}

}  // namespace tapas::solver::profile
