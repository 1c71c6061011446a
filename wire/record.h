#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// The records that ranks and agents write: fixed layout, little-endian, 128 bytes each. The same
/// bytes go from the rank's shared memory through the agent to the daemon. docs/protocol.md has the
/// layouts to the byte; the static_asserts in record.cc hold them. Plain C++ structs: the project
/// builds for little-endian machines only (checked in record.cc).
namespace tapas::wire {

inline constexpr std::size_t kRecordBytes = 128;
inline constexpr std::uint16_t kRecordVersion = 1;

enum class RecordKind : std::uint16_t { kStep = 1, kLink = 2, kHealth = 3 };

/// Bits of StepRecord::flags.
enum StepFlag : std::uint32_t {
  kFirstStep = 1U << 0U,    ///< First steps after a (re)start.
  kCompile = 1U << 1U,      ///< Graph capture or compilation ran in this step.
  kCheckpoint = 1U << 2U,   ///< A checkpoint was written in this step.
  kEvaluation = 1U << 3U,   ///< Evaluation ran in this step.
  kAfterSwitch = 1U << 4U,  ///< First steps under a new epoch.
};
inline constexpr std::uint32_t kKnownStepFlags = 0x1F;

using DeviceUuid = std::array<std::uint8_t, 16>;

/// One training step of one rank. Durations are microseconds and saturate at UINT32_MAX.
struct StepRecord {
  RecordKind kind = RecordKind::kStep;     // 0
  std::uint16_t version = kRecordVersion;  // 2
  std::uint32_t flags = 0;                 // 4   StepFlag bits
  std::uint64_t job = 0;                   // 8   name_hash of the job's name
  std::uint64_t session = 0;               // 16  random per start of the job's processes
  std::uint64_t node = 0;                  // 24  name_hash of the node's name
  std::uint64_t epoch = 0;                 // 32  plan epoch the step ran under
  std::uint64_t step = 0;                  // 40
  std::uint64_t end_time_ns = 0;           // 48  job clock at the end of the step, since 1970
  std::uint32_t rank = 0;                  // 56  device slot of the cluster, see RankId
  std::uint32_t microbatches = 0;          // 60  that this rank computed in the step
  DeviceUuid device = {};                  // 64
  std::uint32_t wall_us = 0;               // 80
  std::uint32_t forward_us = 0;            // 84  compute only, without any wait
  std::uint32_t backward_us = 0;           // 88  compute only, recomputation included
  std::uint32_t optimizer_us = 0;          // 92
  std::uint32_t tp_collective_us = 0;      // 96  waiting for the group's last member included
  std::uint32_t pp_wait_us = 0;            // 100 waiting for neighbours' activations or gradients
  std::uint32_t pp_transfer_us = 0;        // 104 transfers without waiting
  std::uint32_t dp_collective_us = 0;      // 108
  std::uint64_t bytes_moved = 0;           // 112 sent by this rank, all groups
  std::uint32_t work_tokens = 0;           // 120 work hint for packed batches; 0 = not given
  std::uint32_t input_wait_us = 0;         // 124 waiting for the next batch; 0 = none, or not given
};

/// One directed link as seen by its sender over an interval.
struct LinkRecord {
  RecordKind kind = RecordKind::kLink;     // 0
  std::uint16_t version = kRecordVersion;  // 2
  std::uint32_t flags = 0;                 // 4   zero
  std::uint64_t job = 0;                   // 8
  std::uint64_t session = 0;               // 16
  std::uint64_t source_node = 0;           // 24  name_hash
  std::uint64_t destination_node = 0;      // 32  name_hash
  std::uint64_t end_time_ns = 0;           // 40
  std::uint64_t bytes = 0;                 // 48
  std::uint64_t transfer_us = 0;           // 56  without waiting
  std::uint32_t rank = 0;                  // 64  sender
  std::uint32_t peer_rank = 0;             // 68  receiver
  std::uint32_t transfers = 0;             // 72
  std::uint32_t errors = 0;                // 76
  std::uint32_t retransmits = 0;           // 80
  std::uint32_t reserved0 = 0;             // 84
  DeviceUuid device = {};                  // 88
  std::uint64_t reserved[3] = {};          // 104
};

/// A device and its links now.
struct HealthRecord {
  RecordKind kind = RecordKind::kHealth;   // 0
  std::uint16_t version = kRecordVersion;  // 2
  std::uint32_t flags = 0;                 // 4   zero
  std::uint64_t job = 0;                   // 8   0 = no job on the device
  std::uint64_t session = 0;               // 16
  std::uint64_t node = 0;                  // 24  name_hash
  std::uint64_t time_ns = 0;               // 32
  std::uint32_t rank = 0;                  // 40
  std::uint32_t sm_clock_mhz = 0;          // 44
  std::uint32_t memory_clock_mhz = 0;      // 48
  std::int32_t temperature_mc = 0;         // 52  thousandths of a degree Celsius
  std::uint32_t power_mw = 0;              // 56
  std::uint32_t pcie_generation = 0;       // 60
  std::uint64_t throttle_reasons = 0;      // 64  NVML clocks-event-reason bits
  std::uint64_t ecc_corrected = 0;         // 72
  std::uint64_t ecc_uncorrected = 0;       // 80
  std::uint32_t pcie_width = 0;            // 88
  std::uint32_t fast_links_active = 0;     // 92  NVLink or HCCS
  std::uint64_t fast_link_errors = 0;      // 96
  std::uint32_t nic_speed_mbit = 0;        // 104
  std::uint32_t nic_errors = 0;            // 108
  DeviceUuid device = {};                  // 112
};

}  // namespace tapas::wire
