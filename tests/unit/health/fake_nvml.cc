// A libnvidia-ml.so.1 of a machine that a test makes up, opened by the real program with dlopen.
// TAPAS_FAKE_NVML holds words "key=number" or "key.GPU=number" (the second wins) and
// "fail.FUNCTION=CODE", "hang.FUNCTION=1", "crash.FUNCTION=1", also with ".GPU"; it crashes when it
// is started more often than "good_starts". Declared here on its own, after NVIDIA's reference, so
// that an error in agent/health/nvml_abi.h shows.
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#define NVML_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;

const std::map<std::string, long long>& scenario() {
  static const std::map<std::string, long long> values = [] {
    std::map<std::string, long long> parsed;
    const char* const text = std::getenv("TAPAS_FAKE_NVML");
    std::istringstream words(text == nullptr ? "" : text);
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      parsed[word.substr(0, equals)] = std::stoll(word.substr(equals + 1), nullptr, 0);
    }
    return parsed;
  }();
  return values;
}

/// A GPU is its index plus one; a MIG instance has 1,000 more for each of its own indices plus one.
struct Device {
  std::uintptr_t handle;
  [[nodiscard]] int gpu() const { return static_cast<int>(handle % 1000) - 1; }
  [[nodiscard]] int instance() const { return static_cast<int>(handle / 1000) - 1; }
};
Device device_of(void* handle) { return {reinterpret_cast<std::uintptr_t>(handle)}; }

long long value(const std::string& key, int gpu, long long otherwise) {
  for (const std::string& name : {key + "." + std::to_string(gpu), key}) {
    if (const auto found = scenario().find(name); found != scenario().end()) {
      return found->second;
    }
  }
  return otherwise;
}

int enter(const char* function, int gpu) {
  const std::string name = function;
  if (value("hang." + name, gpu, 0) != 0) {
    for (;;) {
      pause();
    }
  }
  if (value("crash." + name, gpu, 0) != 0) {
    std::raise(SIGSEGV);
  }
  return static_cast<int>(value("fail." + name, gpu, kSuccess));
}

int give(const char* function, int gpu, unsigned* out, const std::string& key, long long usual) {
  const int status = enter(function, gpu);
  if (status == kSuccess) {
    *out = static_cast<unsigned>(value(key, gpu, usual));
  }
  return status;
}

int give_text(char* out, unsigned size, int gpu, const std::string& text) {
  if (value("endless_text", gpu, 0) != 0) {
    std::memset(out, 'x', size);
    return kSuccess;
  }
  if (text.size() >= size) {
    return kInsufficientSize;
  }
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

/// How often a process of this test has started the library: bytes in TAPAS_FAKE_NVML_STARTS.
long long starts() {
  const char* const path = std::getenv("TAPAS_FAKE_NVML_STARTS");
  if (path == nullptr) {
    return 0;
  }
  std::ofstream(path, std::ios::app) << '.';
  return static_cast<long long>(std::filesystem::file_size(path));
}

bool is_a100() { return value("a100", 0, 0) != 0; }

}  // namespace

NVML_API int nvmlInit_v2() {
  if (starts() > value("good_starts", -1, 1000000)) {
    std::raise(SIGSEGV);
  }
  return enter(__func__, -1);
}
NVML_API const char* nvmlErrorString(int status) {
  switch (status) {
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case 4:
      return "Insufficient Permissions";
    case 9:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}
NVML_API int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return give_text(out, size, -1, "570.86.15");
}
NVML_API int nvmlDeviceGetCount_v2(unsigned* out) { return give(__func__, -1, out, "gpus", 8); }
NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  const int status = enter(__func__, static_cast<int>(index));
  *out = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index) + 1);
  return status;
}

#ifndef OLD_DRIVER
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
NVML_API int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* out) {
#else
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem, reserved[4];
};
NVML_API int nvmlDeviceGetPciInfo_v2(void* handle, PciInfo* out) {
#endif
  const int gpu = device_of(handle).gpu();
  *out = {};
  out->bus = static_cast<unsigned>(value("bus", gpu, 0x1b + gpu));
  return enter("nvmlDeviceGetPciInfo_v3", gpu);
}

NVML_API int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  const Device device = device_of(handle);
  char text[64];
  if (device.instance() < 0) {
    std::snprintf(text, sizeof(text), "GPU-00000000-1111-2222-3333-00000000000%d", device.gpu());
  } else {
    std::snprintf(text, sizeof(text), "MIG-0000000%d-1111-2222-3333-00000000000%d",
                  device.instance(), device.gpu());
  }
  const int status = enter(__func__, device.gpu());
  return status == kSuccess ? give_text(out, size, device.gpu(), text) : status;
}
NVML_API int nvmlDeviceGetName(void* handle, char* out, unsigned size) {
  return give_text(out, size, device_of(handle).gpu(),
                   is_a100() ? "NVIDIA A100-SXM4-80GB" : "NVIDIA H100 80GB HBM3");
}
NVML_API int nvmlDeviceGetClockInfo(void* handle, int clock, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, clock == 1 ? "sm" : "memory",
              clock == 1 ? 1755 : 2619);
}
NVML_API int nvmlDeviceGetMaxClockInfo(void* handle, int clock, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, clock == 1 ? "sm_max" : "memory_max",
              clock == 1 ? 1980 : 2619);
}
#ifndef OLD_DRIVER
NVML_API int nvmlDeviceGetCurrentClocksEventReasons(void* handle, unsigned long long* out) {
#else
NVML_API int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* out) {
#endif
  const int gpu = device_of(handle).gpu();
  *out = static_cast<unsigned long long>(value("throttle", gpu, 0));
  return enter("nvmlDeviceGetCurrentClocksEventReasons", gpu);
}
NVML_API int nvmlDeviceGetTemperature(void* handle, int /*sensor*/, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, "temperature", 45);
}
NVML_API int nvmlDeviceGetTemperatureThreshold(void* handle, int threshold, unsigned* out) {
  if (!is_a100() || threshold != 1) {
    return kNotSupported;  // Since Ada, fields tell it.
  }
  return give(__func__, device_of(handle).gpu(), out, "slowdown", 95);
}
NVML_API int nvmlDeviceGetPowerUsage(void* handle, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, "power", 512345);
}
NVML_API int nvmlDeviceGetEnforcedPowerLimit(void* handle, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, "power_limit", 700000);
}
NVML_API int nvmlDeviceGetEccMode(void* handle, unsigned* now, unsigned* pending) {
  *pending = 1;
  return give(__func__, device_of(handle).gpu(), now, "ecc", 1);
}
NVML_API int nvmlDeviceGetTotalEccErrors(void* handle, int type, int counter,
                                         unsigned long long* out) {
  const int gpu = device_of(handle).gpu();
  // Other counts than those since the driver was loaded are large, to be noticed.
  *out = counter != 0 ? 777777
                      : static_cast<unsigned long long>(
                            value(type == 0 ? "ecc_corrected" : "ecc_uncorrected", gpu, 0));
  return enter(__func__, gpu);
}
NVML_API int nvmlDeviceGetRetiredPagesPendingStatus(void* handle, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, "pages_pending", 0);
}
NVML_API int nvmlDeviceGetNvLinkState(void* handle, unsigned link, unsigned* out) {
  const int gpu = device_of(handle).gpu();
  if (link >= 18) {
    return kInvalidArgument;
  }
  if (link >= static_cast<unsigned>(value("links", gpu, is_a100() ? 12 : 18))) {
    return kNotSupported;
  }
  *out = (value("links_down", gpu, 0) >> link & 1) != 0 ? 0 : 1;
  return enter(__func__, gpu);
}
NVML_API int nvmlDeviceGetNvLinkErrorCounter(void* handle, unsigned link, int counter,
                                             unsigned long long* out) {
  const int gpu = device_of(handle).gpu();
  // The time of day as a counter that grows between any two readings.
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const bool growing = value("errors_on_link", gpu, -1) == static_cast<long long>(link);
  *out = growing && counter == 2 ? static_cast<unsigned long long>(now.tv_sec) * 1000 +
                                       static_cast<unsigned long long>(now.tv_nsec / 1000000)
                                 : 0;
  return enter(__func__, gpu);
}
NVML_API int nvmlDeviceGetCurrPcieLinkGeneration(void* handle, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, "generation", 5);
}
NVML_API int nvmlDeviceGetCurrPcieLinkWidth(void* handle, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, "lanes", 16);
}
NVML_API int nvmlDeviceGetMaxPcieLinkGeneration(void* handle, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, "generation_max", 5);
}
NVML_API int nvmlDeviceGetMaxPcieLinkWidth(void* handle, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, "lanes_max", 16);
}

#ifndef OLD_DRIVER
struct FieldValue {
  unsigned id, scope;
  long long timestamp, latency;
  unsigned type;
  int status;
  union {
    double as_double;
    int as_int;
    unsigned long long as_long;
  } value;
};
NVML_API int nvmlDeviceGetFieldValues(void* handle, int count, FieldValue* out) {
  for (int i = 0; i < count; ++i) {
    out[i].status = out[i].id == 194 ? kSuccess : kNotSupported;
    out[i].type = static_cast<unsigned>(value("field_type", device_of(handle).gpu(), 5));
    out[i].value.as_int = -2;
  }
  return enter(__func__, device_of(handle).gpu());
}
struct Margin {
  unsigned version;
  int celsius;
};
NVML_API int nvmlDeviceGetMarginTemperature(void* handle, Margin* out) {
  if (out->version != 0x1000008) {
    return 25;
  }
  out->celsius = static_cast<int>(value("margin", device_of(handle).gpu(), 42));
  return enter(__func__, device_of(handle).gpu());
}
struct Temperature {
  unsigned version, sensor;
  int celsius;
};
NVML_API int nvmlDeviceGetTemperatureV(void* handle, Temperature* out) {
  if (out->version != 0x100000c) {
    return 25;
  }
  out->celsius = static_cast<int>(value("temperature", device_of(handle).gpu(), 45));
  return enter(__func__, device_of(handle).gpu());
}
NVML_API int nvmlDeviceGetRemappedRows(void* handle, unsigned* corrected, unsigned* uncorrected,
                                       unsigned* pending, unsigned* failed) {
  const int gpu = device_of(handle).gpu();
  *corrected = 0;
  *uncorrected = static_cast<unsigned>(value("rows", gpu, 0));
  *pending = static_cast<unsigned>(value("rows_pending", gpu, 0));
  *failed = static_cast<unsigned>(value("rows_failed", gpu, 0));
  return enter(__func__, gpu);
}
NVML_API int nvmlDeviceGetMigMode(void* handle, unsigned* now, unsigned* pending) {
  *pending = 0;
  return give(__func__, device_of(handle).gpu(), now, "mig", 0);
}
NVML_API int nvmlDeviceGetMaxMigDeviceCount(void* handle, unsigned* out) {
  return give(__func__, device_of(handle).gpu(), out, "mig_places", 7);
}
NVML_API int nvmlDeviceGetMigDeviceHandleByIndex(void* handle, unsigned index, void** out) {
  const int gpu = device_of(handle).gpu();
  if (index % 2 != 0) {
    return kNotFound;  // Instances need not follow one another.
  }
  *out = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(handle) + 1000 * (index + 1));
  return enter(__func__, gpu);
}
#endif
