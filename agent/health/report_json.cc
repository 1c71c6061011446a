#include "agent/health/report.h"
#include "base/json/json.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace tapas::agent::health {
namespace {

using json::Value;

template <typename T>
Value or_null(const std::optional<T>& value) {
  return value ? Value(*value) : Value(nullptr);
}
Value or_null(const std::string& text) { return text.empty() ? Value(nullptr) : Value(text); }

Value hex(const std::optional<unsigned>& id) {
  return id ? Value(fmt::format("0x{:04x}", *id)) : Value(nullptr);
}

Value link_json(const PcieLink& link) {
  return {{"gt_per_s", or_null(link.gt_per_s)}, {"lanes", or_null(link.lanes)}};
}

void add_gaps(const std::vector<Gap>& gaps, Value& to) {
  for (const Gap& gap : gaps) {
    to.push_back({{"what", gap.what}, {"why", gap.why}});
  }
}

/// Adds what all devices have: counters, how they grow, gaps of both.
Value with_measured(Value value, const Measured& device, const Rates& rates) {
  Value counters = Value::object();
  for (const auto& [name, count] : device.counters) {
    counters[name] = count;
  }
  Value per_s = Value::object();
  Value gaps = Value::array();
  add_gaps(device.gaps, gaps);
  if (const auto growth = rates.devices.find(device.name); growth != rates.devices.end()) {
    for (const auto& [name, by] : growth->second.grown) {
      per_s[name] = or_null(growth->second.per_s(name));
    }
    add_gaps(growth->second.gaps, gaps);
  }
  value["counters"] = std::move(counters);
  value["per_s"] = std::move(per_s);
  value["gaps"] = std::move(gaps);
  return value;
}

std::string_view to_string(PciKind kind) {
  switch (kind) {
    case PciKind::kGpu:
      return "gpu";
    case PciKind::kNic:
      return "nic";
    case PciKind::kUnknown:
      return "unknown";
  }
  return "";
}

/// Words for clocks event reasons; the number of a bit that is none of them.
Value throttle_json(const std::optional<std::uint64_t>& bits) {
  if (!bits) {
    return nullptr;
  }
  static constexpr std::array<std::string_view, 9> kWords = {
      "gpu_idle",   "application_clocks", "sw_power_cap",   "hw_slowdown",   "sync_boost",
      "sw_thermal", "hw_thermal",         "hw_power_brake", "display_clocks"};
  Value words = Value::array();
  for (unsigned bit = 0; bit < 64; ++bit) {
    if ((*bits >> bit & 1U) != 0) {
      words.push_back(bit < kWords.size() ? std::string(kWords[bit]) : fmt::format("bit_{}", bit));
    }
  }
  return words;
}

Value gpu_json(const std::optional<Gpu>& gpu) {
  if (!gpu) {
    return nullptr;
  }
  Value links = Value::array();
  for (const NvLink& link : gpu->nvlinks) {
    links.push_back({{"link", link.link}, {"active", link.active}});
  }
  return {{"index", gpu->index},
          {"uuid", or_null(gpu->uuid)},
          {"model", or_null(gpu->model)},
          {"sm_mhz", or_null(gpu->sm_mhz)},
          {"sm_max_mhz", or_null(gpu->sm_max_mhz)},
          {"memory_mhz", or_null(gpu->memory_mhz)},
          {"memory_max_mhz", or_null(gpu->memory_max_mhz)},
          {"throttle_reasons", throttle_json(gpu->throttle_bits)},
          {"temperature_c", or_null(gpu->temperature_c)},
          {"to_slowdown_c", or_null(gpu->to_slowdown_c)},
          {"power_mw", or_null(gpu->power_mw)},
          {"power_limit_mw", or_null(gpu->power_limit_mw)},
          {"ecc", or_null(gpu->ecc)},
          {"repair_pending", or_null(gpu->repair_pending)},
          {"repair_failed", or_null(gpu->repair_failed)},
          {"nvlinks", std::move(links)},
          {"pcie", link_json(gpu->now)},
          {"pcie_max", link_json(gpu->max)},
          {"mig", or_null(gpu->mig)},
          {"mig_uuids", gpu->mig_uuids}};
}

Value own_json(const PciDevice& device) {
  return {{"name", device.name},
          {"kind", to_string(device.kind)},
          {"vendor", hex(device.vendor)},
          {"device", hex(device.device)},
          {"link", link_json(device.now)},
          {"link_max", link_json(device.max)},
          {"slot_max", link_json(device.slot_max)},
          {"nvml", gpu_json(device.gpu)}};
}
Value own_json(const IbPort& port) {
  return {{"name", port.name},
          {"pci", or_null(port.pci)},
          {"board", or_null(port.board)},
          {"link_layer", or_null(port.link_layer)},
          {"state", or_null(port.state)},
          {"phys_state", or_null(port.phys_state)},
          {"bits_per_s", or_null(port.bits_per_s)},
          {"lanes", or_null(port.lanes)}};
}
Value own_json(const NetDevice& net) {
  return {{"name", net.name},
          {"pci", or_null(net.pci)},
          {"model", or_null(net.model)},
          {"enabled", or_null(net.enabled)},
          {"carrier", or_null(net.carrier)},
          {"bits_per_s", or_null(net.bits_per_s)}};
}
Value own_json(const Pressure& pressure) {
  return {{"name", pressure.name},
          {"some_ratio", or_null(pressure.some_ratio)},
          {"full_ratio", or_null(pressure.full_ratio)}};
}

template <typename Device>
Value list_json(const std::vector<Device>& devices, const Rates& rates) {
  Value list = Value::array();
  for (const Device& device : devices) {
    list.push_back(with_measured(own_json(device), device, rates));
  }
  return list;
}

}  // namespace

std::string to_json(const Report& report, bool one_line) {
  Value gaps = Value::array();
  add_gaps(report.node.gaps, gaps);
  Value found = Value::array();
  for (const Finding& finding : report.findings) {
    found.push_back({{"device", finding.device}, {"kind", finding.kind}, {"text", finding.text}});
  }
  const Value value = {{"schema", "tapas.health/1"},
                       {"driver", or_null(report.node.driver)},
                       {"pci", list_json(report.node.pci, report.rates)},
                       {"ports", list_json(report.node.ports, report.rates)},
                       {"nets", list_json(report.node.nets, report.rates)},
                       {"pressures", list_json(report.node.pressures, report.rates)},
                       {"findings", std::move(found)},
                       {"gaps", std::move(gaps)}};
  return json::dump(value, one_line ? -1 : 2) + "\n";
}

}  // namespace tapas::agent::health
