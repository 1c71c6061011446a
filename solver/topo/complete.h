#pragma once

#include "solver/topo/nccl_topo.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tapas::solver {

/// A PCI element of a GPU or network class that the file says nothing more about.
struct BareDevice {
  std::uint32_t device = 0;  ///< index into NcclTopo::devices
  bool gpu = false;          ///< else a network card
  bool accelerator = false;  ///< 3D controller: a server's GPU, not a display
  std::string link_speed;
};

/// Cloud providers' files list PCI devices only; NCCL finds the rest on the machine. Fills in GPUs,
/// NVLinks and interfaces by the rule of docs/formats.md, and says so in `completed`.
void complete_skeleton(NcclTopo& topo, const std::vector<BareDevice>& bare);

}  // namespace tapas::solver
