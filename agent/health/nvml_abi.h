#pragma once

#include <cstddef>
#include <cstdint>

/// The part of NVML's binary interface that is used here, after NVIDIA's NVML API Reference. The
/// library comes with the driver and is opened at run time, so nothing of it is needed to build.
namespace tapas::agent::health::nvml {

/// A handle of a GPU or of a MIG instance; the library alone knows what is behind it.
using Device = struct Opaque*;

/// nvmlReturn_t, as far as somebody here reacts to it.
inline constexpr int kSuccess = 0;
inline constexpr int kInvalidArgument = 2;
inline constexpr int kNotSupported = 3;
inline constexpr int kNotFound = 6;
inline constexpr int kFunctionNotFound = 13;
inline constexpr int kGpuIsLost = 15;

inline constexpr unsigned kClockSm = 1;
inline constexpr unsigned kClockMemory = 2;
inline constexpr unsigned kSensorGpu = 0;
inline constexpr unsigned kThresholdSlowdown = 1;
inline constexpr unsigned kEccCorrected = 0;
inline constexpr unsigned kEccUncorrected = 1;
inline constexpr unsigned kEccVolatile = 0;
inline constexpr unsigned kTextBytes = 96;  ///< The longest name or UUID, its end included.
inline constexpr unsigned kMaxLinks = 36;   ///< NVLinks of a GPU; older libraries know fewer.
inline constexpr std::uint32_t kFieldSlowdownMargin = 194;
inline constexpr std::uint32_t kValueUnsignedInt = 1;
inline constexpr std::uint32_t kValueSignedInt = 5;

/// nvmlPciInfo_t of version 3; version 2 is shorter and has the same first fields.
struct PciInfo {
  char legacy_id[16];
  std::uint32_t domain;
  std::uint32_t bus;
  std::uint32_t device;
  std::uint32_t pci_device;
  std::uint32_t pci_subsystem;
  char id[32];
};
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, domain) == 16);

/// nvmlFieldValue_t. `value` is a union of 8 bytes; `type` tells what is in it.
struct FieldValue {
  std::uint32_t field;
  std::uint32_t scope;
  std::int64_t timestamp_us;
  std::int64_t latency_us;
  std::uint32_t type;
  std::int32_t status;
  union {
    std::uint32_t as_unsigned;
    std::int32_t as_signed;
    std::uint64_t bytes;
  } value;
};
static_assert(sizeof(FieldValue) == 40 && offsetof(FieldValue, type) == 24 &&
              offsetof(FieldValue, value) == 32);

/// The number of a struct's layout: its size, and its version in the highest byte.
template <typename Struct>
constexpr std::uint32_t version_1() {
  return static_cast<std::uint32_t>(sizeof(Struct)) | 1U << 24U;
}

/// nvmlTemperature_v1_t.
struct Temperature {
  std::uint32_t version;
  std::uint32_t sensor;
  std::int32_t celsius;
};
static_assert(version_1<Temperature>() == 0x100000c);

/// nvmlMarginTemperature_v1_t: degrees until the GPU's own limit.
struct Margin {
  std::uint32_t version;
  std::int32_t celsius;
};
static_assert(version_1<Margin>() == 0x1000008);

/// A function of the library and what it takes; all return nvmlReturn_t, an int.
template <typename... Args>
struct Entry {
  const char* name;
  const char* older = nullptr;  ///< The same under its name in older drivers.
};

inline constexpr Entry<> kInit{"nvmlInit_v2"};
inline constexpr Entry<char*, unsigned> kDriverVersion{"nvmlSystemGetDriverVersion"};
inline constexpr Entry<unsigned*> kCount{"nvmlDeviceGetCount_v2"};
inline constexpr Entry<unsigned, Device*> kHandle{"nvmlDeviceGetHandleByIndex_v2"};
inline constexpr Entry<Device, PciInfo*> kPciInfo{"nvmlDeviceGetPciInfo_v3",
                                                  "nvmlDeviceGetPciInfo_v2"};
inline constexpr Entry<Device, char*, unsigned> kUuid{"nvmlDeviceGetUUID"};
inline constexpr Entry<Device, char*, unsigned> kName{"nvmlDeviceGetName"};
inline constexpr Entry<Device, unsigned, unsigned*> kClock{"nvmlDeviceGetClockInfo"};
inline constexpr Entry<Device, unsigned, unsigned*> kMaxClock{"nvmlDeviceGetMaxClockInfo"};
inline constexpr Entry<Device, unsigned long long*> kClocksEventReasons{
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"};
inline constexpr Entry<Device, unsigned, unsigned*> kTemperature{"nvmlDeviceGetTemperature"};
inline constexpr Entry<Device, Temperature*> kTemperatureV{"nvmlDeviceGetTemperatureV"};
inline constexpr Entry<Device, unsigned, unsigned*> kThreshold{"nvmlDeviceGetTemperatureThreshold"};
inline constexpr Entry<Device, Margin*> kMargin{"nvmlDeviceGetMarginTemperature"};
inline constexpr Entry<Device, int, FieldValue*> kFieldValues{"nvmlDeviceGetFieldValues"};
inline constexpr Entry<Device, unsigned*> kPower{"nvmlDeviceGetPowerUsage"};
inline constexpr Entry<Device, unsigned*> kPowerLimit{"nvmlDeviceGetEnforcedPowerLimit"};
inline constexpr Entry<Device, unsigned*, unsigned*> kEccMode{"nvmlDeviceGetEccMode"};
inline constexpr Entry<Device, unsigned, unsigned, unsigned long long*> kEccErrors{
    "nvmlDeviceGetTotalEccErrors"};
inline constexpr Entry<Device, unsigned*, unsigned*, unsigned*, unsigned*> kRemappedRows{
    "nvmlDeviceGetRemappedRows"};
inline constexpr Entry<Device, unsigned*> kRetirementPending{
    "nvmlDeviceGetRetiredPagesPendingStatus"};
inline constexpr Entry<Device, unsigned, unsigned*> kLinkState{"nvmlDeviceGetNvLinkState"};
inline constexpr Entry<Device, unsigned, unsigned, unsigned long long*> kLinkErrors{
    "nvmlDeviceGetNvLinkErrorCounter"};
inline constexpr Entry<Device, unsigned*> kPcieGeneration{"nvmlDeviceGetCurrPcieLinkGeneration"};
inline constexpr Entry<Device, unsigned*> kPcieLanes{"nvmlDeviceGetCurrPcieLinkWidth"};
inline constexpr Entry<Device, unsigned*> kMaxPcieGeneration{"nvmlDeviceGetMaxPcieLinkGeneration"};
inline constexpr Entry<Device, unsigned*> kMaxPcieLanes{"nvmlDeviceGetMaxPcieLinkWidth"};
inline constexpr Entry<Device, unsigned*, unsigned*> kMigMode{"nvmlDeviceGetMigMode"};
inline constexpr Entry<Device, unsigned*> kMaxMigCount{"nvmlDeviceGetMaxMigDeviceCount"};
inline constexpr Entry<Device, unsigned, Device*> kMigHandle{"nvmlDeviceGetMigDeviceHandleByIndex"};

}  // namespace tapas::agent::health::nvml
