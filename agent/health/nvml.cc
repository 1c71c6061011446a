#include "agent/health/nvml.h"

#include "agent/health/formats.h"
#include "agent/health/nvml_abi.h"
#include "agent/health/read_node.h"
#include "base/result.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tapas::agent::health {
namespace {

using namespace nvml;

constexpr unsigned kMaxMhz = 100000;
constexpr unsigned kMaxMilliwatts = 100000000;
constexpr int kMaxCelsius = 1000;
constexpr std::array<double, 6> kGtPerS = {2.5, 5, 8, 16, 32, 64};  // PCIe generations from 1 on.
constexpr std::array<std::string_view, 4> kLinkErrorNames = {"replay", "recovery", "crc_flit",
                                                             "crc_data"};

/// Text of at most `size` bytes; empty when it has no end.
std::optional<std::string> bounded(const char* text, std::size_t size) {
  const std::size_t length = ::strnlen(text, size);
  if (length == size) {
    return std::nullopt;
  }
  std::string copy(text, length);
  std::replace_if(
      copy.begin(), copy.end(), [](char c) { return c < 0x20 || c == 0x7f; }, '?');
  return copy;
}

/// The opened library. It stays open: its threads may run in it.
class Library {
 public:
  static Result<Library> open(const std::string& name) {
    void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const why = ::dlerror();
      return fail(ErrorCode::kNotFound, "{}", why == nullptr ? "cannot be opened" : why);
    }
    return Library(handle);
  }

  template <typename... Args>
  int call(const Entry<Args...>& entry, std::type_identity_t<Args>... args) const {
    void* symbol = ::dlsym(handle_, entry.name);
    if (symbol == nullptr && entry.older != nullptr) {
      symbol = ::dlsym(handle_, entry.older);
    }
    return symbol == nullptr ? kFunctionNotFound
                             : reinterpret_cast<int (*)(Args...)>(symbol)(args...);
  }

  /// Why a call failed, in NVML's own words.
  [[nodiscard]] std::string why(const char* function, int status) const {
    if (status == kFunctionNotFound) {
      return fmt::format("this driver has no {}", function);
    }
    constexpr std::size_t kLongest = 128;
    void* const symbol = ::dlsym(handle_, "nvmlErrorString");
    const char* const words =
        symbol == nullptr ? nullptr : reinterpret_cast<const char* (*)(int)>(symbol)(status);
    const auto text = words == nullptr ? std::nullopt : bounded(words, kLongest);
    return fmt::format("{}: {}", function, text.value_or(fmt::format("error {}", status)));
  }

 private:
  explicit Library(void* handle) : handle_(handle) {}

  void* handle_;
};

/// Asks for one GPU. What it does not tell becomes a gap of it.
class Asker {
 public:
  Asker(const Library& library, const Step& step, unsigned index, PciDevice& out)
      : library_(library), step_(step), index_(index), out_(out) {}

  /// For what an older or newer function may still tell: a failure makes no gap.
  template <typename... Args>
  int quietly(const Entry<Args...>& entry, std::type_identity_t<Args>... args) {
    step_(fmt::format("{} of GPU {}", entry.name, index_));
    const int status = library_.call(entry, args...);
    if (status == kGpuIsLost) {
      out_.lost = library_.why(entry.name, status);
    }
    return status;
  }
  template <typename... Args>
  bool ask(std::string_view what, const Entry<Args...>& entry, std::type_identity_t<Args>... args) {
    const int status = quietly(entry, args...);
    if (status != kSuccess) {
      gap(what, library_.why(entry.name, status));
    }
    return status == kSuccess;
  }

  std::optional<unsigned> number(std::string_view what, unsigned max,
                                 const Entry<Device, unsigned*>& entry, Device device) {
    unsigned value = 0;
    return ask(what, entry, device, &value) ? up_to(what, value, max) : std::nullopt;
  }
  std::optional<unsigned> number(std::string_view what, unsigned max,
                                 const Entry<Device, unsigned, unsigned*>& entry, Device device,
                                 unsigned which) {
    unsigned value = 0;
    return ask(what, entry, device, which, &value) ? up_to(what, value, max) : std::nullopt;
  }
  std::optional<bool> flag(std::string_view what, unsigned value) {
    const auto known = up_to(what, value, 1U);
    return known ? std::optional(*known == 1) : std::nullopt;
  }
  std::optional<std::string> text(std::string_view what,
                                  const Entry<Device, char*, unsigned>& entry, Device device) {
    std::array<char, kTextBytes> buffer = {};
    if (!ask(what, entry, device, buffer.data(), kTextBytes)) {
      return std::nullopt;
    }
    auto text = bounded(buffer.data(), buffer.size());
    if (!text) {
      gap(what, fmt::format("{} gave a text without an end", entry.name));
    }
    return text;
  }
  void gap(std::string_view what, std::string why) {
    out_.gaps.push_back({std::string(what), std::move(why)});
  }
  [[nodiscard]] std::string why(const char* function, int status) const {
    return library_.why(function, status);
  }

 private:
  std::optional<unsigned> up_to(std::string_view what, unsigned value, unsigned max) {
    if (value > max) {
      gap(what, fmt::format("says \"{}\"", value));
      return std::nullopt;
    }
    return value;
  }

  const Library& library_;
  const Step& step_;
  unsigned index_;
  PciDevice& out_;
};

void read_clocks(Asker& in, Device device, Gpu& gpu) {
  gpu.sm_mhz = in.number("sm_mhz", kMaxMhz, kClock, device, kClockSm);
  gpu.sm_max_mhz = in.number("sm_max_mhz", kMaxMhz, kMaxClock, device, kClockSm);
  gpu.memory_mhz = in.number("memory_mhz", kMaxMhz, kClock, device, kClockMemory);
  gpu.memory_max_mhz = in.number("memory_max_mhz", kMaxMhz, kMaxClock, device, kClockMemory);
  unsigned long long reasons = 0;
  if (in.ask("throttle_reasons", kClocksEventReasons, device, &reasons)) {
    gpu.throttle_bits = reasons;
  }
  gpu.power_mw = in.number("power_mw", kMaxMilliwatts, kPower, device);
  gpu.power_limit_mw = in.number("power_limit_mw", kMaxMilliwatts, kPowerLimit, device);
}

std::optional<int> sane_celsius(Asker& in, std::string_view what, std::int64_t celsius) {
  if (celsius < -kMaxCelsius || celsius > kMaxCelsius) {
    in.gap(what, fmt::format("says \"{}\"", celsius));
    return std::nullopt;
  }
  return static_cast<int>(celsius);
}

/// GPUs up to Ampere tell the temperature at which they slow down; since Ada they tell how far
/// they are from their own limit, and how far from it they slow down.
std::optional<int> read_to_slowdown(Asker& in, Device device, std::optional<int> celsius) {
  constexpr std::string_view kWhat = "to_slowdown_c";
  unsigned threshold = 0;
  if (celsius && in.quietly(kThreshold, device, kThresholdSlowdown, &threshold) == kSuccess) {
    return sane_celsius(in, kWhat, std::int64_t{threshold} - *celsius);
  }
  Margin margin = {version_1<Margin>(), 0};
  FieldValue slowdown = {};
  slowdown.field = kFieldSlowdownMargin;
  if (!in.ask(kWhat, kMargin, device, &margin) ||
      !in.ask(kWhat, kFieldValues, device, 1, &slowdown)) {
    return std::nullopt;
  }
  if (slowdown.status != kSuccess) {
    in.gap(kWhat, in.why(kFieldValues.name, slowdown.status));
    return std::nullopt;
  }
  if (slowdown.type != kValueSignedInt && slowdown.type != kValueUnsignedInt) {
    in.gap(kWhat, fmt::format("is of a type {} that is not known here", slowdown.type));
    return std::nullopt;
  }
  const std::int64_t at = slowdown.type == kValueSignedInt
                              ? std::int64_t{slowdown.value.as_signed}
                              : std::int64_t{slowdown.value.as_unsigned};
  return sane_celsius(in, kWhat, margin.celsius - at);
}

void read_temperature(Asker& in, Device device, Gpu& gpu) {
  constexpr std::string_view kWhat = "temperature_c";
  Temperature reading = {version_1<Temperature>(), kSensorGpu, 0};
  unsigned celsius = 0;
  if (in.quietly(kTemperatureV, device, &reading) == kSuccess) {
    gpu.temperature_c = sane_celsius(in, kWhat, reading.celsius);
  } else if (in.ask(kWhat, kTemperature, device, kSensorGpu, &celsius)) {
    gpu.temperature_c = sane_celsius(in, kWhat, celsius);
  }
  gpu.to_slowdown_c = read_to_slowdown(in, device, gpu.temperature_c);
}

void read_memory(Asker& in, Device device, PciDevice& out, Gpu& gpu) {
  unsigned now = 0;
  unsigned pending = 0;
  if (in.ask("ecc", kEccMode, device, &now, &pending)) {
    gpu.ecc = in.flag("ecc", now);
  }
  unsigned long long count = 0;
  if (in.ask("ecc_corrected", kEccErrors, device, kEccCorrected, kEccVolatile, &count)) {
    out.counters["ecc_corrected"] = count;
  }
  if (in.ask("ecc_uncorrected", kEccErrors, device, kEccUncorrected, kEccVolatile, &count)) {
    out.counters["ecc_uncorrected"] = count;
  }
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned failed = 0;
  const int remapped =
      in.quietly(kRemappedRows, device, &corrected, &uncorrected, &pending, &failed);
  if (remapped == kSuccess) {
    out.counters["rows_remapped_corrected"] = corrected;
    out.counters["rows_remapped_uncorrected"] = uncorrected;
    gpu.repair_pending = in.flag("repair_pending", pending);
    gpu.repair_failed = in.flag("repair_failed", failed);
    return;
  }
  in.gap("repair_failed", in.why(kRemappedRows.name, remapped));
  if (in.ask("repair_pending", kRetirementPending, device, &pending)) {
    gpu.repair_pending = in.flag("repair_pending", pending);
  }
}

/// Error counters of links that are up; a gap for all links together.
void read_link_errors(Asker& in, Device device, PciDevice& out, const Gpu& gpu) {
  for (unsigned kind = 0; kind < kLinkErrorNames.size(); ++kind) {
    int failed = kSuccess;
    for (const NvLink& link : gpu.nvlinks) {
      unsigned long long count = 0;
      if (!link.active) {
        continue;
      }
      const int status = in.quietly(kLinkErrors, device, link.link, kind, &count);
      if (status == kSuccess) {
        out.counters[fmt::format("nvlink{}_{}", link.link, kLinkErrorNames[kind])] = count;
      } else {
        failed = status;
      }
    }
    if (failed != kSuccess) {
      in.gap(fmt::format("nvlink_{}", kLinkErrorNames[kind]), in.why(kLinkErrors.name, failed));
    }
  }
}

void read_nvlinks(Asker& in, Device device, PciDevice& out, Gpu& gpu) {
  int first = kSuccess;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    unsigned active = 0;
    const int status = in.quietly(kLinkState, device, link, &active);
    first = link == 0 ? status : first;
    if (status == kInvalidArgument || status == kFunctionNotFound || status == kGpuIsLost) {
      break;  // Beyond the links that the library knows, or no other link will answer.
    }
    if (status == kNotSupported) {
      continue;  // Not every number has a link behind it.
    }
    const std::string what = fmt::format("nvlink{}", link);
    if (status != kSuccess) {
      in.gap(what, in.why(kLinkState.name, status));
    } else if (const auto up = in.flag(what, active)) {
      gpu.nvlinks.push_back({link, *up});
    }
  }
  if (gpu.nvlinks.empty() && first != kSuccess) {
    in.gap("nvlinks", in.why(kLinkState.name, first));
  }
  read_link_errors(in, device, out, gpu);
}

PcieLink read_link(Asker& in, Device device, std::string_view what,
                   const Entry<Device, unsigned*>& generation,
                   const Entry<Device, unsigned*>& lanes) {
  PcieLink link;
  const auto number = in.number(what, kGtPerS.size(), generation, device);
  if (number && *number > 0) {
    link.gt_per_s = kGtPerS[*number - 1];
  } else if (number) {
    in.gap(what, "says generation 0");
  }
  if (const auto width = in.number(what, ~0U, lanes, device)) {
    link.lanes = parse_lanes(fmt::format("{}", *width));
    if (!link.lanes) {
      in.gap(what, fmt::format("says {} lanes", *width));
    }
  }
  return link;
}

void read_mig(Asker& in, Device device, Gpu& gpu) {
  constexpr std::string_view kWhat = "mig_uuids";
  unsigned now = 0;
  unsigned pending = 0;
  if (in.ask("mig", kMigMode, device, &now, &pending)) {
    gpu.mig = in.flag("mig", now);
  }
  if (gpu.mig != true) {
    return;
  }
  const auto count = in.number(kWhat, kMaxMigInstances, kMaxMigCount, device);
  for (unsigned i = 0; i < count.value_or(0); ++i) {
    Device instance = nullptr;
    const int status = in.quietly(kMigHandle, device, i, &instance);
    if (status == kNotFound) {
      continue;  // A place without an instance.
    }
    if (status != kSuccess) {
      in.gap(kWhat, in.why(kMigHandle.name, status));
    } else if (auto uuid = in.text(kWhat, kUuid, instance)) {
      gpu.mig_uuids.push_back(*std::move(uuid));
    }
  }
}

PciDevice read_gpu(const Library& library, const Step& step, unsigned index) {
  PciDevice out;
  out.kind = PciKind::kGpu;
  out.name = fmt::format("nvml/{}", index);
  Gpu gpu;
  gpu.index = index;
  Asker in(library, step, index, out);
  Device device = nullptr;
  out.read_at = std::chrono::steady_clock::now();
  if (in.ask("nvml", kHandle, index, &device)) {
    PciInfo pci = {};
    if (in.ask("pci", kPciInfo, device, &pci)) {
      out.name = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
    }
    gpu.uuid = in.text("uuid", kUuid, device);
    gpu.model = in.text("model", kName, device);
    read_clocks(in, device, gpu);
    read_temperature(in, device, gpu);
    read_memory(in, device, out, gpu);
    read_nvlinks(in, device, out, gpu);
    gpu.now = read_link(in, device, "pcie", kPcieGeneration, kPcieLanes);
    gpu.max = read_link(in, device, "pcie_max", kMaxPcieGeneration, kMaxPcieLanes);
    read_mig(in, device, gpu);
  }
  out.gpu = std::move(gpu);
  return out;
}

template <typename T>
void fill(std::optional<T>& unknown, const std::optional<T>& known) {
  unknown = unknown ? unknown : known;
}

void add_gpu(PciDevice& device, PciDevice nvml) {
  fill(device.now.gt_per_s, nvml.gpu->now.gt_per_s);
  fill(device.now.lanes, nvml.gpu->now.lanes);
  fill(device.max.gt_per_s, nvml.gpu->max.gt_per_s);
  fill(device.max.lanes, nvml.gpu->max.lanes);
  device.lost = device.lost.empty() ? nvml.lost : device.lost;
  device.counters.merge(nvml.counters);
  device.gaps.insert(device.gaps.end(), nvml.gaps.begin(), nvml.gaps.end());
  device.gpu = std::move(nvml.gpu);
}

}  // namespace

NodeHealth read_nvml(const std::string& library_name, const Step& step) {
  NodeHealth node;
  const auto gap = [&node](std::string why) { node.gaps.push_back({"nvml", std::move(why)}); };
  step("opening " + library_name);
  const auto library = Library::open(library_name);
  if (!library) {
    gap(library.error().message);
    return node;
  }
  step(kInit.name);
  if (const int status = library->call(kInit); status != kSuccess) {
    gap(library->why(kInit.name, status));
    return node;
  }
  step(kDriverVersion.name);
  std::array<char, kTextBytes> version = {};
  if (library->call(kDriverVersion, version.data(), kTextBytes) == kSuccess) {
    node.driver = bounded(version.data(), version.size());
  }
  step(kCount.name);
  unsigned count = 0;
  if (const int status = library->call(kCount, &count); status != kSuccess) {
    gap(library->why(kCount.name, status));
    return node;
  }
  if (count > kMaxDevices) {
    gap(fmt::format("says there are {} GPUs, only the first {} were asked for", count,
                    kMaxDevices));
    count = kMaxDevices;
  }
  for (unsigned i = 0; i < count; ++i) {
    node.pci.push_back(read_gpu(*library, step, i));
  }
  return node;
}

void join(NodeHealth& node, NodeHealth nvml) {
  const bool all_told = nvml.gaps.empty();
  for (PciDevice& gpu : nvml.pci) {
    const auto same = std::find_if(node.pci.begin(), node.pci.end(),
                                   [&](const PciDevice& one) { return one.name == gpu.name; });
    if (same != node.pci.end()) {
      add_gpu(*same, std::move(gpu));
    } else if (node.pci.size() < kMaxDevices) {
      PciDevice device = gpu;
      device.counters.clear();
      device.gaps = {{"sysfs", "this GPU was not seen in /sys"}};
      add_gpu(device, std::move(gpu));
      node.pci.push_back(std::move(device));
    }
  }
  for (PciDevice& device : node.pci) {
    if (all_told && device.kind == PciKind::kGpu && device.vendor == kNvidia && !device.gpu) {
      device.gaps.push_back({"nvml", "NVML does not list this GPU"});
    }
  }
  node.driver = std::move(nvml.driver);
  node.gaps.insert(node.gaps.end(), nvml.gaps.begin(), nvml.gaps.end());
}

}  // namespace tapas::agent::health
