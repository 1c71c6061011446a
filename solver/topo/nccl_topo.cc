#include "solver/topo/nccl_topo.h"

#include <pugixml.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tapas::solver {

namespace {

constexpr std::size_t kMaxBytes = 16U << 20U;
constexpr std::size_t kMaxElements = 65'536;
constexpr std::size_t kMaxDepth = 64;
constexpr double kGiga = 1e9;
constexpr double kDefaultNetMbps = 10'000;  // NCCL: speed missing or not positive
constexpr double kFastestNetMbps = 1e8;

/// A link of the PCI tree on the way from the CPU down to a device.
struct PciHop {
  std::uint32_t bridge = 0;  ///< number of the pci element below the link
  double bytes_per_s = 0;
};

struct Socket {
  int numa = -1;
  double to_other_bytes_per_s = 0;
};

struct Place {
  std::size_t socket = 0;
  std::vector<PciHop> path;  ///< from the CPU down, the device's own element last
};

/// GB/s of a PCI link from NCCL's table; matched by prefix, anything else counts as Gen3 x16.
double pci_bytes_per_s(std::string_view speed, long width) {
  struct Row {
    std::string_view text;
    double per_lane_100mbps;
  };
  static constexpr Row kRows[] = {
      {"2.5 GT/s", 15},        {"5 GT/s", 30},          {"8 GT/s", 60},
      {"16 GT/s", 120},        {"32 GT/s", 240},        {"5.0 GT/s PCIe", 30},
      {"8.0 GT/s PCIe", 60},   {"16.0 GT/s PCIe", 120}, {"32.0 GT/s PCIe", 240},
      {"64.0 GT/s PCIe", 480},
  };
  double per_lane = 60;
  for (const Row& row : kRows) {
    if (speed.substr(0, row.text.size()) == row.text) {
      per_lane = row.per_lane_100mbps;
    }
  }
  return static_cast<double>(width <= 0 ? 16 : width) * per_lane / 80 * kGiga;
}

/// About four fifths of the wire speed, as NCCL counts it per generation.
double nvlink_bytes_per_s(int sm) {
  if (sm >= 100) {
    return 40.1 * kGiga;
  }
  switch (sm) {
    case 60:
      return 18.0 * kGiga;
    case 86:
      return 12.0 * kGiga;
    case 90:
      return 20.6 * kGiga;
    default:
      return 20.0 * kGiga;
  }
}

double socket_bytes_per_s(std::string_view arch, std::string_view vendor, long model) {
  if (arch.starts_with("arm64")) {
    return 6 * kGiga;
  }
  if (arch.starts_with("ppc64")) {
    return 32 * kGiga;
  }
  if (vendor == "AuthenticAMD") {
    return 16 * kGiga;
  }
  if (vendor == "GenuineIntel") {
    return (model >= 0xCF ? 40 : model >= 0x8F ? 22 : model >= 0x55 ? 10 : 6) * kGiga;
  }
  return vendor == "CentaurHauls" || vendor == "  Shanghai  " ? 6 * kGiga : 5000 * kGiga;
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
    for (const pugi::xml_node cpu : system.children("cpu")) {
      read_cpu(cpu);
    }
    if (failed()) {
      return tl::unexpected<Error>(error_);
    }
    if (topo_.gpus.empty()) {
      return fail(
          ErrorCode::kInvalid,
          "{}: no GPU found: neither <gpu> elements nor PCI devices of class 0x03; dump the "
          "topology from a running job with NCCL_TOPO_DUMP_FILE",
          name_);
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
    constexpr std::size_t kMostWarnings = 32;
    if (topo_.warnings.size() < kMostWarnings) {
      topo_.warnings.push_back(std::move(message));
    }
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
      return fail(ErrorCode::kInvalid, "{}: line {}: {}; the file is damaged or cut off", name_,
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

  void read_cpu(const pugi::xml_node& cpu) {
    Socket socket;
    socket.numa = static_cast<int>(integer(cpu, "numaid").value_or(-1));
    socket.to_other_bytes_per_s =
        socket_bytes_per_s(cpu.attribute("arch").value(), cpu.attribute("vendor").value(),
                           integer(cpu, "modelid").value_or(0));
    sockets_.push_back(socket);
    Place place{sockets_.size() - 1, {}};
    for (const pugi::xml_node child : cpu.children()) {
      if (std::string_view(child.name()) == "pci") {
        read_pci(child, place);
      } else if (std::string_view(child.name()) == "nic") {
        read_nic(child, place);
      }
    }
  }

  void read_pci(const pugi::xml_node& pci, Place& place) {
    if (failed()) {
      return;
    }
    if (place.path.size() + 2 > kMaxDepth) {
      complain(pci, fmt::format("nested deeper than {} elements", kMaxDepth));
      return;
    }
    place.path.push_back({next_bridge_++, pci_bytes_per_s(pci.attribute("link_speed").value(),
                                                          integer(pci, "link_width").value_or(0))});
    const std::string_view pci_class = pci.attribute("class").value();
    const pugi::xml_node gpu = pci.child("gpu");
    const pugi::xml_node nic = pci.child("nic");
    if (!gpu.empty()) {
      if (!gpu.next_sibling("gpu").empty()) {
        warn(fmt::format("line {}: several <gpu> in one <pci>: only the first counts",
                         line_at(gpu.offset_debug())));
      }
      read_gpu(pci, gpu, place);
    } else if (pci_class.starts_with("0x03")) {
      infer_gpu(pci, place);
    }
    if (!nic.empty()) {
      read_nic(nic, place);
    } else if (pci_class.starts_with("0x02")) {
      infer_nic(pci, place);
    }
    for (const pugi::xml_node child : pci.children("pci")) {
      read_pci(child, place);
    }
    place.path.pop_back();
  }

  static double narrowest(const std::vector<PciHop>& path, std::size_t from) {
    double rate = 5000 * kGiga;  // NCCL's figure for what is on one device
    for (std::size_t i = from; i < path.size(); ++i) {
      rate = std::min(rate, path[i].bytes_per_s);
    }
    return rate;
  }

  void add_gpu(TopoGpu gpu, const Place& place) {
    gpu.numa = sockets_[place.socket].numa;
    gpu.pcie_bytes_per_s = narrowest(place.path, 0);
    topo_.gpus.push_back(std::move(gpu));
    gpu_places_.push_back(place);
  }

  void read_gpu(const pugi::xml_node& pci, const pugi::xml_node& node, const Place& place) {
    if (node.attribute("rank").empty()) {
      warn(fmt::format("line {}: <gpu> without rank is skipped, as NCCL does",
                       line_at(node.offset_debug())));
      return;
    }
    TopoGpu gpu;
    gpu.busid = pci.attribute("busid").value();
    gpu.dev = static_cast<int>(required(node, "dev"));
    gpu.sm = static_cast<int>(required(node, "sm"));
    for (const pugi::xml_node link : node.children("nvlink")) {
      const long count = required(link, "count");
      const std::string_view far_end = link.attribute("tclass").value();
      if (failed() || count < 0 || count > 1024) {
        complain(link, "count is out of range");
        return;
      }
      if (far_end.starts_with("0x068000")) {
        topo_.nvswitch = true;
      } else if (far_end.starts_with("0x03")) {
        links_to_gpus_.insert(link.attribute("target").value());
      }
      gpu.nvlinks += static_cast<std::uint32_t>(count);
    }
    gpu.nvlink_bytes_per_s = gpu.nvlinks * nvlink_bytes_per_s(gpu.sm);
    add_gpu(std::move(gpu), place);
  }

  void infer_gpu(const pugi::xml_node& pci, const Place& place) {
    TopoGpu gpu;
    gpu.busid = pci.attribute("busid").value();
    gpu.dev = static_cast<int>(topo_.gpus.size());
    inferred_ = true;
    add_gpu(std::move(gpu), place);
  }

  void add_nic(TopoNic nic, const Place& place) {
    nic.numa = sockets_[place.socket].numa;
    topo_.nics.push_back(std::move(nic));
    nic_places_.push_back(place);
  }

  void read_nic(const pugi::xml_node& node, const Place& place) {
    for (const pugi::xml_node net : node.children("net")) {
      if (net.attribute("dev").empty()) {
        warn(fmt::format("line {}: <net> without dev is left out, as NCCL does",
                         line_at(net.offset_debug())));
        continue;
      }
      TopoNic nic;
      nic.name = net.attribute("name").value();
      // A dump fused from several NUMA nodes repeats virtual interfaces with name and dev
      // unchanged.
      if (!seen_nets_.emplace(nic.name, net.attribute("dev").value()).second) {
        continue;
      }
      const double speed = static_cast<double>(integer(net, "speed").value_or(0));
      nic.bytes_per_s =
          (speed > 0 ? std::min(speed, kFastestNetMbps) : kDefaultNetMbps) / 8000 * kGiga;
      add_nic(std::move(nic), place);
    }
  }

  void infer_nic(const pugi::xml_node& pci, const Place& place) {
    TopoNic nic;
    nic.name = pci.attribute("busid").value();
    nic.bytes_per_s = kDefaultNetMbps / 8000 * kGiga;
    inferred_ = true;
    add_nic(std::move(nic), place);
  }

  /// Interfaces without a PCI device are virtual; they count only where there is nothing else.
  void drop_virtual_nics() {
    const auto physical = [](const Place& place) { return !place.path.empty(); };
    if (std::none_of(nic_places_.begin(), nic_places_.end(), physical)) {
      return;
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < topo_.nics.size(); ++i) {
      if (physical(nic_places_[i])) {
        std::swap(topo_.nics[kept], topo_.nics[i]);
        std::swap(nic_places_[kept], nic_places_[i]);
        ++kept;
      }
    }
    if (kept < topo_.nics.size()) {
      warn(fmt::format("{} interfaces without a PCI device are left out as virtual",
                       topo_.nics.size() - kept));
    }
    topo_.nics.resize(kept);
    nic_places_.resize(kept);
  }

  void sort_gpus() {
    std::vector<std::size_t> order(topo_.gpus.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return topo_.gpus[a].dev < topo_.gpus[b].dev;
    });
    std::vector<TopoGpu> gpus;
    std::vector<Place> places;
    for (const std::size_t i : order) {
      gpus.push_back(std::move(topo_.gpus[i]));
      places.push_back(std::move(gpu_places_[i]));
    }
    topo_.gpus = std::move(gpus);
    gpu_places_ = std::move(places);
  }

  /// NCCL's order: highest bandwidth of the path, then the closer kind of path.
  struct PathRank {
    double bytes_per_s = 0;
    int kind = 0;
    friend bool operator==(const PathRank&, const PathRank&) = default;
  };

  static std::size_t common_bridges(const Place& a, const Place& b) {
    std::size_t common = 0;
    while (a.socket == b.socket && common < a.path.size() && common < b.path.size() &&
           a.path[common].bridge == b.path[common].bridge) {
      ++common;
    }
    return common;
  }

  [[nodiscard]] PathRank rank_path(std::size_t gpu, std::size_t nic) const {
    enum Kind { kOneBridge = 4, kSeveralBridges = 5, kThroughCpu = 8, kAcrossSockets = 9 };
    const Place& a = gpu_places_[gpu];
    const Place& b = nic_places_[nic];
    const std::size_t common = common_bridges(a, b);
    PathRank rank;
    rank.bytes_per_s = std::min(
        {topo_.nics[nic].bytes_per_s, narrowest(a.path, common), narrowest(b.path, common)});
    if (a.socket != b.socket) {
      rank.kind = kAcrossSockets;
      rank.bytes_per_s = std::min({rank.bytes_per_s, sockets_[a.socket].to_other_bytes_per_s,
                                   sockets_[b.socket].to_other_bytes_per_s});
    } else if (common == 0) {
      rank.kind = kThroughCpu;
    } else {
      rank.kind =
          common + 1 == a.path.size() && common + 1 == b.path.size() ? kOneBridge : kSeveralBridges;
    }
    return rank;
  }

  void find_nearest_nics() {
    topo_.nics_of_gpu.resize(topo_.gpus.size());
    for (std::size_t gpu = 0; gpu < topo_.gpus.size(); ++gpu) {
      PathRank best;
      for (std::size_t nic = 0; nic < topo_.nics.size(); ++nic) {
        if (common_bridges(gpu_places_[gpu], nic_places_[nic]) > 0) {
          topo_.nics[nic].behind_switch = true;
        }
        const PathRank rank = rank_path(gpu, nic);
        const bool better = topo_.nics_of_gpu[gpu].empty() || rank.bytes_per_s > best.bytes_per_s ||
                            (rank.bytes_per_s == best.bytes_per_s && rank.kind < best.kind);
        if (better) {
          best = rank;
          topo_.nics_of_gpu[gpu].assign(1, static_cast<std::uint32_t>(nic));
        } else if (rank == best) {
          topo_.nics_of_gpu[gpu].push_back(static_cast<std::uint32_t>(nic));
        }
      }
    }
  }

  void finish() {
    sort_gpus();
    drop_virtual_nics();
    find_nearest_nics();
    if (inferred_) {
      warn("devices were inferred from PCI classes: NVLink and NIC speeds are not in the file");
    }
    std::set<std::string_view> busids;
    std::size_t without_nvlink = 0;
    for (const TopoGpu& gpu : topo_.gpus) {
      busids.insert(gpu.busid);
      without_nvlink += gpu.nvlinks == 0 ? 1U : 0U;
      if (gpu.pcie_bytes_per_s < kGiga) {
        warn(fmt::format("GPU {}: a PCIe link of {:.2f} GB/s; virtual bridges report no real speed",
                         gpu.dev, gpu.pcie_bytes_per_s / kGiga));
      }
    }
    if (without_nvlink > 0 && topo_.gpus.size() > 1) {
      warn(
          fmt::format("{} of {} GPUs list no NVLink: links between them count as PCIe, which is "
                      "wrong for boards with NVSwitch",
                      without_nvlink, topo_.gpus.size()));
    }
    for (const std::string& target : links_to_gpus_) {
      if (!busids.contains(target)) {
        warn(fmt::format("an NVLink leads to {}, which is not in the file", target));
      }
    }
    if (topo_.nics.empty()) {
      warn("no NIC in the file");
    }
  }

  std::string_view text_;
  std::string_view name_;
  pugi::xml_document document_;
  NcclTopo topo_;
  Error error_;
  std::vector<Socket> sockets_;
  std::vector<Place> gpu_places_;  ///< as topo_.gpus
  std::vector<Place> nic_places_;  ///< as topo_.nics
  std::set<std::pair<std::string, std::string>> seen_nets_;
  std::set<std::string> links_to_gpus_;
  std::uint32_t next_bridge_ = 0;
  bool inferred_ = false;
};

}  // namespace

Result<NcclTopo> parse_nccl_topo(std::string_view text, std::string_view name) {
  return Reader(text, name).read();
}

Result<NcclTopo> load_nccl_topo(const std::string& path) {
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
  return parse_nccl_topo(text, path);
}

}  // namespace tapas::solver
