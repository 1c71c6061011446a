#include "agent/health/findings.h"

#include "agent/health/gpu_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace tapas::agent::health {
namespace {

/// A counter that stands still in a healthy node.
struct Alarm {
  std::string_view counter;
  std::string_view advice;
};
constexpr std::string_view kCable = "look at its cable, its transceivers and the switch port";
constexpr std::string_view kFabric = "packets get lost or late on the way; look at the fabric";
constexpr std::string_view kSlot = "reseat the card, look at its riser";

constexpr std::array<Alarm, 3> kPciAlarms = {
    {{"aer_correctable", kSlot}, {"aer_nonfatal", kSlot}, {"aer_fatal", kSlot}}};
constexpr std::array<Alarm, 11> kPortAlarms = {{{"link_downed", kCable},
                                                {"symbol_error", kCable},
                                                {"link_error_recovery", kCable},
                                                {"port_rcv_errors", kCable},
                                                {"local_link_integrity_errors", kCable},
                                                {"excessive_buffer_overrun_errors", kFabric},
                                                {"port_xmit_discards", kFabric},
                                                {"rx_icrc_encapsulated", kFabric},
                                                {"out_of_sequence", kFabric},
                                                {"packet_seq_err", kFabric},
                                                {"local_ack_timeout_err", kFabric}}};
constexpr std::array<Alarm, 5> kNetAlarms = {{{"carrier_changes", kCable},
                                              {"rx_crc_errors", kCable},
                                              {"rx_frame_errors", kCable},
                                              {"tx_carrier_errors", kCable},
                                              {"tx_errors", kFabric}}};

std::string gigabits(double bits_per_s) { return fmt::format("{:g} Gb/s", bits_per_s / 1e9); }

/// The smaller of what the device and the port above it can; unknown when the device's own is.
template <typename T>
std::optional<T> possible(const std::optional<T>& device, const std::optional<T>& slot) {
  return device && slot ? std::min(*device, *slot) : device;
}

/// The best rate of each model, and how many have it.
class Nominal {
 public:
  void add(const std::string& model, const std::optional<double>& bits_per_s) {
    if (model.empty() || !bits_per_s) {
      return;
    }
    Best& best = best_[model];
    if (*bits_per_s > best.bits_per_s) {
      best = {*bits_per_s, 0};
    }
    best.count += *bits_per_s == best.bits_per_s ? 1 : 0;
  }
  /// ", where 3 of the same model in this node have 400 Gb/s"; empty when none is faster.
  [[nodiscard]] std::string faster(const std::string& model, double bits_per_s) const {
    const auto best = best_.find(model);
    if (best == best_.end() || best->second.bits_per_s <= bits_per_s) {
      return "";
    }
    return fmt::format(", where {} of the same model in this node {} {}", best->second.count,
                       best->second.count == 1 ? "has" : "have", gigabits(best->second.bits_per_s));
  }

 private:
  struct Best {
    double bits_per_s = 0;
    unsigned count = 0;
  };
  std::map<std::string, Best> best_;
};

class Finder {
 public:
  Finder(const NodeHealth& now, const Rates& rates) : rates_(rates), gpus_(now, rates) {}

  void look_at(const PciDevice& device);
  void look_at(const IbPort& port, const Nominal& nominal);
  void look_at(const NetDevice& net, const Nominal& nominal);
  void look_at(const Pressure& pressure);
  void look_at_gone();
  [[nodiscard]] std::vector<Finding> take() { return std::move(found_); }

 private:
  void tell(const Measured& device, std::string kind, const std::string& what) {
    found_.push_back({device.name, std::move(kind), fmt::format("{} {}", device.name, what)});
  }
  void half_removed(const Measured& device) {
    const std::string why = device.gaps.empty() ? "its files are not there"
                                                : fmt::format("{} {}", device.gaps.front().what,
                                                              device.gaps.front().why);
    tell(device, "half_removed",
         fmt::format("is half removed or its driver does not answer ({}): look at the kernel's log",
                     why));
  }
  template <typename Alarms>
  void look_at_growth(const Measured& device, const Alarms& alarms) {
    const auto growth = rates_.devices.find(device.name);
    if (growth == rates_.devices.end()) {
      return;
    }
    for (const Alarm& alarm : alarms) {
      if (const auto by = growth->second.of(std::string(alarm.counter)); by.value_or(0) > 0) {
        tell(device, std::string(alarm.counter),
             fmt::format("counted {} more {} in {:.1f} s: {}", *by, alarm.counter,
                         growth->second.interval_s, alarm.advice));
      }
    }
  }

  const Rates& rates_;
  GpuFindings gpus_;
  std::vector<Finding> found_;
};

void Finder::look_at(const PciDevice& device) {
  if (device.kind == PciKind::kUnknown) {
    return half_removed(device);
  }
  const std::string_view what = device.kind == PciKind::kGpu ? "(GPU)" : "(NIC)";
  if (!device.lost.empty()) {
    return tell(
        device, "lost",
        fmt::format("{} does not answer on the PCI bus ({}): look at the kernel's log, then "
                    "reset or replace it",
                    what, device.lost));
  }
  const auto lanes = possible(device.max.lanes, device.slot_max.lanes);
  if (lanes && device.now.lanes && *device.now.lanes < *lanes) {
    tell(device, "pcie_width",
         fmt::format("{} runs at PCIe x{} of x{}: {}", what, *device.now.lanes, *lanes, kSlot));
  }
  const auto speed = possible(device.max.gt_per_s, device.slot_max.gt_per_s);
  if (speed && device.now.gt_per_s && *device.now.gt_per_s < *speed) {
    tell(device, "pcie_speed",
         fmt::format("{} runs at PCIe {:g} of {:g} GT/s: {}", what, *device.now.gt_per_s, *speed,
                     device.kind == PciKind::kGpu
                         ? "some GPUs do so while idle; if it stays under load, reseat it"
                         : kSlot));
  }
  look_at_growth(device, kPciAlarms);
  gpus_.add(device, found_);
}

void Finder::look_at(const IbPort& port, const Nominal& nominal) {
  if (!port.state) {
    return half_removed(port);
  }
  if (*port.state != "ACTIVE") {
    const std::string phys =
        port.phys_state ? fmt::format(", physically {}", *port.phys_state) : std::string();
    tell(port, "port_down",
         fmt::format("is {}{}: {}, unless it is not used", *port.state, phys, kCable));
  }
  if (port.bits_per_s) {
    std::string how = nominal.faster(port.board, *port.bits_per_s);
    if (how.empty() && port.link_layer == "InfiniBand" && port.lanes == 1U) {
      how = " over one lane";
    }
    if (!how.empty()) {
      tell(port, "port_slow",
           fmt::format("runs at {}{}: {}", gigabits(*port.bits_per_s), how, kCable));
    }
  }
  look_at_growth(port, kPortAlarms);
}

void Finder::look_at(const NetDevice& net, const Nominal& nominal) {
  if (!net.enabled) {
    return half_removed(net);
  }
  if (net.carrier == false) {
    tell(net, "no_carrier", fmt::format("is set up but has no carrier: {}", kCable));
  }
  if (net.bits_per_s) {
    if (const std::string faster = nominal.faster(net.model, *net.bits_per_s); !faster.empty()) {
      tell(net, "net_slow",
           fmt::format("runs at {}{}: {}", gigabits(*net.bits_per_s), faster, kCable));
    }
  }
  look_at_growth(net, kNetAlarms);
}

void Finder::look_at(const Pressure& pressure) {
  const bool cpu = pressure.name == "pressure/cpu";
  if (pressure.some_ratio.value_or(0) >= (cpu ? kCpuPressureRatio : kMemoryPressureRatio)) {
    tell(
        pressure, cpu ? "cpu_pressure" : "memory_pressure",
        fmt::format("is high: tasks waited for {} in {:.0f} % of the last 10 s; look for what else "
                    "runs here",
                    cpu ? "a CPU" : "memory", *pressure.some_ratio * 100));
  }
}

void Finder::look_at_gone() {
  for (const std::string& name : rates_.gone) {
    found_.push_back(
        {name, "gone",
         fmt::format("{} was there in the first reading and is gone in the second: look "
                     "at the kernel's log",
                     name)});
  }
}

}  // namespace

std::vector<Finding> findings(const NodeHealth& now, const Rates& rates) {
  Nominal ports;
  Nominal nets;
  for (const IbPort& port : now.ports) {
    ports.add(port.board, port.bits_per_s);
  }
  for (const NetDevice& net : now.nets) {
    nets.add(net.model, net.bits_per_s);
  }
  Finder finder(now, rates);
  for (const PciDevice& device : now.pci) {
    finder.look_at(device);
  }
  for (const IbPort& port : now.ports) {
    finder.look_at(port, ports);
  }
  for (const NetDevice& net : now.nets) {
    finder.look_at(net, nets);
  }
  for (const Pressure& pressure : now.pressures) {
    finder.look_at(pressure);
  }
  finder.look_at_gone();
  return finder.take();
}

}  // namespace tapas::agent::health
