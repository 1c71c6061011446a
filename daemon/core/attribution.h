#pragma once

#include "base/ids.h"
#include "daemon/core/roles.h"
#include "daemon/core/watch.h"
#include "solver/model/cluster.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tapas::daemon {

enum class Cause : std::uint8_t {
  kNothing,     ///< the alarm did not hold
  kDevice,      ///< one or some devices of a node
  kHost,        ///< most devices of a node slow alike
  kHeavyStage,  ///< all nodes of a stage: the work, not the hardware
  kJobWide,     ///< the step is slower, but no rank's compute stands out
  kUnknown,
};
std::string_view to_string(Cause cause);

/// A node with slow devices.
struct Culprit {
  std::string node;
  bool host = false;          ///< all its devices count as slow
  std::vector<RankId> ranks;  ///< to blame
  double slowdown = 1;        ///< median of the ranks found slow
};

struct Verdict {
  Cause cause = Cause::kNothing;
  std::vector<Culprit> culprits;      ///< worst first; only of kDevice and kHost
  std::vector<std::uint32_t> stages;  ///< of kHeavyStage
  double slowdown = 1;                ///< of the worst culprit, the stage or the step
  StepStamp since;                    ///< first slow step
  std::uint32_t steps = 0;            ///< from it to the verdict
  std::uint32_t compared = 0;         ///< equals the worst culprit was compared with
  std::string sentence;
};

/// Who is slow and why. Blames compute time only: a rank that waits is a victim.
[[nodiscard]] Verdict attribute(const Findings& findings, const Roles& roles,
                                const solver::Cluster& cluster);

}  // namespace tapas::daemon
