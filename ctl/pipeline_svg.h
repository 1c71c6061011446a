#pragma once

#include "solver/cost/breakdown.h"

#include <string>

namespace tapas::ctl {

/// A picture of one replica's step: device groups as rows, time as columns; what runs is coloured,
/// what waits is the row itself. Self-contained, readable on light and dark pages, and bounded: of
/// a long step the beginning, a steady piece and the end are drawn. `title` may be any text.
[[nodiscard]] std::string pipeline_svg(const solver::ReplicaTimeline& timeline,
                                       const std::string& title);

}  // namespace tapas::ctl
