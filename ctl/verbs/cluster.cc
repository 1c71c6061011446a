#include "ctl/cluster_text.h"
#include "ctl/table.h"
#include "ctl/verbs.h"
#include "ctl/write_file.h"
#include "solver/model/io/catalogue.h"
#include "solver/model/io/load.h"
#include "solver/profile/profile.h"

#include <CLI/App.hpp>

#include <filesystem>
#include <memory>

namespace tapas::ctl {

namespace {

namespace fs = std::filesystem;

Result<Exit> list_devices(const Context& context, const std::string& only) {
  std::vector<std::string> names = {only};
  if (only.empty()) {
    auto all = solver::catalogue_names("devices");
    if (!all) {
      return tl::unexpected(all.error());
    }
    names = std::move(*all);
  }
  Catalogue catalogue;
  for (const std::string& name : names) {
    auto device = solver::load_catalogue_device(name);
    if (!device) {
      return tl::unexpected(device.error());
    }
    catalogue.emplace_back(name, std::move(*device));
  }
  if (context.json()) {
    print_json(catalogue_to_json(catalogue));
  } else {
    print(catalogue_text(catalogue));
  }
  return Exit::kOk;
}

struct NewOptions {
  std::vector<std::string> devices;
  std::vector<std::uint32_t> nodes;
  std::string topo_file;
  std::string out_file;
  NewCluster cluster;
};

Result<Exit> new_cluster(NewOptions options) {
  if (options.devices.size() != options.nodes.size()) {
    return fail(ErrorCode::kInvalid, "{} --device but {} --nodes: give one count for each",
                options.devices.size(), options.nodes.size());
  }
  NewCluster& made = options.cluster;
  for (std::size_t k = 0; k < options.devices.size(); ++k) {
    auto device = solver::load_catalogue_device(options.devices[k]);
    if (!device) {
      return tl::unexpected(device.error());
    }
    made.groups.push_back({std::move(*device), options.nodes[k]});
  }
  const fs::path folder =
      options.out_file.empty() ? fs::current_path() : fs::absolute(options.out_file).parent_path();
  if (!options.topo_file.empty()) {
    if (options.devices.size() > 1) {
      return fail(ErrorCode::kInvalid,
                  "--topo describes one kind of node: edit the file for clusters of several");
    }
    made.topo_file = fs::absolute(options.topo_file).lexically_relative(folder).string();
  }
  const json::Value value = cluster_to_json(made);
  const auto cluster = solver::cluster_from_json(value, folder.string());
  if (!cluster) {
    return tl::unexpected(cluster.error());
  }
  const std::string text = json::dump(value, 2) + "\n";
  if (auto done = write_or_print(options.out_file, text); !done) {
    return tl::unexpected(done.error());
  }
  say(fmt::format("{}: {}, {}", printable(cluster->name),
                  format_count(cluster->nodes.size(), "node"),
                  format_count(cluster->device_count(), "device")));
  for (const std::string& warning : cluster_warnings(*cluster)) {
    say("warning: " + warning);
  }
  return Exit::kOk;
}

Result<Exit> check_cluster(const std::string& file) {
  const auto cluster = solver::load_cluster(file);
  if (!cluster) {
    return tl::unexpected(cluster.error());
  }
  for (const std::string& warning : cluster_warnings(*cluster)) {
    say("warning: " + warning);
  }
  print(fmt::format("{} is a valid cluster: {}, {}\n", printable(file),
                    format_count(cluster->nodes.size(), "node"),
                    format_count(cluster->device_count(), "device")));
  return Exit::kOk;
}

Result<Exit> show_cluster(const Context& context, const std::string& file) {
  const auto cluster = solver::load_cluster(file);
  if (!cluster) {
    return tl::unexpected(cluster.error());
  }
  if (context.json()) {
    print_json(cluster_summary(*cluster));
  } else {
    print(cluster_text(*cluster));
  }
  return Exit::kOk;
}

struct CollectivesOptions {
  std::string layout;
  std::vector<std::string> files;
  solver::profile::Options profile;
  std::string out_file;
};

Result<Exit> read_collectives(const CollectivesOptions& options) {
  const auto layout = solver::profile::layout_from(options.layout);
  if (!layout) {
    return tl::unexpected(layout.error());
  }
  const auto files = solver::profile::load_files(options.files);
  if (!files) {
    return tl::unexpected(files.error());
  }
  const auto table = solver::profile::read_collectives(*layout, *files, options.profile);
  if (!table) {
    return tl::unexpected(table.error());
  }
  const std::string text = json::dump(collectives_to_json(*table), 1) + "\n";
  if (auto done = write_or_print(options.out_file, text); !done) {
    return tl::unexpected(done.error());
  }
  say(format_count(table->size(), "measured time") +
      " for measured_collectives of a cluster file's node type");
  return Exit::kOk;
}

void add_collectives(CLI::App& verb, Context& context) {
  CLI::App* read = verb.add_subcommand(
      "collectives", "Write a node type's measured_collectives from tables of other planners");
  read->footer(
      "Layouts: aceso, galvatron, nnscaler, sailor, vtrain (docs/formats.md).\nExample:\n"
      "  tapasctl cluster collectives vtrain a100_allreduce_gpu4.csv a100_allreduce_gpu8.csv -o "
      "a100.json");
  auto options = std::make_shared<CollectivesOptions>();
  read->add_option("LAYOUT", options->layout, "Layout of the files")->required();
  read->add_option("FILES", options->files, "Tables")->required();
  read->add_option("--device", options->profile.device, "Which device of a sailor file");
  read->add_option("-o,--output", options->out_file, "File to write; default stdout");
  read->callback(
      [&context, options] { context.run = [options] { return read_collectives(*options); }; });
}

void add_list(CLI::App& verb, Context& context) {
  CLI::App* list = verb.add_subcommand("list", "Devices of the catalogue");
  list->footer("Examples:\n  tapasctl cluster list\n  tapasctl cluster list 910B");
  auto only = std::make_shared<std::string>();
  list->add_option("DEVICE", *only, "Only this one, with its source");
  add_format_option(*list, context);
  list->callback([&context, only] {
    context.run = [&context, only] { return list_devices(context, *only); };
  });
}

void add_new(CLI::App& verb, Context& context) {
  CLI::App* made = verb.add_subcommand("new", "Write a cluster file from the catalogue");
  made->footer(
      "Examples:\n"
      "  tapasctl cluster new --device A800 --nodes 128 --nodes-per-tor 16 --tors-per-pod 4 -o "
      "a800.json\n"
      "  tapasctl cluster new --device H100 --nodes 4 --topo topo.xml -o h100.json\n"
      "  tapasctl cluster new --device A800 --nodes 64 --device 910B --nodes 64 -o mixed.json");
  auto options = std::make_shared<NewOptions>();
  NewCluster& cluster = options->cluster;
  made->add_option("--device", options->devices, "Name in `tapasctl cluster list`")->required();
  made->add_option("--nodes", options->nodes, "How many nodes of it")->required();
  made->add_option("--devices", cluster.devices, "Devices per node; default as usual for it");
  made->add_option("--topo", options->topo_file, "NCCL topology file of a node");
  made->add_option("--nodes-per-tor", cluster.nodes_per_tor, "Default: all under one");
  made->add_option("--tors-per-pod", cluster.tors_per_pod, "Default: all in one");
  made->add_option("--spares", cluster.spares, "Last nodes of each kind that plans leave out");
  made->add_option("--oversubscription", cluster.core_oversubscription, "Across pods; default 1");
  made->add_option("--name", cluster.name, "Name of the cluster; default cluster");
  made->add_option("-o,--output", options->out_file, "File to write; default stdout");
  made->callback(
      [&context, options] { context.run = [options] { return new_cluster(*options); }; });
}

}  // namespace

void add_cluster(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("cluster", "Make, check and show cluster files");
  verb->require_subcommand(1);
  verb->footer("Examples:\n  tapasctl cluster list\n  tapasctl cluster new --help");
  add_list(*verb, context);
  add_new(*verb, context);
  add_collectives(*verb, context);
  auto file = std::make_shared<std::string>();
  CLI::App* check = verb->add_subcommand("check", "Say whether a cluster file is valid");
  check->add_option("FILE", *file, "Cluster file (tapas.cluster/1)")->required();
  check->callback([&context, file] { context.run = [file] { return check_cluster(*file); }; });
  CLI::App* show = verb->add_subcommand("show", "Print what a cluster file means");
  show->add_option("FILE", *file, "Cluster file (tapas.cluster/1)")->required();
  add_format_option(*show, context);
  show->callback([&context, file] {
    context.run = [&context, file] { return show_cluster(context, *file); };
  });
}

}  // namespace tapas::ctl
