#include "agent/health/read_node.h"

#include "agent/health/reader.h"

#include <algorithm>
#include <array>

namespace tapas::agent::health {
namespace {

constexpr unsigned kAmd = 0x1002;

std::optional<std::string> any_text(std::string_view text) {
  return text.empty() ? std::nullopt : std::optional(std::string(text));
}

std::optional<unsigned> parse_id(std::string_view text) {
  const auto id = parse_count(text);
  return id && *id < 0xffff ? std::optional(static_cast<unsigned>(*id)) : std::nullopt;
}

/// The total of a file of PCIe errors: lines "RxErr 0", the last one "TOTAL_ERR_COR 3".
std::optional<std::uint64_t> parse_aer(std::string_view text) {
  const std::size_t total = text.rfind("TOTAL_ERR_");
  const std::size_t blank = text.find(' ', std::min(total, text.size()));
  return blank == text.npos ? std::nullopt : parse_count(text.substr(blank + 1));
}

/// The PCI function that a path in the tree of devices lies in; empty when it is in none.
std::string pci_function(std::string path) {
  while (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    std::string name = path.substr(slash == path.npos ? 0 : slash + 1);
    if (is_pci_address(name)) {
      return name;
    }
    path.resize(slash == path.npos ? 0 : slash);
  }
  return "";
}
/// The PCI function of the device in `folder` of a class, by its link or by where the folder lies.
std::string pci_function_of(const SysTree& sys, const std::string& folder) {
  const auto hardware = sys.resolve(folder + "/device");
  const auto real = hardware ? hardware : sys.resolve(folder);
  return real ? pci_function(*real) : "";
}

bool is_virtual_function(const SysTree& sys, const std::string& device) {
  return sys.has(device + "/physfn");
}

/// Names in a folder of the tree; a gap of the node when it cannot be read or has too many.
std::vector<std::string> names_in(const SysTree& sys, const std::string& folder,
                                  std::string_view what, NodeHealth& node) {
  auto listing = sys.list(folder);
  if (!listing) {
    node.gaps.push_back({std::string(what), fmt::format("{} {}", folder, listing.error().message)});
    return {};
  }
  if (listing->cut) {
    node.gaps.push_back({std::string(what), fmt::format("only {} of the names in {} were looked at",
                                                        SysTree::kMaxEntries, folder)});
  }
  return std::move(listing->names);
}

/// Adds a device unless there are too many; false and a gap when there are.
template <typename Device>
bool add(std::vector<Device>& devices, Device device, std::string_view what, NodeHealth& node) {
  if (devices.size() == kMaxDevices) {
    node.gaps.push_back(
        {std::string(what), fmt::format("only the first {} are shown", kMaxDevices)});
    return false;
  }
  devices.push_back(std::move(device));
  return true;
}

/// Empty for what is neither GPU nor NIC. `code` is class, subclass and interface, 24 bits.
std::optional<PciKind> kind_of(std::uint64_t code, const std::optional<unsigned>& vendor) {
  if (code >> 16U == 0x02) {
    return PciKind::kNic;
  }
  const std::uint64_t subclass = code >> 8U;
  const bool gpu = code >> 16U == 0x12 ||
                   (vendor == kNvidia && (subclass == 0x0300 || subclass == 0x0302)) ||
                   (vendor == kAmd && subclass == 0x0380);
  return gpu ? std::optional(PciKind::kGpu) : std::nullopt;
}

PcieLink read_link(Reader& in, std::string_view speed_file, std::string_view width_file) {
  PcieLink link;
  link.gt_per_s = in.value(speed_file, parse_gt_per_s);
  link.lanes = in.value(width_file, parse_lanes);
  return link;
}

/// Empty when the device answers. No link at all is no sign: neither conventional PCI nor a
/// function lent to a virtual machine shows one.
std::string why_lost(const Result<std::string>& width, const PcieLink& max) {
  if (!width) {
    return max.lanes ? "current_link_width " + width.error().message : "";
  }
  return *width == "63" ? "its registers read as all ones" : "";
}

/// Empty when it is neither GPU nor NIC.
std::optional<PciDevice> read_pci_device(const SysTree& sys, const std::string& address) {
  const std::string folder = "bus/pci/devices/" + address;
  PciDevice device;
  device.name = address;
  Reader in(sys, folder, device);
  const auto code = in.value("class", parse_count);
  device.vendor = in.value("vendor", parse_id);
  const auto kind = code ? kind_of(*code, device.vendor) : std::optional(PciKind::kUnknown);
  if (!kind || is_virtual_function(sys, folder)) {
    return std::nullopt;
  }
  device.kind = *kind;
  device.device = in.value("device", parse_id);
  if (device.vendor && device.device) {
    device.identity = fmt::format("{:04x}:{:04x}", *device.vendor, *device.device);
  }
  device.read_at = std::chrono::steady_clock::now();
  device.now = read_link(in, "current_link_speed", "current_link_width");
  device.max = read_link(in, "max_link_speed", "max_link_width");
  device.lost = why_lost(sys.read(in.path("current_link_width")), device.max);
  for (const std::string_view severity : {"correctable", "nonfatal", "fatal"}) {
    in.counter(fmt::format("aer_{}", severity),
               in.value_if_any(fmt::format("aer_dev_{}", severity), parse_aer));
  }
  if (const auto real = sys.resolve(folder)) {
    const std::string above = real->substr(0, real->rfind('/'));
    if (is_pci_address(above.substr(above.rfind('/') + 1))) {
      Measured port;
      Reader slot(sys, above, port);
      device.slot_max = read_link(slot, "max_link_speed", "max_link_width");
    }
  }
  return device;
}

void read_pci(const SysTree& sys, const Step& step, NodeHealth& node) {
  for (const std::string& address : names_in(sys, "bus/pci/devices", "pci", node)) {
    step("bus/pci/devices/" + address);
    auto device = read_pci_device(sys, address);
    if (device && !add(node.pci, *std::move(device), "pci", node)) {
      return;
    }
  }
}

/// Whether any counter speaks of one of the words.
bool any_counter(const Measured& device, std::initializer_list<std::string_view> words) {
  return std::any_of(device.counters.begin(), device.counters.end(), [&](const auto& counter) {
    std::string name = counter.first;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return name.find(word) != name.npos; });
  });
}

IbPort read_port(const SysTree& sys, const std::string& folder, IbPort port) {
  Reader in(sys, folder, port);
  port.state = in.value("state", parse_ib_state);
  port.phys_state = in.value("phys_state", parse_ib_state);
  port.link_layer = in.value("link_layer", any_text);
  if (port.state == "ACTIVE") {
    if (const auto rate = in.value("rate", parse_ib_rate)) {
      port.bits_per_s = rate->bits_per_s;
      port.lanes = rate->lanes;
    }
  } else if (port.state) {
    in.gap("rate", "the port is not active");
  }
  port.read_at = std::chrono::steady_clock::now();
  in.counters("counters");
  in.counters("hw_counters", "lifespan");
  if (port.link_layer == "Ethernet") {
    if (!any_counter(port, {"ecn", "cnp"})) {
      in.gap("ecn", "the driver has no counters of it in sysfs");
    }
    if (!any_counter(port, {"pfc", "pause"})) {
      in.gap("pfc", "the driver has no counters of it in sysfs; ethtool -S may");
    }
  }
  return port;
}

void read_ports(const SysTree& sys, const Step& step, NodeHealth& node) {
  for (const std::string& name : names_in(sys, "class/infiniband", "rdma", node)) {
    const std::string folder = "class/infiniband/" + name;
    step(folder);
    IbPort device;
    device.name = name;
    device.pci = pci_function_of(sys, folder);
    if (is_virtual_function(sys, folder + "/device")) {
      continue;
    }
    Reader in(sys, folder, device);
    device.board = in.value_if_any("board_id", any_text).value_or("");
    device.identity = in.value_if_any("node_guid", any_text).value_or("");
    const auto ports = sys.list(folder + "/ports");
    if (!ports || ports->names.empty()) {
      in.gap("ports", ports ? "has none" : ports.error().message);
      if (!add(node.ports, device, "rdma", node)) {
        return;
      }
      continue;
    }
    for (const std::string& number : ports->names) {
      IbPort port = device;
      port.name += "/" + number;
      port = read_port(sys, fmt::format("{}/ports/{}", folder, number), std::move(port));
      if (!add(node.ports, std::move(port), "rdma", node)) {
        return;
      }
    }
  }
}

void read_nets(const SysTree& sys, const Step& step, NodeHealth& node) {
  for (const std::string& name : names_in(sys, "class/net", "net", node)) {
    const std::string folder = "class/net/" + name;
    step(folder);
    NetDevice net;
    net.name = name;
    net.pci = pci_function_of(sys, folder);
    // A link that leads nowhere is what is left of a device that went away while we read.
    const bool dangling = !sys.resolve(folder);
    const bool ours =
        !net.pci.empty() || sys.has(folder + "/device") || sys.has(folder + "/bonding");
    if ((!ours && !dangling) || is_virtual_function(sys, folder + "/device")) {
      continue;
    }
    Reader in(sys, folder, net);
    for (const PciDevice& device : node.pci) {
      if (device.name == net.pci) {
        net.model = device.identity;
      }
    }
    net.identity = in.text("ifindex").value_or("");
    if (const auto flags = in.value("flags", parse_count)) {
      net.enabled = (*flags & 1U) != 0;
    }
    if (net.enabled == false) {
      in.gap("carrier", "the interface is set down");
    } else if (const auto carrier = in.value("carrier", parse_count)) {
      net.carrier = *carrier != 0;
    }
    if (net.carrier == true) {
      net.bits_per_s = in.value("speed", parse_net_speed);
    } else if (net.carrier == false) {
      in.gap("speed", "there is no carrier");
    }
    net.read_at = std::chrono::steady_clock::now();
    in.counters("statistics");
    for (const std::string_view counter : {"carrier_changes", "carrier_down_count"}) {
      in.counter(counter, in.value_if_any(counter, parse_count));
    }
    if (!add(node.nets, std::move(net), "net", node)) {
      return;
    }
  }
}

void read_pressures(const std::string& root, NodeHealth& node) {
  const auto proc = SysTree::open(root);
  if (!proc || !proc->has("pressure")) {
    node.gaps.push_back({"pressure", fmt::format("{}/pressure is not there: Linux before 4.20, or "
                                                 "started without psi=1",
                                                 root)});
    return;
  }
  for (const std::string_view resource : {"cpu", "memory"}) {
    Pressure pressure;
    pressure.name = fmt::format("pressure/{}", resource);
    Reader in(*proc, "pressure", pressure);
    pressure.read_at = std::chrono::steady_clock::now();
    if (const auto text = in.text(resource)) {
      if (const auto some = parse_pressure(*text, "some")) {
        pressure.some_ratio = some->avg10_ratio;
        in.counter("some_us", some->total_us);
      } else {
        in.gap("some", "the file has no such line");
      }
      if (const auto full = parse_pressure(*text, "full")) {  // Of CPUs only since Linux 5.13.
        pressure.full_ratio = full->avg10_ratio;
        in.counter("full_us", full->total_us);
      } else {
        in.gap("full", "the file has no such line");
      }
    }
    node.pressures.push_back(std::move(pressure));
  }
}

}  // namespace

Result<NodeHealth> read_node(const Roots& roots, const Step& step) {
  const auto sys = SysTree::open(roots.sys);
  if (!sys) {
    return tl::unexpected(sys.error());
  }
  NodeHealth node;
  read_pci(*sys, step, node);
  read_ports(*sys, step, node);
  read_nets(*sys, step, node);
  step("pressure");
  read_pressures(roots.proc, node);
  return node;
}

}  // namespace tapas::agent::health
