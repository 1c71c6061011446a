#include "solver/search/split.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Value of a stage, and a lower bound on it that only grows with the range's end: the scan over
/// ends stops by the second.
struct StageValue {
  double value = kInfinity;
  double floor = 0;
};

/// Exact minimum over all cuts of the largest stage value. `value(stage, range)` gives StageValue.
template <typename Value>
std::optional<Split> min_max_split(std::uint32_t layers, std::uint32_t stages, double cutoff,
                                   const Value& value) {
  const std::size_t columns = layers + 1;
  std::vector<double> best((stages + 1) * columns, kInfinity);
  std::vector<std::uint32_t> next(stages * columns, 0);
  best[stages * columns + layers] = 0;
  for (std::uint32_t s = stages; s-- > 0;) {
    const std::uint32_t last_begin = s == 0 ? 0 : layers - (stages - s);
    for (std::uint32_t i = s; i <= last_begin; ++i) {
      double& here = best[s * columns + i];
      const std::uint32_t last_end = layers - (stages - 1 - s);
      const std::uint32_t first_end = s + 1 == stages ? layers : i + 1;
      for (std::uint32_t j = first_end; j <= last_end; ++j) {
        const double rest = best[(s + 1) * columns + j];
        const double limit = std::min(here, cutoff);
        if (rest >= limit) {
          continue;
        }
        const StageValue stage = value(s, LayerRange{i, j});
        if (stage.floor >= limit) {
          break;
        }
        const double worst = std::max(stage.value, rest);
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
  for (std::uint32_t s = 0, i = 0; s < stages; ++s) {
    split.cuts.push_back(i);
    i = next[s * columns + i];
  }
  return split;
}

/// Bytes of a range when everything is recomputed: grows with the range.
double floor_bytes(const LayerCost& sum, const MemoryRule& rule, std::uint32_t held) {
  return sum.params * rule.state_bytes_per_param + held * sum.input_bytes;
}

double plain_s(const LayerCost& sum) {
  return sum.times.forward_s + sum.times.backward_s + sum.times.forward_comm_s +
         sum.times.backward_comm_s;
}

std::uint32_t held_by(const SplitProblem& p, std::uint32_t stage) {
  return in_flight(p.schedule, p.stages, stage, p.microbatches);
}

/// Least time that crossing `hops` consecutive links there and back takes, sending included: a node
/// has room for some stages of a row only, so some of the links leave it.
double round_trips_s(const SplitProblem& p, std::uint32_t hops) {
  const std::uint32_t far = hops / p.groups_per_node;
  return 2 * (far * p.far_s + (hops - far) * p.near_s + hops * p.busy_s);
}

/// What a stage surely waits: for its first backward, `later` after its first forward, while it can
/// do only its warm-up forwards; and for its last backward, `later` after its last forward, while
/// only as many backwards are left. With few microbatches the two may be the same wait.
double idle_s(const SplitProblem& p, std::uint32_t stage, double forward, double backward,
              double later) {
  const std::uint32_t warm =
      std::min(warm_up(p.schedule, p.stages, stage, p.microbatches), p.microbatches - 1);
  const double first = std::max(0.0, later - warm * forward);
  const double last = std::max(0.0, later - warm * backward);
  return p.microbatches >= warm + 2 ? first + last : std::max(first, last);
}

}  // namespace

std::optional<StageFit> fit(const SplitProblem& problem, std::uint32_t stage, LayerRange range) {
  return fit_stage(*problem.table, problem.rule, range, held_by(problem, stage));
}

std::optional<Split> bottleneck_split(const SplitProblem& p, double cutoff_s) {
  const LayerTable& table = *p.table;
  const std::uint32_t layers = table.layers();
  std::vector<double> before(layers + 1);
  for (std::uint32_t l = 0; l < layers; ++l) {
    before[l + 1] = before[l] + plain_s(table[l]);
  }
  const double m = p.microbatches;
  return min_max_split(layers, p.stages, cutoff_s, [&](std::uint32_t b, LayerRange range) {
    const LayerCost sum = table.sum(range);
    const double earlier = before[range.first] + round_trips_s(p, b);
    const double later = before[layers] - before[range.last] + round_trips_s(p, p.stages - 1 - b);
    const double tail = p.tail.sync_s(sum.params) + p.tail.update_s(sum.params);
    const double forward = sum.times.forward_s + sum.times.forward_comm_s + p.busy_s;
    const auto bound = [&](double backward) {
      return earlier + m * (forward + backward) + idle_s(p, b, forward, backward, later) + tail;
    };
    const double backward = sum.times.backward_s + sum.times.backward_comm_s + p.busy_s;
    StageValue result;
    result.floor = bound(backward);
    if (floor_bytes(sum, p.rule, held_by(p, b)) > p.rule.capacity_bytes) {
      result.floor = kInfinity;
    } else if (const auto stage = fit(p, b, range)) {
      result.value = bound(stage->backward_s + stage->backward_comm_s - stage->saved_s + p.busy_s);
    }
    return result;
  });
}

std::optional<Split> balanced_split(const SplitProblem& p) {
  return min_max_split(p.table->layers(), p.stages, kInfinity,
                       [&](std::uint32_t b, LayerRange range) {
                         const LayerCost sum = p.table->sum(range);
                         StageValue result;
                         result.floor = plain_s(sum);
                         if (floor_bytes(sum, p.rule, held_by(p, b)) > p.rule.capacity_bytes) {
                           result.floor = kInfinity;
                         } else if (const auto stage = fit(p, b, range)) {
                           result.value = stage->total_s();
                         }
                         return result;
                       });
}

std::optional<Split> leanest_split(const SplitProblem& p, double cutoff_bytes) {
  return min_max_split(
      p.table->layers(), p.stages, cutoff_bytes, [&](std::uint32_t b, LayerRange range) {
        return StageValue{least_memory_bytes(*p.table, p.rule, range, held_by(p, b)),
                          floor_bytes(p.table->sum(range), p.rule, held_by(p, b))};
      });
}

double split_time_s(const SplitProblem& p, const std::vector<std::uint32_t>& cuts,
                    const std::vector<double>& delay_s) {
  Pipeline pipeline;
  pipeline.schedule = p.schedule;
  pipeline.forward_delay_s = delay_s;
  pipeline.backward_delay_s = delay_s;
  double most_params = 0;
  for (std::uint32_t s = 0; s < p.stages; ++s) {
    const LayerRange range{cuts[s], s + 1 < p.stages ? cuts[s + 1] : p.table->layers()};
    const auto stage = fit(p, s, range);
    if (!stage) {
      return kInfinity;
    }
    pipeline.forward_s.push_back(stage->forward_s + stage->forward_comm_s + p.busy_s);
    pipeline.backward_s.push_back(stage->backward_s + stage->backward_comm_s + p.busy_s);
    most_params = std::max(most_params, p.table->sum(range).params);
  }
  return pipeline_time_s(pipeline, p.microbatches) + p.tail.sync_s(most_params) +
         p.tail.update_s(most_params);
}

void polish(const SplitProblem& p, const std::vector<double>& delay_s, Split& split) {
  split.value = split_time_s(p, split.cuts, delay_s);
  const auto valid = [&](const std::vector<std::uint32_t>& cuts) {
    for (std::uint32_t s = 1; s < p.stages; ++s) {
      if (cuts[s] <= cuts[s - 1] || cuts[s] >= p.table->layers()) {
        return false;
      }
    }
    return true;
  };
  for (bool improved = true; improved;) {
    improved = false;
    for (std::uint32_t first = 1; first < p.stages; ++first) {
      for (std::uint32_t last = first; last < p.stages; ++last) {
        for (const int step : {-1, 1}) {
          std::vector<std::uint32_t> cuts = split.cuts;
          for (std::uint32_t s = first; s <= last; ++s) {
            cuts[s] += static_cast<std::uint32_t>(step);
          }
          if (!valid(cuts)) {
            continue;
          }
          const double time = split_time_s(p, cuts, delay_s);
          if (time < split.value) {
            split = {std::move(cuts), time};
            improved = true;
          }
        }
      }
    }
  }
}

}  // namespace tapas::solver
