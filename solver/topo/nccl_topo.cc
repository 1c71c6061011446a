#include "solver/topo/nccl_topo.h"

#include "solver/topo/complete.h"
#include "solver/topo/link_rates.h"
#include "solver/topo/oddities.h"

#include <pugixml.hpp>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

namespace tapas::solver {

namespace {

constexpr std::size_t kMaxBytes = 16U << 20U;
constexpr std::size_t kMaxElements = 65'536;
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxCpus = 64;
constexpr std::size_t kMaxDevices = 1024;
constexpr std::size_t kMaxNics = 256;
constexpr std::size_t kMaxNvlinkRows = 16'384;
constexpr std::size_t kMostWarnings = 32;
constexpr double kGiga = 1e9;
constexpr double kDefaultNetMbps = 10'000;  // NCCL: speed missing or not positive
constexpr double kFastestNetMbps = 1e8;
constexpr std::uint32_t kMaxChannels = 64;

/// NCCL reads hexadecimal digits, skips ':' and '.', and stops at anything else.
std::uint64_t bus_number(std::string_view text) {
  std::uint64_t number = 0;
  int digits = 0;
  for (const char c : text) {
    if (c == ':' || c == '.') {
      continue;
    }
    const char lower = static_cast<char>(c | 0x20);
    const bool decimal = c >= '0' && c <= '9';
    if ((!decimal && (lower < 'a' || lower > 'f')) || ++digits > 16) {
      break;
    }
    number = number * 16 + static_cast<std::uint64_t>(decimal ? c - '0' : lower - 'a' + 10);
  }
  return number;
}

std::uint32_t bits_in(std::string_view mask) {
  std::uint32_t bits = 0;
  for (const char c : mask) {
    if (c != ',') {
      bits += static_cast<std::uint32_t>(
          std::bitset<8>(static_cast<unsigned>(bus_number({&c, 1}))).count());
    }
  }
  return bits;
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Result<NcclTopo> read() {
    if (const auto ok = parse(); !ok) {
      return tl::unexpected<Error>(ok.error());
    }
    const pugi::xml_node system = document_.document_element();
    if (!check_root(system)) {
      return tl::unexpected<Error>(error_);
    }
    if (!system.next_sibling("system").empty()) {
      warn("a second <system> is left out, as NCCL does");
    }
    number_nets_ = no_net_has_dev(system);
    for (const pugi::xml_node cpu : system.children("cpu")) {
      if (is_other_host(cpu)) {
        ++other_hosts_;
        continue;
      }
      read_cpu(cpu);
    }
    if (!failed() && topo_.gpus.empty() && topo_.nics.empty()) {
      complete(system);
    }
    if (!failed() && topo_.devices.empty()) {
      complain(system,
               "no device found; dump the topology from a running job with NCCL_TOPO_DUMP_FILE");
    }
    if (failed()) {
      return tl::unexpected<Error>(error_);
    }
    finish();
    return std::move(topo_);
  }

 private:
  [[nodiscard]] bool failed() const { return !error_.message.empty(); }

  [[nodiscard]] std::size_t line_at(std::ptrdiff_t offset) const {
    const auto end = std::clamp<std::ptrdiff_t>(offset, 0, std::ssize(text_));
    return static_cast<std::size_t>(std::count(text_.begin(), text_.begin() + end, '\n')) + 1;
  }

  void complain(const pugi::xml_node& node, const std::string& what) {
    if (!failed()) {
      error_ =
          Error{ErrorCode::kInvalid, fmt::format("{}: line {}: <{}>: {}", name_,
                                                 line_at(node.offset_debug()), node.name(), what)};
    }
  }

  void warn(std::string message) {
    if (topo_.warnings.size() < kMostWarnings) {
      topo_.warnings.push_back(std::move(message));
    }
  }
  void warn_at(const pugi::xml_node& node, std::string_view what) {
    if (topo_.warnings.size() == kMostWarnings) {
      return;  // finding the line takes time
    }
    warn(fmt::format("line {}: <{}>: {}", line_at(node.offset_debug()), node.name(), what));
  }

  Result<void> parse() {
    if (text_.size() > kMaxBytes) {
      return fail(ErrorCode::kInvalid, "{}: larger than the limit of {} bytes", name_, kMaxBytes);
    }
    // Bounds the tree before it is built; closing tags and comments are not counted.
    std::size_t elements = 0;
    for (std::size_t at = text_.find('<'); at != std::string_view::npos;
         at = text_.find('<', at + 1)) {
      const char next = at + 1 < text_.size() ? text_[at + 1] : '/';
      elements += next != '/' && next != '!' && next != '?' ? 1U : 0U;
    }
    if (elements > kMaxElements) {
      return fail(ErrorCode::kInvalid, "{}: {} elements are over the limit of {}", name_, elements,
                  kMaxElements);
    }
    const pugi::xml_parse_result parsed =
        document_.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed) {
      return fail(ErrorCode::kInvalid,
                  "{}: line {}: {}; the file is damaged or cut off: dump it again", name_,
                  line_at(parsed.offset), parsed.description());
    }
    return {};
  }

  bool check_root(const pugi::xml_node& root) {
    const std::string_view name = root.name();
    if (name == "graphs") {
      complain(root,
               "this is a graph dump (NCCL_GRAPH_DUMP_FILE); a topology from "
               "NCCL_TOPO_DUMP_FILE is needed");
    } else if (name != "system") {
      complain(root,
               "the root must be <system version=\"1\">; this is a fragment or another kind "
               "of file");
    } else if (root.attribute("version").empty()) {
      complain(root, "XML topology version not found, 1 needed");
    } else if (const std::string_view version = root.attribute("version").value(); version != "1") {
      complain(root,
               fmt::format("XML topology has wrong version {}, 1 needed{}", version.substr(0, 20),
                           version == "2" ? " (RCCL writes version 2 for AMD GPUs)" : ""));
    }
    return !failed();
  }

  /// An integer attribute in decimal or 0x-hexadecimal.
  std::optional<long> integer(const pugi::xml_node& node, const char* key) {
    const pugi::xml_attribute attribute = node.attribute(key);
    if (attribute.empty()) {
      return std::nullopt;
    }
    std::string_view text = attribute.value();
    int base = 10;
    if (text.starts_with("0x")) {
      text.remove_prefix(2);
      base = 16;
    }
    long value = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (ec != std::errc() || end != text.data() + text.size() || value > 1'000'000'000 ||
        value < -1) {
      complain(node, fmt::format("{}=\"{}\" is not a sensible integer", key, text.substr(0, 40)));
      return std::nullopt;
    }
    return value;
  }

  long required(const pugi::xml_node& node, const char* key) {
    if (node.attribute(key).empty()) {
      complain(node, fmt::format("attribute {} not found", key));
    }
    return integer(node, key).value_or(0);
  }

  double microseconds(const pugi::xml_node& node, const char* key) {
    const double value = node.attribute(key).as_double(0);
    if (!std::isfinite(value) || value < 0 || value > 1e6) {
      complain(node, fmt::format("{}=\"{}\" is no time in microseconds", key,
                                 std::string_view(node.attribute(key).value()).substr(0, 40)));
      return 0;
    }
    return value;
  }

  void complete(const pugi::xml_node& system) {
    const auto gpus = static_cast<std::size_t>(
        std::count_if(bare_.begin(), bare_.end(), [](const BareDevice& one) { return one.gpu; }));
    if (gpus > kMaxTopoGpus || bare_.size() - gpus > kMaxNics) {
      complain(system,
               fmt::format("more than {} GPUs or {} network cards", kMaxTopoGpus, kMaxNics));
      return;
    }
    complete_skeleton(topo_, bare_);
  }

  /// A dump of an NVLink domain holds several hosts; a node type is one.
  bool is_other_host(const pugi::xml_node& cpu) {
    const std::string host = cpu.attribute("host_hash").value();
    if (!host_) {
      host_ = host;
    }
    return *host_ != host;
  }

  /// Abridged files leave every dev out; a single missing one means "not part of the graph".
  static bool no_net_has_dev(const pugi::xml_node& system) {
    const auto has_dev = [](const pugi::xml_node& node) {
      return std::strcmp(node.name(), "net") == 0 && !node.attribute("dev").empty();
    };
    return system.find_node(has_dev).empty();
  }

  void read_cpu(const pugi::xml_node& node) {
    if (topo_.cpus.size() == kMaxCpus) {
      complain(node, fmt::format("more than {} NUMA nodes", kMaxCpus));
      return;
    }
    TopoCpu cpu;
    const auto numa = integer(node, "numaid");
    if (!numa && !failed()) {
      warn_at(node, "numaid not found: numbered in order; NCCL would refuse the file");
    }
    cpu.numa = static_cast<int>(numa.value_or(static_cast<long>(topo_.cpus.size())));
    cpu.arch = node.attribute("arch").value();
    cpu.vendor = node.attribute("vendor").value();
    cpu.cores = bits_in(node.attribute("affinity").value());
    if (cpu.arch.empty()) {
      warn_at(node, "arch not found: the link between NUMA nodes counts as unlimited");
    } else if (cpu.arch.starts_with("x86_64") && cpu.vendor.empty()) {
      warn_at(node, "vendor not found: the link between NUMA nodes counts as unlimited");
    }
    cpu.to_cpu_bytes_per_s =
        bytes_per_s(socket_gbs(cpu.arch, cpu.vendor, integer(node, "familyid").value_or(0),
                               integer(node, "modelid").value_or(0)));
    topo_.cpus.push_back(std::move(cpu));
    read_children(node, -1, 1);
  }

  void read_children(const pugi::xml_node& node, int parent, std::size_t depth) {
    for (const pugi::xml_node child : node.children()) {
      if (failed()) {
        return;
      }
      if (std::strcmp(child.name(), "pci") == 0) {
        read_pci(child, parent, depth);
      } else if (parent < 0 && std::strcmp(child.name(), "nic") == 0) {
        TopoDevice device;
        device.kind = TopoKind::kVirtualNic;
        device.bytes_per_s = bytes_per_s(kLocalGbs);
        if (const auto at = add(child, std::move(device), parent)) {
          read_nic(child, *at);
        }
      }
    }
  }

  std::optional<std::uint32_t> add(const pugi::xml_node& node, TopoDevice device, int parent) {
    if (topo_.devices.size() == kMaxDevices) {
      complain(node, fmt::format("more than {} PCI elements", kMaxDevices));
      return std::nullopt;
    }
    device.cpu = static_cast<std::uint32_t>(topo_.cpus.size() - 1);
    device.parent = parent;
    topo_.devices.push_back(std::move(device));
    return static_cast<std::uint32_t>(topo_.devices.size() - 1);
  }

  void read_pci(const pugi::xml_node& pci, int parent, std::size_t depth) {
    if (depth + 2 > kMaxDepth) {
      complain(pci, fmt::format("nested deeper than {} elements", kMaxDepth));
      return;
    }
    TopoDevice device;
    device.busid = pci.attribute("busid").value();
    if (device.busid.empty()) {
      complain(pci, "attribute busid not found");
      return;
    }
    device.id = bus_number(device.busid);
    const std::string link_speed = pci.attribute("link_speed").value();
    const long width = integer(pci, "link_width").value_or(0);
    if (width < 0 || width > 64) {
      complain(pci, fmt::format("link_width=\"{}\" is no number of lanes", width));
      return;
    }
    device.bytes_per_s = bytes_per_s(pci_gbs(link_speed, width));
    for (const char* key : {"vendor", "device", "subsystem_vendor", "subsystem_device"}) {
      device.model = device.model << 16U |
                     (static_cast<std::uint64_t>(integer(pci, key).value_or(0)) & 0xFFFFU);
    }
    const std::string_view pci_class = pci.attribute("class").value();
    const pugi::xml_node gpu = pci.child("gpu");
    const pugi::xml_node nic = pci.child("nic");
    device.kind = kind_of(pci, pci_class);
    const TopoKind kind = device.kind;
    for (const pugi::xml_node link : pci.children("pcilink")) {
      if (link.attribute("target").empty()) {
        complain(link, "attribute target not found");
        return;
      }
      device.peers.push_back(bus_number(link.attribute("target").value()));
    }
    const auto at = add(pci, std::move(device), parent);
    if (!at || failed()) {
      return;
    }
    if (kind == TopoKind::kGpu) {
      if (!gpu.next_sibling("gpu").empty()) {
        warn_at(gpu, "several in one <pci>: only the first counts");
      }
      if (!nic.empty()) {
        warn_at(nic, "beside a <gpu> in one <pci>: left out");
      }
      read_gpu(pci, gpu, *at);
    } else if (kind == TopoKind::kNic) {
      read_nic(nic, *at);
    } else if (kind == TopoKind::kOther) {
      if (pci_class.starts_with("0x03") || pci_class.starts_with("0x02")) {
        bare_.push_back({*at, pci_class[3] == '3', pci_class.starts_with("0x0302"), link_speed});
      }
    } else {
      read_children(pci, static_cast<int>(*at), depth + 1);
    }
  }

  static TopoKind kind_of(const pugi::xml_node& pci, std::string_view pci_class) {
    if (!pci.child("gpu").empty()) {
      return TopoKind::kGpu;
    }
    if (!pci.child("nic").empty()) {
      return TopoKind::kNic;
    }
    if (pci_class.empty()) {
      return pci.child("pci").empty() ? TopoKind::kUnknown : TopoKind::kBridge;
    }
    const bool described_elsewhere = pci_class.starts_with("0x03") ||
                                     pci_class.starts_with("0x02") ||
                                     pci_class.starts_with("0x0680");
    return described_elsewhere ? TopoKind::kOther : TopoKind::kBridge;
  }

  void read_gpu(const pugi::xml_node& pci, const pugi::xml_node& node, std::uint32_t device) {
    if (node.attribute("rank").empty()) {
      warn_at(node, "without rank: skipped, as NCCL does");
      topo_.devices[device].kind = TopoKind::kOther;
      return;
    }
    TopoGpu gpu;
    gpu.busid = pci.attribute("busid").value();
    if (!gpu_ids_.insert(topo_.devices[device].id).second) {
      warn_at(pci, "a second GPU with this busid is left out");
      topo_.devices[device].kind = TopoKind::kOther;
      return;
    }
    if (topo_.gpus.size() == kMaxTopoGpus) {
      complain(node, fmt::format("more than {} GPUs", kMaxTopoGpus));
      return;
    }
    gpu.device = device;
    gpu.dev = static_cast<int>(required(node, "dev"));
    gpu.sm = static_cast<int>(required(node, "sm"));
    gpu.rank = static_cast<int>(integer(node, "rank").value_or(0));
    if (node.attribute("gdr").empty()) {
      warn_at(node, "gdr not found: GPUDirect RDMA is taken as working");
    }
    gpu.gdr = integer(node, "gdr").value_or(1) != 0;
    for (const pugi::xml_node link : node.children("nvlink")) {
      read_nvlink(link, gpu);
    }
    for (const pugi::xml_node c2c : node.children("c2c")) {
      gpu.c2c_bytes_per_s += static_cast<double>(std::max(0L, required(c2c, "bw"))) *
                             static_cast<double>(std::max(0L, required(c2c, "count"))) / 1000 *
                             kGiga;
    }
    topo_.gpus.push_back(std::move(gpu));
  }

  void read_nvlink(const pugi::xml_node& node, TopoGpu& gpu) {
    const long count = required(node, "count");
    const std::string_view far_end = node.attribute("tclass").value();
    if (far_end.empty()) {
      complain(node, "attribute tclass not found");
    }
    if (failed()) {
      return;
    }
    if (count < 0 || count > 1024) {
      complain(node, "count is out of range");
      return;
    }
    TopoNvlink link;
    link.count = static_cast<std::uint32_t>(count);
    if (far_end.starts_with("0x068001")) {
      link.to = TopoNvlink::To::kCpu;
    } else if (far_end.starts_with("0x03")) {
      link.to = TopoNvlink::To::kGpu;
      if (node.attribute("target").empty()) {
        complain(node, "attribute target not found");
        return;
      }
      link.target = bus_number(node.attribute("target").value());
    } else {
      topo_.nvswitch = true;
    }
    if (++nvlink_rows_ > kMaxNvlinkRows) {
      complain(node, "too many rows");
      return;
    }
    gpu.nvlinks += link.count;
    gpu.links.push_back(link);
  }

  void read_nic(const pugi::xml_node& node, std::uint32_t device) {
    for (const pugi::xml_node net : node.children("net")) {
      TopoNic nic;
      nic.name = net.attribute("name").value();
      if (const auto dev = integer(net, "dev")) {
        nic.dev = static_cast<int>(*dev);
      } else if (number_nets_) {
        nic.dev = static_cast<int>(topo_.nics.size());
      } else if (!failed()) {
        warn_at(net, "without dev: left out, as NCCL does");
        continue;
      }
      if (topo_.nics.size() == kMaxNics) {
        complain(net, fmt::format("more than {} interfaces", kMaxNics));
        return;
      }
      nic.device = device;
      const double speed = static_cast<double>(integer(net, "speed").value_or(0));
      nic.bytes_per_s =
          (speed > 0 ? std::min(speed, kFastestNetMbps) : kDefaultNetMbps) / 8000 * kGiga;
      nic.latency_s = microseconds(net, "latency") * 1e-6;
      nic.port = static_cast<int>(integer(net, "port").value_or(0));
      nic.gdr = integer(net, "gdr").value_or(0) != 0;
      nic.coll = integer(net, "coll").value_or(0) != 0;
      nic.max_channels =
          static_cast<std::uint32_t>(std::max(1L, integer(net, "maxconn").value_or(kMaxChannels)));
      std::string_view guid = net.attribute("guid").value();
      if (guid.starts_with("0x")) {
        guid.remove_prefix(2);
      }
      nic.card = guid.empty() ? static_cast<std::uint64_t>(nic.dev) : bus_number(guid);
      topo_.nics.push_back(std::move(nic));
    }
  }

  /// The narrowest link of the tree up to the CPU.
  [[nodiscard]] double pcie_rate(std::uint32_t device) const {
    double rate = bytes_per_s(kLocalGbs);
    for (int at = static_cast<int>(device); at >= 0;
         at = topo_.devices[static_cast<std::size_t>(at)].parent) {
      rate = std::min(rate, topo_.devices[static_cast<std::size_t>(at)].bytes_per_s);
    }
    return rate;
  }

  void finish() {
    std::stable_sort(topo_.gpus.begin(), topo_.gpus.end(),
                     [](const TopoGpu& a, const TopoGpu& b) { return a.dev < b.dev; });
    drop_one_way_nvlinks(topo_);
    for (TopoGpu& gpu : topo_.gpus) {
      gpu.numa = topo_.cpus[topo_.devices[gpu.device].cpu].numa;
      gpu.pcie_bytes_per_s = pcie_rate(gpu.device);
      gpu.nvlink_bytes_per_s = gpu.nvlinks * bytes_per_s(nvlink_gbs(gpu.sm));
      topo_.nvswitch = topo_.nvswitch ||
                       std::any_of(gpu.links.begin(), gpu.links.end(), [](const TopoNvlink& link) {
                         return link.to == TopoNvlink::To::kSwitch;
                       });
    }
    for (TopoNic& nic : topo_.nics) {
      nic.numa = topo_.cpus[topo_.devices[nic.device].cpu].numa;
    }
    if (other_hosts_ > 0) {
      warn(fmt::format("{} NUMA nodes of other hosts are left out: a node type is one host",
                       other_hosts_));
    }
    if (number_nets_ && !topo_.nics.empty() && topo_.completed.empty()) {
      topo_.completed.push_back("dev of the interfaces: numbered in document order");
    }
    warn_of_oddities(topo_);
  }

  std::string_view text_;
  std::string_view name_;
  pugi::xml_document document_;
  NcclTopo topo_;
  Error error_;
  std::vector<BareDevice> bare_;
  std::set<std::uint64_t> gpu_ids_;
  std::optional<std::string> host_;
  std::size_t other_hosts_ = 0;
  std::size_t nvlink_rows_ = 0;
  bool number_nets_ = false;
};

}  // namespace

Result<NcclTopo> parse_nccl_topo(std::string_view text, std::string_view name) {
  return Reader(text, name).read();
}

Result<std::string> read_topo_text(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int reason = errno;
    return fail(reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: cannot open: {}",
                path, std::strerror(reason));
  }
  std::string text;
  char block[1U << 16U];
  while (text.size() <= kMaxBytes && file.read(block, sizeof block).gcount() > 0) {
    text.append(block, static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) {
    return fail(ErrorCode::kIo, "{}: cannot read: {}", path, std::strerror(errno));
  }
  return text;
}

Result<NcclTopo> load_nccl_topo(const std::string& path) {
  const auto text = read_topo_text(path);
  if (!text) {
    return tl::unexpected<Error>(text.error());
  }
  return parse_nccl_topo(*text, path);
}

}  // namespace tapas::solver
