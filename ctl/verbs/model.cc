#include "ctl/table.h"
#include "ctl/verbs.h"
#include "ctl/write_file.h"
#include "solver/model/io/catalogue.h"
#include "solver/model/io/load.h"
#include "solver/model/io/models.h"

#include <CLI/App.hpp>

#include <memory>

namespace tapas::ctl {

namespace {

/// What the graph of a model is built with, beside its own numbers. 0 and "" = as the model says.
struct BuildOptions {
  std::string model;  ///< a name of the catalogue, or a file
  std::uint32_t sequence_length = 0;
  std::uint32_t micro_batch_size = 1;
  std::uint32_t bytes_per_element = 2;
  std::string attention;
  std::string out_file;
};

/// A name of the catalogue when it has one, else a file.
Result<solver::CatalogueModel> find_model(const std::string& name_or_file) {
  if (name_or_file.find_first_of("/.") == std::string::npos) {
    return solver::catalogue_model(name_or_file);
  }
  if (auto known = solver::catalogue_model(name_or_file)) {
    return known;
  }
  return solver::load_model(name_or_file);
}

Result<solver::DecoderShape> shape_of(const BuildOptions& options) {
  auto model = find_model(options.model);
  if (!model) {
    return tl::unexpected(model.error());
  }
  solver::DecoderShape shape = std::move(model->shape);
  if (options.sequence_length > 0) {
    shape.sequence_length = options.sequence_length;
  }
  shape.micro_batch_size = options.micro_batch_size;
  shape.bytes_per_element = options.bytes_per_element;
  if (!options.attention.empty()) {
    const auto scores = solver::attention_scores_from(options.attention);
    if (!scores) {
      return tl::unexpected(scores.error());
    }
    shape.scores = *scores;
  }
  return shape;
}

std::string billions(double parameters) { return fmt::format("{:.2f}", parameters / 1e9); }

std::string summary(const solver::Graph& graph, double bytes_per_element) {
  double parameters = 0;
  for (const solver::OpNode& node : graph.nodes) {
    parameters += node.param_bytes / bytes_per_element;
  }
  return fmt::format("{}: {} billion parameters, {}, {}", printable(graph.name),
                     billions(parameters), format_count(graph.layer_count(), "layer"),
                     format_count(graph.nodes.size(), "operator"));
}

Result<Exit> write_graph(const solver::DecoderShape& shape, const std::string& out_file) {
  const auto graph = solver::build_decoder(shape);
  if (!graph) {
    return tl::unexpected(graph.error());
  }
  const std::string text = json::dump(solver::graph_to_json(*graph), 1) + "\n";
  if (auto done = write_or_print(out_file, text); !done) {
    return tl::unexpected(done.error());
  }
  say(summary(*graph, shape.bytes_per_element));
  return Exit::kOk;
}

Result<Exit> list_models(const Context& context) {
  const auto names = solver::catalogue_names("models");
  if (!names) {
    return tl::unexpected(names.error());
  }
  Table table({{"name"},
               {"parameters, 1e9", Align::kRight},
               {"active, 1e9", Align::kRight},
               {"blocks", Align::kRight},
               {"hidden", Align::kRight},
               {"sequence", Align::kRight},
               {"source"}});
  json::Value rows = json::Value::array();
  for (const std::string& name : *names) {
    const auto model = solver::catalogue_model(name);
    if (!model) {
      return tl::unexpected(model.error());
    }
    const solver::DecoderShape& shape = model->shape;
    const solver::ParameterCount count = solver::count_parameters(shape);
    table.add_row({name, billions(count.total), billions(count.active),
                   std::to_string(shape.layers), std::to_string(shape.hidden_size),
                   std::to_string(shape.sequence_length), model->source});
    rows.push_back({{"name", name},
                    {"parameters", count.total},
                    {"active_parameters", count.active},
                    {"layers", shape.layers},
                    {"hidden_size", shape.hidden_size},
                    {"sequence_length", shape.sequence_length},
                    {"source", model->source}});
  }
  if (context.json()) {
    print_json({{"models", rows}});
  } else {
    print(table.text());
  }
  return Exit::kOk;
}

/// Sums of one layer's operators.
struct LayerSum {
  double fwd_flops = 0;
  double param_bytes = 0;
  double act_bytes = 0;
};

LayerSum sum_of(const solver::Graph& graph, std::uint32_t layer) {
  LayerSum sum;
  for (const solver::OpNode& op : graph.nodes) {
    if (op.layer == layer) {
      sum.fwd_flops += op.fwd_flops;
      sum.param_bytes += op.param_bytes;
      sum.act_bytes += op.act_bytes;
    }
  }
  return sum;
}

Result<Exit> show_model(const Context& context, const BuildOptions& options) {
  const auto model = find_model(options.model);
  if (!model) {
    return tl::unexpected(model.error());
  }
  const auto shape = shape_of(options);
  if (!shape) {
    return tl::unexpected(shape.error());
  }
  const auto graph = solver::build_decoder(*shape);
  if (!graph) {
    return tl::unexpected(graph.error());
  }
  const solver::ParameterCount count = solver::count_parameters(*shape);
  if (context.json()) {
    json::Value value = solver::model_to_json({*shape, model->source});
    value["parameters"] = count.total;
    value["active_parameters"] = count.active;
    print_json(value);
    return Exit::kOk;
  }
  print(fmt::format(
      "{}: {} billion parameters, {} of them active per token\n"
      "{} blocks, hidden size {}, {} heads, vocabulary {}; attention scores: {}\nsource: {}\n\n"
      "One microbatch of {} at TP 1:\n\n",
      printable(shape->name), billions(count.total), billions(count.active), shape->layers,
      shape->hidden_size, shape->heads, shape->vocabulary, solver::to_string(shape->scores),
      printable(model->source),
      format_count(static_cast<std::uint64_t>(shape->micro_batch_size) * shape->sequence_length,
                   "token")));
  Table table({{"layers"},
               {"parameters, 1e6", Align::kRight},
               {"forward, Tflop", Align::kRight},
               {"stashed", Align::kRight}});
  const std::uint32_t layers = graph->layer_count();
  for (std::uint32_t first = 0; first < layers;) {
    const LayerSum sum = sum_of(*graph, first);
    std::uint32_t last = first + 1;
    const auto alike = [&](std::uint32_t other) {
      const LayerSum next = sum_of(*graph, other);
      return next.fwd_flops == sum.fwd_flops && next.param_bytes == sum.param_bytes &&
             next.act_bytes == sum.act_bytes;
    };
    while (last < layers && alike(last)) {
      ++last;
    }
    table.add_row(
        {last == first + 1 ? std::to_string(first) : fmt::format("{}-{}", first, last - 1),
         fmt::format("{:.1f}", sum.param_bytes / shape->bytes_per_element / 1e6),
         fmt::format("{:.3f}", sum.fwd_flops / 1e12), format_bytes(sum.act_bytes)});
    first = last;
  }
  print(table.text());
  return Exit::kOk;
}

Result<Exit> check_model(const std::string& file) {
  const auto value = json::parse_file(file);
  if (!value) {
    return tl::unexpected(value.error());
  }
  if (value->is_object() && value->contains("schema") && (*value)["schema"] == "tapas.model/1") {
    const auto model = solver::load_model(file);
    if (!model) {
      return tl::unexpected(model.error());
    }
    print(fmt::format("{} is a valid model: {} billion parameters\n", printable(file),
                      billions(solver::count_parameters(model->shape).total)));
    return Exit::kOk;
  }
  const auto graph = solver::graph_from_json(*value);
  if (!graph) {
    return fail_in(file, graph.error());
  }
  print(fmt::format("{} is a valid graph: {}, {}\n", printable(file),
                    format_count(graph->layer_count(), "layer"),
                    format_count(graph->nodes.size(), "operator")));
  return Exit::kOk;
}

void add_list(CLI::App& verb, Context& context) {
  CLI::App* list = verb.add_subcommand("list", "Models of the catalogue");
  list->footer("Example:\n  tapasctl model list");
  add_format_option(*list, context);
  list->callback([&context] { context.run = [&context] { return list_models(context); }; });
}

void add_build_options(CLI::App& verb, BuildOptions& options) {
  verb.add_option("MODEL", options.model,
                  "Name in `tapasctl model list`, or a tapas.model/1 file (./FILE)")
      ->required();
  verb.add_option("--sequence", options.sequence_length, "Tokens per sample; default the model's");
  verb.add_option("--micro-batch", options.micro_batch_size, "Samples per microbatch; default 1");
  verb.add_option("--attention", options.attention,
                  "flash, stored or recomputed scores; default the model's");
  verb.add_option("--bytes-per-element", options.bytes_per_element, "2 = bf16; default 2");
}

void add_show(CLI::App& verb, Context& context) {
  CLI::App* show = verb.add_subcommand("show", "A model's numbers: parameters, flops, memory");
  show->footer(
      "Examples:\n  tapasctl model show llama3-70b\n"
      "  tapasctl model show gpt3-175b --attention stored --micro-batch 2");
  auto options = std::make_shared<BuildOptions>();
  add_build_options(*show, *options);
  add_format_option(*show, context);
  show->callback([&context, options] {
    context.run = [&context, options] { return show_model(context, *options); };
  });
}

void add_build(CLI::App& verb, Context& context) {
  CLI::App* build = verb.add_subcommand("build", "Write a model's graph, tapas.graph/1");
  build->footer(
      "Examples:\n  tapasctl model build mixtral-8x7b --sequence 4096 -o mixtral.graph.json\n"
      "  tapasctl model build ./my.model.json -o my.graph.json");
  auto options = std::make_shared<BuildOptions>();
  add_build_options(*build, *options);
  build->add_option("-o,--output", options->out_file, "File to write; default stdout");
  build->callback([&context, options] {
    context.run = [options]() -> Result<Exit> {
      const auto shape = shape_of(*options);
      if (!shape) {
        return tl::unexpected(shape.error());
      }
      return write_graph(*shape, options->out_file);
    };
  });
}

void add_check(CLI::App& verb, Context& context) {
  CLI::App* check = verb.add_subcommand("check", "Say whether a model or graph file is valid");
  check->footer("Example:\n  tapasctl model check my.graph.json");
  auto file = std::make_shared<std::string>();
  check->add_option("FILE", *file, "tapas.model/1 or tapas.graph/1")->required();
  check->callback([&context, file] { context.run = [file] { return check_model(*file); }; });
}

void add_gpt(CLI::App& verb, Context& context) {
  CLI::App* gpt = verb.add_subcommand("gpt", "Write the graph of a GPT-style decoder");
  gpt->footer(
      "Example (GPT-3 175B):\n  tapasctl model gpt --name gpt3-175b --layers 96 --hidden 12288 "
      "--heads 96 --sequence 2048 \\\n    --vocabulary 51200 -o gpt3-175b.json");
  struct GptOptions {
    solver::DecoderShape shape;
    std::string out_file;
  };
  auto options = std::make_shared<GptOptions>();
  solver::DecoderShape& shape = options->shape;
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
  gpt->callback([&context, options] {
    context.run = [options] { return write_graph(options->shape, options->out_file); };
  });
}

}  // namespace

void add_model(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("model", "Graphs of known models, of your own, of profiles");
  verb->require_subcommand(1);
  verb->footer(
      "Examples:\n  tapasctl model list\n"
      "  tapasctl model build llama3-70b --sequence 8192 -o llama3-70b.graph.json");
  add_list(*verb, context);
  add_show(*verb, context);
  add_build(*verb, context);
  add_check(*verb, context);
  add_gpt(*verb, context);
  add_model_import(*verb, context);
}

}  // namespace tapas::ctl
