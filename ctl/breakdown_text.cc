#include "ctl/breakdown_text.h"

#include "ctl/table.h"
#include "solver/cost/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace tapas::ctl {
namespace {

using solver::GroupBytes;
using solver::GroupSeconds;
using solver::TierBytes;
using solver::Traffic;

/// One home for names, titles and order of the parts.
constexpr std::array<std::pair<const char*, double GroupSeconds::*>, 8> kSeconds = {{
    {"forward", &GroupSeconds::forward},
    {"backward", &GroupSeconds::backward},
    {"recompute", &GroupSeconds::recompute},
    {"tp_comm", &GroupSeconds::tp_comm},
    {"pp_comm", &GroupSeconds::pp_comm},
    {"wait", &GroupSeconds::wait},
    {"dp_sync", &GroupSeconds::dp_sync},
    {"update", &GroupSeconds::update},
}};
constexpr std::array<std::pair<const char*, double GroupBytes::*>, 6> kBytes = {{
    {"parameters", &GroupBytes::parameters},
    {"gradients", &GroupBytes::gradients},
    {"optimizer", &GroupBytes::optimizer},
    {"activations", &GroupBytes::activations},
    {"recompute", &GroupBytes::recompute},
    {"scratch", &GroupBytes::scratch},
}};
constexpr std::array<std::pair<const char*, double TierBytes::*>, 4> kTiers = {{
    {"node", &TierBytes::node},
    {"tor", &TierBytes::tor},
    {"pod", &TierBytes::pod},
    {"core", &TierBytes::core},
}};
constexpr std::array<std::pair<const char*, TierBytes Traffic::*>, 3> kTraffic = {{
    {"tp", &Traffic::tp},
    {"pp", &Traffic::pp},
    {"dp", &Traffic::dp},
}};

std::string title_of(const char* name) {
  std::string title;
  for (const char* c = name; *c != '\0'; ++c) {
    title += *c == '_' ? ' ' : static_cast<char>(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
  }
  return title;
}

/// Layers of all chunks of a group: "0-5" or "0-2,48-50".
std::string layers_of(const solver::Job& job, const solver::Plan& plan, std::uint32_t replica,
                      std::uint32_t group) {
  std::string text;
  for (std::uint32_t k = group; k < plan.pp_splits.size(); k += plan.stages()) {
    const solver::LayerRange range =
        solver::stage_layers(plan, replica, k, job.graph.layer_count());
    text += text.empty() ? "" : ",";
    text += range.last - range.first == 1 ? fmt::to_string(range.first)
                                          : fmt::format("{}-{}", range.first, range.last - 1);
  }
  return text;
}

std::string place_of(const solver::Job& job, const solver::Position& position) {
  const std::string& node = job.cluster.nodes[position.node.value()].name;
  const std::uint16_t first = position.devices.front();
  const std::uint16_t last = position.devices.back();
  return printable(node) +
         (first == last ? fmt::format("[{}]", first) : fmt::format("[{}-{}]", first, last));
}

std::string seconds_table(const solver::Job& job, const solver::Plan& plan,
                          const std::vector<GroupSeconds>& groups, std::uint32_t replica) {
  std::vector<Table::Column> columns = {{"STAGE", Align::kRight}, {"LAYERS"}, {"PLACE"}};
  for (const auto& [name, member] : kSeconds) {
    columns.push_back({title_of(name), Align::kRight});
  }
  columns.push_back({"STEP", Align::kRight});
  Table table(std::move(columns));
  GroupSeconds sum;
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    std::vector<std::string> row = {fmt::to_string(g), layers_of(job, plan, replica, g),
                                    place_of(job, plan.placement[replica][g])};
    for (const auto& [name, member] : kSeconds) {
      row.push_back(format_seconds(groups[g].*member));
      sum.*member += groups[g].*member;
    }
    row.push_back(format_seconds(groups[g].total()));
    table.add_row(std::move(row));
  }
  std::vector<std::string> share = {"all", "", "share of the step"};
  for (const auto& [name, member] : kSeconds) {
    share.push_back(format_percent(sum.*member / sum.total()));
  }
  share.push_back(format_percent(1));
  table.add_row(std::move(share));
  return table.text();
}

std::string bytes_table(const std::vector<GroupBytes>& groups) {
  std::vector<Table::Column> columns = {{"STAGE", Align::kRight}};
  for (const auto& [name, member] : kBytes) {
    columns.push_back({title_of(name), Align::kRight});
  }
  columns.push_back({"DEVICE HOLDS", Align::kRight});
  columns.push_back({"OF", Align::kRight});
  columns.push_back({"RESERVE", Align::kRight});
  Table table(std::move(columns));
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    std::vector<std::string> row = {fmt::to_string(g)};
    for (const auto& [name, member] : kBytes) {
      row.push_back(format_bytes(groups[g].*member));
    }
    row.push_back(format_bytes(groups[g].total()));
    row.push_back(format_bytes(groups[g].capacity));
    row.push_back(format_bytes(groups[g].reserve));
    table.add_row(std::move(row));
  }
  return table.text();
}

std::string placement_text(const PlacementReport& report) {
  if (!report.naive_step_time_s) {
    return "In the order of the cluster file the nodes have no room for this plan.\n";
  }
  const double naive = *report.naive_step_time_s;
  std::string text = fmt::format(
      "Nodes in the order of the cluster file: {} per step; this placement: {} ({} {}).\n",
      format_seconds(naive), format_seconds(report.step_time_s),
      format_percent(std::abs(naive - report.step_time_s) / naive),
      report.step_time_s <= naive ? "less" : "more");
  Table table({{"BYTES PER STEP"},
               {"PLACEMENT"},
               {"IN NODES", Align::kRight},
               {"UNDER A TOR", Align::kRight},
               {"IN A POD", Align::kRight},
               {"ACROSS PODS", Align::kRight}});
  for (const auto& [name, member] : kTraffic) {
    for (const auto& [words, traffic] :
         {std::pair("chosen", &report.traffic), std::pair("file order", &report.naive_traffic)}) {
      std::vector<std::string> row = {title_of(name), words};
      for (const auto& [tier, bytes] : kTiers) {
        row.push_back(format_bytes((traffic->*member).*bytes));
      }
      table.add_row(std::move(row));
    }
  }
  return text + table.text();
}

json::Value traffic_to_json(const Traffic& traffic) {
  json::Value out = json::Value::object();
  for (const auto& [name, member] : kTraffic) {
    for (const auto& [tier, bytes] : kTiers) {
      out[std::string(name) + "_bytes"][tier] = (traffic.*member).*bytes;
    }
  }
  return out;
}

}  // namespace

std::string shape_of(const solver::Plan& plan) {
  const auto [least, most] = std::minmax_element(plan.tp_width.begin(), plan.tp_width.end());
  std::string text =
      *least == *most ? fmt::format("TP {}", *most) : fmt::format("TP {} to {}", *least, *most);
  text += fmt::format(" x PP {} x DP {}", plan.stages(), plan.replicas());
  if (plan.interleave > 1) {
    text += fmt::format(", {} chunks", plan.interleave);
  }
  return text + (plan.sp_width > 1 ? " with sequence parallelism" : "");
}

PlacementReport placement_report(const solver::Job& job, const solver::Plan& plan) {
  PlacementReport report;
  report.step_time_s = solver::predict(job, plan).step_time_s;
  report.traffic = solver::traffic_of(job, plan);
  if (const auto naive = solver::in_naive_order(job, plan)) {
    report.naive_step_time_s = solver::predict(job, *naive).step_time_s;
    report.naive_traffic = solver::traffic_of(job, *naive);
  }
  return report;
}

std::string breakdown_text(const solver::Job& job, const solver::Plan& plan,
                           const solver::Breakdown& breakdown, const PlacementReport& placement,
                           std::uint32_t replica) {
  return fmt::format("{}: {}, {} per step, {} of {} microbatches in replica {}\n\n{}\n{}\n{}",
                     printable(plan.job), shape_of(plan), format_seconds(breakdown.step_time_s),
                     plan.microbatches[replica], job.total_microbatches(), replica,
                     seconds_table(job, plan, breakdown.seconds[replica], replica),
                     bytes_table(breakdown.bytes[replica]), placement_text(placement));
}

json::Value breakdown_to_json(const solver::Job& job, const solver::Plan& plan,
                              const solver::Breakdown& breakdown,
                              const PlacementReport& placement) {
  json::Value replicas = json::Value::array();
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    json::Value groups = json::Value::array();
    for (std::uint32_t g = 0; g < plan.stages(); ++g) {
      json::Value layers = json::Value::array();
      for (std::uint32_t k = g; k < plan.pp_splits.size(); k += plan.stages()) {
        const solver::LayerRange range = solver::stage_layers(plan, r, k, job.graph.layer_count());
        layers.push_back({{"first", range.first}, {"last", range.last - 1}});
      }
      const solver::Position& position = plan.placement[r][g];
      json::Value group = {{"stage", g},
                           {"layers", layers},
                           {"node", job.cluster.nodes[position.node.value()].name},
                           {"devices", position.devices}};
      for (const auto& [name, member] : kSeconds) {
        group["seconds"][name] = breakdown.seconds[r][g].*member;
      }
      for (const auto& [name, member] : kBytes) {
        group["bytes"][name] = breakdown.bytes[r][g].*member;
      }
      group["capacity_bytes"] = breakdown.bytes[r][g].capacity;
      group["reserve_bytes"] = breakdown.bytes[r][g].reserve;
      groups.push_back(std::move(group));
    }
    replicas.push_back(
        {{"replica", r}, {"microbatches", plan.microbatches[r]}, {"stages", groups}});
  }
  json::Value place = {{"step_time_s", placement.step_time_s},
                       {"traffic", traffic_to_json(placement.traffic)}};
  if (placement.naive_step_time_s) {
    place["file_order"] = {{"step_time_s", *placement.naive_step_time_s},
                           {"traffic", traffic_to_json(placement.naive_traffic)}};
  }
  return {{"schema", "tapas.breakdown/1"},
          {"job", plan.job},
          {"step_time_s", breakdown.step_time_s},
          {"replicas", replicas},
          {"placement", place}};
}

}  // namespace tapas::ctl
