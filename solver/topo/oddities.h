#pragma once

#include "solver/topo/nccl_topo.h"

namespace tapas::solver {

/// Takes out NVLinks that only one of their two GPUs lists, with a warning: NCCL finds no way back.
void drop_one_way_nvlinks(NcclTopo& topo);

/// Takes out interfaces without a PCI device (bridges, containers' ends), with a warning, where
/// there are others: NCCL would use them, but they have no wire of their own.
void leave_out_virtual_nics(NcclTopo& topo);

/// Warns of what can be read but is probably not what the machine is.
void warn_of_oddities(NcclTopo& topo);

}  // namespace tapas::solver
