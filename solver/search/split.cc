#include "solver/search/split.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace tapas::solver {

std::optional<Split> leanest_split(const SplitProblem& p, double cutoff_bytes) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const LayerTable& table = *p.table;
  const std::uint32_t layers = table.layers();
  const std::size_t columns = layers + 1;
  std::vector<double> best((p.stages + 1) * columns, kInfinity);
  std::vector<std::uint32_t> next(p.stages * columns, 0);
  best[p.stages * columns + layers] = 0;
  for (std::uint32_t s = p.stages; s-- > 0;) {
    const std::uint32_t held = in_flight(p.schedule, p.stages, s, p.microbatches);
    const std::uint32_t last_begin = s == 0 ? 0 : layers - (p.stages - s);
    for (std::uint32_t i = s; i <= last_begin; ++i) {
      double& here = best[s * columns + i];
      const std::uint32_t last_end = layers - (p.stages - 1 - s);
      for (std::uint32_t j = s + 1 == p.stages ? layers : i + 1; j <= last_end; ++j) {
        const double rest = best[(s + 1) * columns + j];
        const double limit = std::min(here, cutoff_bytes);
        if (rest >= limit) {
          continue;
        }
        // With everything recomputed a longer stage only needs more.
        const LayerCost sum = table.sum({i, j});
        if (sum.params * p.rule.state_bytes_per_param + held * sum.input_bytes >= limit) {
          break;
        }
        const double worst = std::max(rest, least_memory_bytes(table, p.rule, {i, j}, held));
        if (worst < limit) {
          here = worst;
          next[s * columns + i] = j;
        }
      }
    }
  }
  if (best[0] == kInfinity) {
    return std::nullopt;
  }
  Split split;
  split.value = best[0];
  for (std::uint32_t s = 0, i = 0; s < p.stages; ++s) {
    split.cuts.push_back(i);
    i = next[s * columns + i];
  }
  return split;
}

}  // namespace tapas::solver
