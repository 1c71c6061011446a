#include "ctl/table.h"
#include "ctl/verbs.h"
#include "ctl/write_file.h"
#include "solver/model/decoder.h"
#include "solver/model/graph.h"
#include "solver/model/io/load.h"

#include <CLI/App.hpp>

#include <memory>

namespace tapas::ctl {

namespace {

struct ModelOptions {
  solver::GptShape shape;
  std::string out_file;
};

Result<Exit> build_model(const ModelOptions& options) {
  const auto graph = solver::build_gpt(options.shape);
  if (!graph) {
    return tl::unexpected(graph.error());
  }
  const std::string text = json::dump(solver::graph_to_json(*graph), 1) + "\n";
  double parameters = 0;
  for (const solver::OpNode& node : graph->nodes) {
    parameters += node.param_bytes / options.shape.bytes_per_element;
  }
  if (options.out_file.empty()) {
    print(text);
  } else if (auto done = write_file(options.out_file, text); !done) {
    return tl::unexpected(done.error());
  }
  say(fmt::format("{}: {:.2f} billion parameters, {}, {}", printable(graph->name), parameters / 1e9,
                  format_count(graph->layer_count(), "layer"),
                  format_count(graph->nodes.size(), "operator")));
  return Exit::kOk;
}

}  // namespace

void add_model(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("model", "Write the graph of a known kind of model");
  verb->require_subcommand(1);
  verb->footer("Example:\n  tapasctl model gpt --help");
  CLI::App* gpt = verb->add_subcommand("gpt", "A GPT-style decoder from its architecture numbers");
  gpt->footer(
      "Example (GPT-3 175B):\n  tapasctl model gpt --name gpt3-175b --layers 96 --hidden 12288 "
      "--heads 96 --sequence 2048 \\\n    --vocabulary 51200 -o gpt3-175b.json");
  auto options = std::make_shared<ModelOptions>();
  solver::GptShape& shape = options->shape;
  shape.name = "gpt";
  gpt->add_option("--name", shape.name, "Name of the model; default gpt");
  gpt->add_option("--layers", shape.layers, "Transformer blocks")->required();
  gpt->add_option("--hidden", shape.hidden_size, "Hidden size")->required();
  gpt->add_option("--heads", shape.heads, "Attention heads")->required();
  gpt->add_option("--sequence", shape.sequence_length, "Sequence length, tokens")->required();
  gpt->add_option("--vocabulary", shape.vocabulary, "Vocabulary, padded")->required();
  gpt->add_option("--ffn", shape.ffn_size, "Inner size of the MLP; default 4 x hidden");
  gpt->add_option("--micro-batch", shape.micro_batch_size, "Samples per microbatch; default 1");
  gpt->add_option("--bytes-per-element", shape.bytes_per_element, "2 = bf16; default 2");
  gpt->add_option("-o,--output", options->out_file, "File to write; default stdout");
  gpt->callback([&context, options] { context.run = [options] { return build_model(*options); }; });
  add_model_import(*verb, context);
}

}  // namespace tapas::ctl
