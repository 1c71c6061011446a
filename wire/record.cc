#include "wire/record.h"

#include <bit>
#include <type_traits>

namespace tapas::wire {

static_assert(std::endian::native == std::endian::little,
              "records are little-endian and copied as they lie in memory");

// Unique representations: no padding, so every byte of a record is a documented field.
template <typename T>
constexpr bool kIsPacked =
    sizeof(T) == kRecordBytes&& std::is_trivially_copyable_v<T>&& std::is_standard_layout_v<
                     T>&& std::has_unique_object_representations_v<T>;
static_assert(kIsPacked<StepRecord>);
static_assert(kIsPacked<LinkRecord>);
static_assert(kIsPacked<HealthRecord>);

static_assert(offsetof(StepRecord, kind) == 0);
static_assert(offsetof(StepRecord, version) == 2);
static_assert(offsetof(StepRecord, flags) == 4);
static_assert(offsetof(StepRecord, job) == 8);
static_assert(offsetof(StepRecord, session) == 16);
static_assert(offsetof(StepRecord, node) == 24);
static_assert(offsetof(StepRecord, epoch) == 32);
static_assert(offsetof(StepRecord, step) == 40);
static_assert(offsetof(StepRecord, end_time_ns) == 48);
static_assert(offsetof(StepRecord, rank) == 56);
static_assert(offsetof(StepRecord, microbatches) == 60);
static_assert(offsetof(StepRecord, device) == 64);
static_assert(offsetof(StepRecord, wall_us) == 80);
static_assert(offsetof(StepRecord, forward_us) == 84);
static_assert(offsetof(StepRecord, backward_us) == 88);
static_assert(offsetof(StepRecord, optimizer_us) == 92);
static_assert(offsetof(StepRecord, tp_collective_us) == 96);
static_assert(offsetof(StepRecord, pp_wait_us) == 100);
static_assert(offsetof(StepRecord, pp_transfer_us) == 104);
static_assert(offsetof(StepRecord, dp_collective_us) == 108);
static_assert(offsetof(StepRecord, bytes_moved) == 112);
static_assert(offsetof(StepRecord, work_tokens) == 120);
static_assert(offsetof(StepRecord, input_wait_us) == 124);

static_assert(offsetof(LinkRecord, kind) == 0);
static_assert(offsetof(LinkRecord, version) == 2);
static_assert(offsetof(LinkRecord, flags) == 4);
static_assert(offsetof(LinkRecord, job) == 8);
static_assert(offsetof(LinkRecord, session) == 16);
static_assert(offsetof(LinkRecord, source_node) == 24);
static_assert(offsetof(LinkRecord, destination_node) == 32);
static_assert(offsetof(LinkRecord, end_time_ns) == 40);
static_assert(offsetof(LinkRecord, bytes) == 48);
static_assert(offsetof(LinkRecord, transfer_us) == 56);
static_assert(offsetof(LinkRecord, rank) == 64);
static_assert(offsetof(LinkRecord, peer_rank) == 68);
static_assert(offsetof(LinkRecord, transfers) == 72);
static_assert(offsetof(LinkRecord, errors) == 76);
static_assert(offsetof(LinkRecord, retransmits) == 80);
static_assert(offsetof(LinkRecord, reserved0) == 84);
static_assert(offsetof(LinkRecord, device) == 88);
static_assert(offsetof(LinkRecord, reserved) == 104);

static_assert(offsetof(HealthRecord, kind) == 0);
static_assert(offsetof(HealthRecord, version) == 2);
static_assert(offsetof(HealthRecord, flags) == 4);
static_assert(offsetof(HealthRecord, job) == 8);
static_assert(offsetof(HealthRecord, session) == 16);
static_assert(offsetof(HealthRecord, node) == 24);
static_assert(offsetof(HealthRecord, time_ns) == 32);
static_assert(offsetof(HealthRecord, rank) == 40);
static_assert(offsetof(HealthRecord, sm_clock_mhz) == 44);
static_assert(offsetof(HealthRecord, memory_clock_mhz) == 48);
static_assert(offsetof(HealthRecord, temperature_mc) == 52);
static_assert(offsetof(HealthRecord, power_mw) == 56);
static_assert(offsetof(HealthRecord, pcie_generation) == 60);
static_assert(offsetof(HealthRecord, throttle_reasons) == 64);
static_assert(offsetof(HealthRecord, ecc_corrected) == 72);
static_assert(offsetof(HealthRecord, ecc_uncorrected) == 80);
static_assert(offsetof(HealthRecord, pcie_width) == 88);
static_assert(offsetof(HealthRecord, fast_links_active) == 92);
static_assert(offsetof(HealthRecord, fast_link_errors) == 96);
static_assert(offsetof(HealthRecord, nic_speed_mbit) == 104);
static_assert(offsetof(HealthRecord, nic_errors) == 108);
static_assert(offsetof(HealthRecord, device) == 112);

}  // namespace tapas::wire
