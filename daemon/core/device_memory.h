#pragma once

#include "base/ids.h"
#include "daemon/core/core_config.h"
#include "daemon/core/event.h"
#include "solver/model/cluster.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace tapas::daemon {

/// What is held against the devices of a job's cluster. It belongs to the device, not to the slot
/// or the rank's number: a device that moves takes it along, one that is new starts clean.
class DeviceMemory {
 public:
  /// `cluster` must live as long.
  DeviceMemory(std::string job, const solver::Cluster& cluster);

  void restore(const DeviceRow& row);

  /// The device with this UUID sits in the slot. True when that is another one than before.
  bool seat(RankId slot, const std::string& uuid);
  /// UUID or stand-in of the device in the slot.
  [[nodiscard]] const std::string& device(RankId slot) const { return seats_[slot.value()]; }
  /// Null when nothing is held against the device in the slot.
  [[nodiscard]] const DeviceRow* find(RankId slot) const;

  /// An episode begins, or its level is another one.
  void slow(const CoreConfig& config, RankId slot, double slowdown, double since_s);
  void well(RankId slot, double now_s);
  /// There is another plan, made for what is slow now or not.
  void planned(bool for_what_is_slow);
  /// The rows that would change by that.
  [[nodiscard]] std::vector<DeviceRow> if_planned(bool for_what_is_slow) const;
  /// It is as good as one that was made for the device being well.
  void forget_plan(RankId slot);

  /// What is not written down yet.
  [[nodiscard]] std::vector<DeviceRow> take_changes();

 private:
  void place(DeviceRow& row, RankId slot);
  void change(DeviceRow& row, double planned_at);

  std::string job_;
  const solver::Cluster& cluster_;
  std::vector<std::string> seats_;  ///< per RankId
  std::map<std::string, DeviceRow> rows_;
  std::set<std::string> changed_;
};

}  // namespace tapas::daemon
