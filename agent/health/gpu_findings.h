#pragma once

#include "agent/health/findings.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace tapas::agent::health {

/// What is wrong in what NVML tells of the GPUs of a node.
class GpuFindings {
 public:
  /// `now` and `rates` must outlive this.
  GpuFindings(const NodeHealth& now, const Rates& rates);

  /// Adds the device's to `found`; none when NVML does not tell of it.
  void add(const PciDevice& device, std::vector<Finding>& found) const;

 private:
  /// Links that are down and should not be.
  [[nodiscard]] std::vector<unsigned> down(const Gpu& gpu) const;
  [[nodiscard]] std::vector<std::string> grown_links(const PciDevice& device) const;

  const Rates& rates_;
  struct Model {
    unsigned gpus = 0;      ///< Whose links are known and used.
    std::set<unsigned> up;  ///< Links that are up in any of them.
  };
  std::map<std::string, Model> models_;
};

}  // namespace tapas::agent::health
