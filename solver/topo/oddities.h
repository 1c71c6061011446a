#pragma once

#include "solver/topo/nccl_topo.h"

namespace tapas::solver {

/// Takes out NVLinks that only one of their two GPUs lists, with a warning: NCCL finds no way back.
void drop_one_way_nvlinks(NcclTopo& topo);

/// Warns of what can be read but is probably not what the machine is.
void warn_of_oddities(NcclTopo& topo);

}  // namespace tapas::solver
