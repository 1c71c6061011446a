#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

/// The measurements of `tapas-bench`. A file registers its own with a static Registration; names
/// start with the part measured: offline., replan., wire., detect., switch., agent.
namespace tapas::bench {

struct Measurement {
  std::string name;
  double value = 0;
  std::string unit;
  /// What the project must reach; not a number = reported only.
  double target = std::numeric_limits<double>::quiet_NaN();
  bool lower_is_better = true;
};

using Bench = std::function<std::vector<Measurement>()>;

class Registration {
 public:
  Registration(std::string prefix, Bench bench);
};

/// Seconds of processor time of the calling thread so far: steadier than the clock on a shared
/// machine.
[[nodiscard]] double thread_cpu_s();

}  // namespace tapas::bench
