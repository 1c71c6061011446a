#include "ctl/plan_text.h"
#include "ctl/table.h"
#include "ctl/verbs.h"
#include "solver/topo/nccl_topo.h"

#include <CLI/App.hpp>

#include <memory>

namespace tapas::ctl {

namespace {

std::string gigabytes_per_s(double bytes_per_s) {
  return fmt::format("{:.1f} GB/s", bytes_per_s / 1e9);
}

json::Value to_json(const solver::NcclTopo& topo) {
  json::Value gpus = json::Value::array();
  for (std::size_t i = 0; i < topo.gpus.size(); ++i) {
    const solver::TopoGpu& gpu = topo.gpus[i];
    json::Value nics = json::Value::array();
    for (const std::uint32_t nic : topo.nics_of_gpu[i]) {
      nics.push_back(topo.nics[nic].name);
    }
    gpus.push_back({{"dev", gpu.dev},
                    {"busid", gpu.busid},
                    {"sm", gpu.sm},
                    {"numa", gpu.numa},
                    {"nvlinks", gpu.nvlinks},
                    {"nvlink_bytes_per_s", gpu.nvlink_bytes_per_s},
                    {"pcie_bytes_per_s", gpu.pcie_bytes_per_s},
                    {"nearest_nics", nics}});
  }
  json::Value nics = json::Value::array();
  for (const solver::TopoNic& nic : topo.nics) {
    nics.push_back({{"name", nic.name},
                    {"numa", nic.numa},
                    {"bytes_per_s", nic.bytes_per_s},
                    {"behind_switch", nic.behind_switch}});
  }
  return {{"schema", "tapas.topo/1"}, {"nvswitch", topo.nvswitch}, {"gpus", gpus}, {"nics", nics}};
}

std::string to_text(const solver::NcclTopo& topo) {
  Table gpus({{"GPU", Align::kRight},
              {"BUS ID"},
              {"SM", Align::kRight},
              {"NUMA", Align::kRight},
              {"NVLINKS", Align::kRight},
              {"NVLINK", Align::kRight},
              {"PCIE", Align::kRight},
              {"NEAREST NICS"}});
  for (std::size_t i = 0; i < topo.gpus.size(); ++i) {
    const solver::TopoGpu& gpu = topo.gpus[i];
    std::string nearest;
    for (const std::uint32_t nic : topo.nics_of_gpu[i]) {
      nearest += (nearest.empty() ? "" : ", ") + printable(topo.nics[nic].name);
    }
    gpus.add_row({fmt::to_string(gpu.dev), printable(gpu.busid), fmt::to_string(gpu.sm),
                  fmt::to_string(gpu.numa), fmt::to_string(gpu.nvlinks),
                  gigabytes_per_s(gpu.nvlink_bytes_per_s), gigabytes_per_s(gpu.pcie_bytes_per_s),
                  nearest.empty() ? "none" : nearest});
  }
  Table nics({{"NIC"}, {"NUMA", Align::kRight}, {"SPEED", Align::kRight}, {"SWITCH"}});
  for (const solver::TopoNic& nic : topo.nics) {
    nics.add_row({printable(nic.name), fmt::to_string(nic.numa), gigabytes_per_s(nic.bytes_per_s),
                  nic.behind_switch ? "with a GPU" : "on its own"});
  }
  return fmt::format("{}, {}, {}\n\n{}\n{}", format_count(topo.gpus.size(), "GPU"),
                     format_count(topo.nics.size(), "NIC"),
                     topo.nvswitch ? "NVSwitch" : "no NVSwitch", gpus.text(), nics.text());
}

}  // namespace

void add_topo(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("topo", "Read a node's topology as NCCL dumped it");
  verb->require_subcommand(1);
  verb->footer("Example:\n  tapasctl topo show topo.xml");
  CLI::App* show = verb->add_subcommand("show", "GPUs, NICs, links and what is near what");
  show->footer(
      "Examples:\n  tapasctl topo show topo.xml\n"
      "NCCL writes the file when NCCL_TOPO_DUMP_FILE names it.");
  auto file = std::make_shared<std::string>();
  show->add_option("FILE", *file, "NCCL topo.xml")->required();
  add_format_option(*show, context);
  show->callback([&context, file] {
    context.run = [&context, file]() -> Result<Exit> {
      const auto topo = solver::load_nccl_topo(*file);
      if (!topo) {
        return tl::unexpected(topo.error());
      }
      for (const std::string& warning : topo->warnings) {
        say("tapasctl: " + printable(warning));
      }
      if (context.json()) {
        print_json(to_json(*topo));
      } else {
        print(to_text(*topo));
      }
      return Exit::kOk;
    };
  });
}

}  // namespace tapas::ctl
