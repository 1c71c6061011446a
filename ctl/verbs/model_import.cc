#include "ctl/table.h"
#include "ctl/verbs.h"
#include "ctl/write_file.h"
#include "solver/model/io/load.h"
#include "solver/profile/profile.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

namespace tapas::ctl {

namespace {

struct ImportOptions {
  std::string layout;
  std::vector<std::string> files;
  solver::profile::Options profile;
  std::string out_file;
};

/// "measured on A100-40: micro-batch sizes 1, 2 at TP 1, 2, 4; 4 at TP 4", a line per device.
std::string coverage(const solver::Graph& graph) {
  std::set<std::string> devices;
  std::set<std::uint32_t> samples;
  std::set<std::uint32_t> widths;
  for (const solver::OpNode& op : graph.nodes) {
    for (const solver::MeasuredOp& m : op.measured) {
      devices.insert(m.device);
      samples.insert(m.micro_batch_size);
      widths.insert(m.tp_width);
    }
  }
  solver::Graph sized = graph;
  std::string text;
  for (const std::string& device : devices) {
    std::vector<std::pair<std::string, std::string>> known;  // widths, sizes that have just them
    for (const std::uint32_t size : samples) {
      sized.micro_batch_size = size;
      std::vector<std::uint32_t> complete;
      std::copy_if(
          widths.begin(), widths.end(), std::back_inserter(complete),
          [&](std::uint32_t width) { return check_measured(sized, device, width).has_value(); });
      const std::string list = fmt::format("{}", fmt::join(complete, ", "));
      if (!known.empty() && known.back().first == list) {
        known.back().second += ", " + std::to_string(size);
      } else if (!list.empty()) {
        known.emplace_back(list, std::to_string(size));
      }
    }
    std::string line;
    for (const auto& [tp, sizes] : known) {
      line += fmt::format("{}{} at TP {}", line.empty() ? "micro-batch sizes " : "; ", sizes, tp);
    }
    text += "measured on " + printable(device) + ": " + line + "\n";
  }
  return text;
}

Result<Exit> import_profile(const ImportOptions& options) {
  const auto layout = solver::profile::layout_from(options.layout);
  if (!layout) {
    return tl::unexpected(layout.error());
  }
  const auto files = solver::profile::load_files(options.files);
  if (!files) {
    return tl::unexpected(files.error());
  }
  const auto profile = solver::profile::read(*layout, *files, options.profile);
  if (!profile) {
    return tl::unexpected(profile.error());
  }
  const std::string text = json::dump(solver::graph_to_json(profile->graph), 1) + "\n";
  if (auto done = write_or_print(options.out_file, text); !done) {
    return tl::unexpected(done.error());
  }
  say(fmt::format("{}: {}, {}", printable(profile->graph.name),
                  format_count(profile->graph.layer_count(), "layer"),
                  format_count(profile->graph.nodes.size(), "operator")));
  std::string lines = coverage(profile->graph);
  for (const std::string& note : profile->notes) {
    lines += "note: " + note + "\n";
  }
  lines.pop_back();
  say(lines);
  return Exit::kOk;
}

}  // namespace

void add_model_import(CLI::App& model, Context& context) {
  CLI::App* verb = model.add_subcommand(
      "import", "Turn a profile of another planner into a graph with measured times");
  verb->footer(
      "Layouts: aceso, galvatron, pipedream, piper, sailor (docs/formats.md says what each "
      "holds).\nExamples:\n"
      "  tapasctl model import sailor GPT-Neo-2.7_A100-40_profile.json llm_info.json -o neo.json\n"
      "  tapasctl model import aceso gpt_13B_v100_op_profile.csv --device V100 --layers 40 -o "
      "gpt.json\n"
      "  tapasctl model import pipedream vgg16_graph.txt --device V100 -o vgg16.json");
  auto options = std::make_shared<ImportOptions>();
  solver::profile::Options& profile = options->profile;
  verb->add_option("LAYOUT", options->layout, "Layout of the files")->required();
  verb->add_option("FILES", options->files, "Profile files")->required();
  verb->add_option("--name", profile.name, "Name of the graph; default from the files");
  verb->add_option("--device", profile.device,
                   "Name of the profiled device type in the cluster file");
  verb->add_option("--micro-batch", profile.micro_batch_size,
                   "Samples per microbatch of the graph; default the least profiled");
  verb->add_option("--layers", profile.layers, "Transformer blocks, where one was profiled");
  verb->add_option("--hidden", profile.hidden_size, "Hidden size, where no file says it");
  verb->add_option("--sequence", profile.sequence_length, "Sequence length, where no file says it");
  verb->add_option("--seconds-per-unit", profile.seconds_per_unit,
                   "Unit of time of a piper file; default 1");
  verb->add_option("--bytes-per-element", profile.bytes_per_element,
                   "Of parameters and activations given as counts; default 2");
  verb->add_option("-o,--output", options->out_file, "File to write; default stdout");
  verb->callback(
      [&context, options] { context.run = [options] { return import_profile(*options); }; });
}

}  // namespace tapas::ctl
