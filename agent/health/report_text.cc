#include "agent/health/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

namespace tapas::agent::health {
namespace {

using Row = std::vector<std::string>;
constexpr std::string_view kUnknown = "?";
constexpr double kBitsPerIbWord = 32;  // port_rcv_data and port_xmit_data count words of 4 bytes.
constexpr std::size_t kShownNames = 3;

/// Rows of cells, each column as wide as its widest cell; nothing when there is only a title.
std::string table(const std::vector<Row>& rows) {
  if (rows.size() < 2) {
    return "";
  }
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += fmt::format("{:<{}}", row[c], widths[c] + 2);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text + "\n";
}

std::string shown(const std::optional<std::string>& text) {
  return text.value_or(std::string(kUnknown));
}
std::string gigabits(const std::optional<double>& bits_per_s) {
  return bits_per_s ? fmt::format("{:g} Gb/s", *bits_per_s / 1e9) : std::string(kUnknown);
}
std::string percent(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{:.1f} %", *ratio * 100) : std::string(kUnknown);
}
std::string link_text(const PcieLink& link) {
  return fmt::format("{} GT/s x{}",
                     link.gt_per_s ? fmt::format("{:g}", *link.gt_per_s) : std::string(kUnknown),
                     link.lanes ? fmt::format("{}", *link.lanes) : std::string(kUnknown));
}
std::string id_text(const std::optional<unsigned>& id) {
  return id ? fmt::format("{:04x}", *id) : std::string("????");
}

std::string traffic(const Rates& rates, const Measured& device, const std::string& counter,
                    double bits) {
  const auto growth = rates.devices.find(device.name);
  const auto per_s = growth == rates.devices.end() ? std::nullopt : growth->second.per_s(counter);
  return per_s ? fmt::format("{:.3f} Gb/s", *per_s * bits / 1e9) : std::string(kUnknown);
}

std::string pci_table(const Report& report) {
  std::vector<Row> rows = {{"PCI", "KIND", "ID", "LINK", "CAN", "SLOT CAN"}};
  for (const PciDevice& device : report.node.pci) {
    const bool gpu = device.kind == PciKind::kGpu;
    rows.push_back({device.name,
                    gpu                            ? "gpu"
                    : device.kind == PciKind::kNic ? "nic"
                                                   : std::string(kUnknown),
                    id_text(device.vendor) + ":" + id_text(device.device), link_text(device.now),
                    link_text(device.max), link_text(device.slot_max)});
  }
  return table(rows);
}

template <typename T>
std::string of_most(const std::optional<T>& now, const std::optional<T>& most, T unit,
                    std::string_view name) {
  const auto shown_in = [unit](const std::optional<T>& value) {
    return value ? fmt::format("{}", *value / unit) : std::string(kUnknown);
  };
  return fmt::format("{}/{} {}", shown_in(now), shown_in(most), name);
}
std::string temperature_text(const Gpu& gpu) {
  return (gpu.temperature_c ? fmt::format("{} C", *gpu.temperature_c) : std::string(kUnknown)) +
         (gpu.to_slowdown_c ? fmt::format(", {} below slowdown", *gpu.to_slowdown_c) : "");
}
std::string nvlink_text(const Gpu& gpu) {
  const auto up = std::count_if(gpu.nvlinks.begin(), gpu.nvlinks.end(),
                                [](const NvLink& link) { return link.active; });
  return gpu.nvlinks.empty() ? std::string(kUnknown)
                             : fmt::format("{}/{} up", up, gpu.nvlinks.size());
}
std::string ecc_text(const PciDevice& device) {
  const auto errors = device.counters.find("ecc_uncorrected");
  return device.gpu->ecc == false          ? "off"
         : errors == device.counters.end() ? std::string(kUnknown)
                                           : fmt::format("{} uncorrected", errors->second);
}
std::string mig_text(const Gpu& gpu) {
  return !gpu.mig    ? std::string(kUnknown)
         : !*gpu.mig ? "off"
                     : fmt::format("{} instances", gpu.mig_uuids.size());
}

std::string gpu_table(const Report& report) {
  std::vector<Row> rows = {
      {"PCI", "GPU", "MODEL", "SM CLOCK", "HEAT", "POWER", "ECC", "NVLINKS", "MIG"}};
  for (const PciDevice& device : report.node.pci) {
    if (device.gpu) {
      const Gpu& gpu = *device.gpu;
      rows.push_back({device.name, fmt::format("{}", gpu.index), shown(gpu.model),
                      of_most(gpu.sm_mhz, gpu.sm_max_mhz, 1U, "MHz"), temperature_text(gpu),
                      of_most(gpu.power_mw, gpu.power_limit_mw, 1000U, "W"), ecc_text(device),
                      nvlink_text(gpu), mig_text(gpu)});
    }
  }
  return table(rows);
}

std::string port_table(const Report& report) {
  std::vector<Row> rows = {{"RDMA PORT", "PCI", "LAYER", "STATE", "RATE", "RECEIVES", "SENDS"}};
  for (const IbPort& port : report.node.ports) {
    rows.push_back({port.name, port.pci, shown(port.link_layer), shown(port.state),
                    gigabits(port.bits_per_s),
                    traffic(report.rates, port, "port_rcv_data", kBitsPerIbWord),
                    traffic(report.rates, port, "port_xmit_data", kBitsPerIbWord)});
  }
  return table(rows);
}

std::string_view carrier_text(const NetDevice& net) {
  if (net.enabled == false) {
    return "set down";
  }
  return !net.carrier ? kUnknown : *net.carrier ? "yes" : "no";
}

std::string net_table(const Report& report) {
  std::vector<Row> rows = {{"INTERFACE", "PCI", "CARRIER", "SPEED", "RECEIVES", "SENDS"}};
  for (const NetDevice& net : report.node.nets) {
    rows.push_back({net.name, net.pci, std::string(carrier_text(net)), gigabits(net.bits_per_s),
                    traffic(report.rates, net, "rx_bytes", 8),
                    traffic(report.rates, net, "tx_bytes", 8)});
  }
  return table(rows);
}

std::string pressure_table(const Report& report) {
  std::vector<Row> rows = {{"WAITING, LAST 10 S", "SOME TASKS", "ALL TASKS"}};
  for (const Pressure& pressure : report.node.pressures) {
    rows.push_back({pressure.name, percent(pressure.some_ratio), percent(pressure.full_ratio)});
  }
  return table(rows);
}

/// Traffic has its own columns, and there is always some.
bool is_traffic(std::string_view counter) {
  static constexpr std::array<std::string_view, 8> kTraffic = {
      "port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets",
      "rx_bytes",      "tx_bytes",       "rx_packets",       "tx_packets"};
  return std::find(kTraffic.begin(), kTraffic.end(), counter) != kTraffic.end();
}

template <typename Device>
void add_growth(const std::vector<Device>& devices, const Rates& rates, std::vector<Row>& rows) {
  for (const Device& device : devices) {
    const auto growth = rates.devices.find(device.name);
    if (growth == rates.devices.end()) {
      continue;
    }
    for (const auto& [counter, by] : growth->second.grown) {
      if (by > 0 && !is_traffic(counter)) {
        rows.push_back({device.name, counter, fmt::format("{}", by),
                        fmt::format("{:.4g}", growth->second.per_s(counter).value_or(0))});
      }
    }
  }
}

/// What grew between the readings: errors, congestion, requests.
std::string growth_table(const Report& report) {
  std::vector<Row> rows = {{"COUNTED MEANWHILE", "COUNTER", "GREW BY", "PER SECOND"}};
  add_growth(report.node.pci, report.rates, rows);
  add_growth(report.node.ports, report.rates, rows);
  add_growth(report.node.nets, report.rates, rows);
  return table(rows);
}

/// One line for all that is missing for the same reason.
std::string gap_lines(std::string_view device, const std::vector<Gap>& gaps) {
  std::map<std::string, Row> by_reason;
  for (const Gap& gap : gaps) {
    by_reason[gap.why].push_back(gap.what);
  }
  std::string text;
  for (auto& [why, names] : by_reason) {
    const std::size_t more = names.size() - std::min(names.size(), kShownNames);
    names.resize(names.size() - more);
    text += fmt::format("  {}: {}{}: {}\n", device, fmt::join(names, ", "),
                        more > 0 ? fmt::format(" and {} more", more) : "", why);
  }
  return text;
}

template <typename Device>
std::string gap_lines_of(const std::vector<Device>& devices, const Rates& rates) {
  std::string text;
  for (const Device& device : devices) {
    std::vector<Gap> gaps = device.gaps;
    if (const auto growth = rates.devices.find(device.name); growth != rates.devices.end()) {
      gaps.insert(gaps.end(), growth->second.gaps.begin(), growth->second.gaps.end());
    }
    text += gap_lines(device.name, gaps);
  }
  return text;
}

/// Names of devices are bytes from outside: no control character may drive a terminal.
std::string printable(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f) {
      c = '?';
    }
  }
  return text;
}

}  // namespace

std::string to_text(const Report& report) {
  const NodeHealth& node = report.node;
  std::string text = pci_table(report) + gpu_table(report) + port_table(report) +
                     net_table(report) + growth_table(report) + pressure_table(report);
  const std::string gaps = gap_lines("node", node.gaps) + gap_lines_of(node.pci, report.rates) +
                           gap_lines_of(node.ports, report.rates) +
                           gap_lines_of(node.nets, report.rates) +
                           gap_lines_of(node.pressures, report.rates);
  if (!gaps.empty()) {
    text += "Unknown:\n" + gaps + "\n";
  }
  text += report.findings.empty() ? "Nothing is wrong in what could be read.\n" : "Findings:\n";
  for (const Finding& finding : report.findings) {
    text += "  " + finding.text + "\n";
  }
  return printable(std::move(text));
}

}  // namespace tapas::agent::health
