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
  kLink,        ///< a node's NICs in one direction, or the way between two nodes
  kHeavyStage,  ///< all nodes of a stage: the work, not the hardware
  kInput,       ///< ranks whose own data loaders are late; all others wait for them
  kData,        ///< another rank is slow in each step: uneven batches or garbage collection
  kJobWide,     ///< the step is slower, but no rank's compute stands out
  kUnknown,
};
std::string_view to_string(Cause cause);

/// A node with slow devices.
struct Culprit {
  std::string node;
  bool host = false;              ///< all its devices count as slow
  std::vector<RankId> ranks;      ///< to blame
  std::vector<double> slowdowns;  ///< of each of them; of a host, the node's own
  double slowdown = 1;            ///< median of the ranks found slow
};

struct Verdict {
  Cause cause = Cause::kNothing;
  std::vector<Culprit> culprits;      ///< worst first; only of kDevice and kHost
  std::vector<Culprit> late;          ///< of kInput: whose loaders; no slow devices, worst first
  std::vector<std::uint32_t> stages;  ///< of kHeavyStage
  double slowdown = 1;                ///< of the worst culprit, the stage, or the step
  StepStamp since;                    ///< first slow step
  std::uint32_t steps = 0;            ///< from it to the verdict
  std::vector<RankId> equals;         ///< the worst culprit was compared with
  /// Of the worst culprit or loader, the stage or the step, as in Deviation.
  double before = 1;
  double after = 1;
  bool in_seconds = false;  ///< before and after are step times or, of kInput, waits
  double confidence = 0;
  std::string sentence;
};
/// What to do about it, for people.
[[nodiscard]] std::string_view advice(Cause cause);

/// Who is slow and why. Blames compute time only: a rank that waits is a victim.
[[nodiscard]] Verdict attribute(const Findings& findings, const Roles& roles,
                                const solver::Cluster& cluster);

/// Makes the levels know the verdict: culprits are blamed, what is nobody's fault is accepted.
void take_note(Watch& watch, const Verdict& verdict);

}  // namespace tapas::daemon
