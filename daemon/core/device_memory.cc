#include "daemon/core/device_memory.h"

#include "daemon/core/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tapas::daemon {
namespace {

// Episodes with less time between them are in a row.
constexpr double kInARowS = 3600.0;

std::string stand_in(const solver::Cluster& cluster, RankId slot) {
  return fmt::format("{}/{}", cluster.nodes[cluster.node_of(slot).value()].name,
                     cluster.device_of(slot));
}

}  // namespace

DeviceMemory::DeviceMemory(std::string job, const solver::Cluster& cluster)
    : job_(std::move(job)), cluster_(cluster) {
  for (std::uint32_t rank = 0; rank < cluster.device_count(); ++rank) {
    seats_.push_back(stand_in(cluster, RankId(rank)));
  }
}

void DeviceMemory::restore(const DeviceRow& row) {
  if (row.episodes == 0) {
    return;
  }
  const auto node = cluster_.find(row.node);
  if (node && row.index < cluster_.type_of(*node).devices) {
    seats_[cluster_.rank_of(*node, row.index).value()] = row.device;
  }
  rows_[row.device] = row;
}

bool DeviceMemory::seat(RankId slot, const std::string& uuid) {
  std::string& seat = seats_[slot.value()];
  if (uuid.empty() || seat == uuid) {
    return false;
  }
  const bool unnamed = seat == stand_in(cluster_, slot);
  const std::string before = std::exchange(seat, uuid);
  if (const auto known = rows_.find(uuid); known != rows_.end()) {
    place(known->second, slot);
    return true;
  }
  if (!unnamed) {
    return true;
  }
  if (const auto found = rows_.find(before); found != rows_.end()) {
    // The same device, known by its name now.
    DeviceRow& named = rows_[uuid] = found->second;
    named.device = uuid;
    found->second = {job_, before, found->second.node, found->second.index};
    changed_.insert({uuid, before});
  }
  return false;
}

void DeviceMemory::place(DeviceRow& row, RankId slot) {
  row.node = cluster_.nodes[cluster_.node_of(slot).value()].name;
  row.index = cluster_.device_of(slot);
  changed_.insert(row.device);
}

const DeviceRow* DeviceMemory::find(RankId slot) const {
  const auto found = rows_.find(device(slot));
  return found == rows_.end() || found->second.episodes == 0 ? nullptr : &found->second;
}

void DeviceMemory::slow(const CoreConfig& config, RankId slot, double slowdown, double since_s) {
  const std::string& device = seats_[slot.value()];
  DeviceRow& row = rows_[device];
  row.job = job_;
  row.device = device;
  place(row, slot);
  if (!row.slow) {
    const double in_a_row_s = std::max(kInARowS, flap_quarantine_s(config, row.episodes));
    if (row.episodes == 0 || since_s - row.until_s > in_a_row_s) {
      row.episodes = 0;
      row.slow_s = 0;
    }
    ++row.episodes;
    row.slow = true;
    row.since_s = since_s;
  }
  row.slowdown = slowdown;
}

void DeviceMemory::well(RankId slot, double now_s) {
  const auto found = rows_.find(device(slot));
  if (found == rows_.end() || !found->second.slow) {
    return;
  }
  DeviceRow& row = found->second;
  row.slow = false;
  row.until_s = now_s;
  row.slow_s += std::max(0.0, now_s - row.since_s);
  changed_.insert(row.device);
}

void DeviceMemory::change(DeviceRow& row, double planned_at) {
  if (std::exchange(row.planned_at, planned_at) != planned_at) {
    changed_.insert(row.device);
  }
}

void DeviceMemory::planned(bool for_what_is_slow) {
  for (const DeviceRow& row : if_planned(for_what_is_slow)) {
    rows_[row.device] = row;
    changed_.insert(row.device);
  }
}

std::vector<DeviceRow> DeviceMemory::if_planned(bool for_what_is_slow) const {
  std::vector<DeviceRow> out;
  for (auto [device, row] : rows_) {
    const double planned_at = for_what_is_slow && row.slow ? row.slowdown : 0;
    if (std::exchange(row.planned_at, planned_at) != planned_at) {
      out.push_back(std::move(row));
    }
  }
  return out;
}

void DeviceMemory::forget_plan(RankId slot) {
  if (const auto found = rows_.find(device(slot)); found != rows_.end()) {
    change(found->second, 0);
  }
}

std::vector<DeviceRow> DeviceMemory::take_changes() {
  std::vector<DeviceRow> out;
  for (const std::string& device : std::exchange(changed_, {})) {
    out.push_back(rows_.at(device));
  }
  return out;
}

}  // namespace tapas::daemon
