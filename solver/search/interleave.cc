#include "solver/search/interleave.h"

#include "solver/cost/pipeline.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace tapas::solver {
namespace {

// Shapes that are cut, in the order of their bounds.
constexpr std::size_t kMostCut = 48;
constexpr std::size_t kBatch = 8;
constexpr double kPolishWithin = 1.01;

/// One spec with a depth: its groups' memory, cuts and times.
class Interleaved {
 public:
  Interleaved(const Fleet& fleet, const Spec& spec)
      : bench_(fleet, spec),
        spec_(spec),
        table_(*bench_.problem.kinds.front().table),
        rule_(bench_.problem.kinds.front().rule) {
    for (std::uint32_t g = 0; g < spec.stages; ++g) {
      moments_.push_back(held_chunks(Schedule::kInterleaved, spec.stages, spec.chunks, g,
                                     bench_.problem.microbatches));
    }
  }

  Found best(double cutoff_s) {
    Found found;
    found.spec = spec_;
    found.row.cuts = balanced();
    found.row.kinds.assign(found.row.cuts.size(), 0);
    settle(found);
    if (found.step_s < cutoff_s * kPolishWithin) {
      polish(found);
    }
    found.value = found.step_s;
    return found;
  }
  [[nodiscard]] std::uint64_t timed() const { return bench_.times.evaluated(); }

 private:
  /// Cuts with the least longest stage, recomputation apart.
  [[nodiscard]] std::vector<std::uint32_t> balanced() const {
    const std::uint32_t layers = table_.layers();
    const std::uint32_t stages = spec_.stages * spec_.chunks;
    std::vector<double> before(layers + 1, 0);
    for (std::uint32_t l = 0; l < layers; ++l) {
      const LayerTimes& t = table_[l].times;
      before[l + 1] = before[l] + t.forward_s + t.backward_s + t.forward_comm_s + t.backward_comm_s;
    }
    const auto cut = [&](double limit) {
      std::vector<std::uint32_t> cuts;
      std::uint32_t first = 0;
      for (std::uint32_t k = 0; k < stages; ++k) {
        cuts.push_back(first);
        const std::uint32_t most = layers - (stages - 1 - k);
        std::uint32_t end = first + 1;
        while (end < most && before[end + 1] - before[first] <= limit) {
          ++end;
        }
        first = end;
      }
      return std::pair(std::move(cuts), first == layers);
    };
    double low = before[layers] / stages;
    double high = before[layers];
    constexpr int kSteps = 40;
    for (int k = 0; k < kSteps; ++k) {
      const double middle = (low + high) / 2;
      (cut(middle).second ? high : low) = middle;
    }
    return cut(high).first;
  }

  /// Times the cuts with the recomputation that each group needs.
  void settle(Found& found) {
    found.step_s = kNever;
    found.fits.assign(found.row.cuts.size(), {});
    for (std::uint32_t g = 0; g < spec_.stages; ++g) {
      if (!fit_group(found, g)) {
        return;
      }
    }
    for (std::uint32_t k = 0; k < kLayouts; ++k) {
      const auto layout = static_cast<Layout>(k);
      const double step =
          bench_.times.interleaved_step_s(found.row, spec_.chunks, found.fits, layout);
      if (step < found.step_s) {
        found.step_s = step;
        found.layout = layout;
      }
    }
  }

  /// The memory of a group, as PlanEvaluator counts it.
  [[nodiscard]] double group_bytes(const Found& found, std::uint32_t group,
                                   const std::vector<bool>& flags) const {
    double state = 0;
    double scratch = 0;
    std::vector<double> each;
    for (std::uint32_t c = 0; c < spec_.chunks; ++c) {
      const LayerRange range = found.row.range(c * spec_.stages + group, table_.layers());
      const double chunk_state = table_.sum(range).params * rule_.state_bytes_per_param;
      const double none = stage_memory_bytes(table_, rule_, range, 0, flags);
      state += chunk_state;
      scratch = std::max(scratch, none - chunk_state);
      each.push_back(stage_memory_bytes(table_, rule_, range, 1, flags) - none);
    }
    double held = 0;
    for (const auto& moment : moments_[group]) {
      held = std::max(held, std::inner_product(each.begin(), each.end(), moment.begin(), 0.0));
    }
    return state + scratch + held;
  }

  /// Recomputes what saves most bytes per second until the group fits; false when it never does.
  bool fit_group(Found& found, std::uint32_t group) const {
    std::vector<bool> flags(table_.layers(), false);
    struct Item {
      std::uint32_t layer = 0;
      std::uint32_t chunk = 0;
      double bytes_per_s = 0;
    };
    std::vector<Item> items;
    double flops = 0;
    for (std::uint32_t c = 0; c < spec_.chunks; ++c) {
      const std::uint32_t k = c * spec_.stages + group;
      const LayerRange range = found.row.range(k, table_.layers());
      const LayerCost sum = table_.sum(range);
      found.fits[k] = {sum.times.forward_s,
                       sum.times.backward_s,
                       sum.times.forward_comm_s,
                       sum.times.backward_comm_s,
                       0,
                       {}};
      flops += sum.flops;
    }
    if (group_bytes(found, group, flags) <= rule_.capacity_bytes) {
      return true;
    }
    for (std::uint32_t c = 0; c < spec_.chunks; ++c) {
      std::uint32_t held = 0;
      for (const auto& moment : moments_[group]) {
        held = std::max(held, moment[c]);
      }
      const LayerRange range = found.row.range(c * spec_.stages + group, table_.layers());
      for (std::uint32_t l = range.first; l < range.last; ++l) {
        const LayerCost& cost = table_[l];
        const double again = cost.times.forward_s + cost.times.forward_comm_s;
        if (cost.stash_bytes > cost.input_bytes) {
          items.push_back({l, c, held * (cost.stash_bytes - cost.input_bytes) / again});
        }
      }
    }
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& a, const Item& b) { return a.bytes_per_s > b.bytes_per_s; });
    double again = 0;
    for (const Item& item : items) {
      const LayerCost& cost = table_[item.layer];
      if (again + cost.forward_flops > rule_.recompute_ratio * flops) {
        continue;
      }
      again += cost.forward_flops;
      flags[item.layer] = true;
      StageFit& fit = found.fits[item.chunk * spec_.stages + group];
      fit.backward_s += cost.times.forward_s;
      fit.backward_comm_s += cost.times.forward_comm_s;
      const std::uint32_t type = table_.type(item.layer);
      const auto known = std::find_if(fit.recomputed.begin(), fit.recomputed.end(),
                                      [&](const auto& entry) { return entry.type == type; });
      if (known == fit.recomputed.end()) {
        fit.recomputed.push_back({type, 1});
      } else {
        ++known->layers;
      }
      if (group_bytes(found, group, flags) <= rule_.capacity_bytes) {
        return true;
      }
    }
    return false;
  }

  void polish(Found& found) {
    for (bool improved = true; improved;) {
      improved = false;
      for (std::size_t k = 1; k < found.row.cuts.size(); ++k) {
        for (const int by : {-1, 1}) {
          Found other = found;
          other.row.cuts[k] += static_cast<std::uint32_t>(by);
          const std::uint32_t next =
              k + 1 < other.row.cuts.size() ? other.row.cuts[k + 1] : table_.layers();
          if (other.row.cuts[k] <= other.row.cuts[k - 1] || other.row.cuts[k] >= next) {
            continue;
          }
          settle(other);
          if (other.step_s < found.step_s) {
            found = std::move(other);
            improved = true;
          }
        }
      }
    }
  }

  Bench bench_;
  const Spec spec_;
  const LayerTable& table_;
  const MemoryRule& rule_;
  std::vector<std::vector<std::vector<std::uint32_t>>> moments_;  ///< [group]
};

}  // namespace

std::vector<std::uint32_t> interleave_depths(const Job& job) {
  if (job.schedule != Schedule::kInterleaved) {
    return {1};
  }
  std::vector<std::uint32_t> depths = job.search.interleave;
  if (depths.empty()) {
    depths = {1, 2, 3, 4, 6, 8};
  }
  std::sort(depths.begin(), depths.end());
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  return depths;
}

InterleaveResult search_interleaved(const Job& job, const Fleet& fleet, const SolveOptions& options,
                                    const std::vector<Spec>& specs,
                                    const std::vector<std::uint32_t>& depths, double cutoff_s) {
  struct Candidate {
    Spec spec;
    double bound_s = 0;
  };
  InterleaveResult result;
  std::vector<Candidate> candidates;
  for (const Spec& plain : specs) {
    const Fleet::Size& size = *fleet.sizes()[plain.size];
    const std::uint32_t total = size.job.total_microbatches();
    const std::vector<std::uint32_t> counts = shares(total, plain.replicas, plain.stages);
    if (plain.stages < 2 || counts.empty() ||
        (!job.capabilities.microbatch_counts && counts.front() != counts.back())) {
      continue;
    }
    const LayerTable& table = *size.tables.at(plain.sharding);
    const LayerCost sum = table.sum({0, table.layers()});
    const double once = sum.times.forward_s + sum.times.backward_s + sum.times.forward_comm_s +
                        sum.times.backward_comm_s;
    const StepTail tail = fleet.problem(size, plain.sharding, plain.replicas).kinds.front().tail;
    const double params = sum.params / plain.stages;
    const double sync = job.overlap_gradients ? 0 : tail.sync_s(params);
    for (const std::uint32_t depth : depths) {
      if (depth < 2 || depth * plain.stages > table.layers()) {
        continue;
      }
      ++result.shapes;
      Candidate candidate{plain, counts.front() * once / plain.stages};
      candidate.spec.chunks = depth;
      if (candidate.bound_s >= cutoff_s) {
        ++result.by_work;
        continue;
      }
      // Some group works at least its share, and some holds at least its share of parameters.
      candidate.bound_s += std::min(sync, tail.sync_s(0)) + tail.update_s(params);
      // Group g starts when the first microbatch came through g stages of one layer at least, and
      // the last gradient still goes back through them: on average over the groups.
      for (std::uint32_t l = 0; l + 1 < plain.stages; ++l) {
        const LayerTimes& t = table[l].times;
        candidate.bound_s += (t.forward_s + t.backward_s + t.forward_comm_s + t.backward_comm_s) *
                             (plain.stages - 1 - l) / plain.stages;
      }
      candidates.push_back(candidate);
    }
  }
  // Deeper interleaving has the same bound and a smaller bubble: the order within equal bounds is
  // that of the depths, so look at the deepest of each shape first.
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.bound_s < b.bound_s || (a.bound_s == b.bound_s && a.spec.chunks > b.spec.chunks);
  });
  result.best.step_s = cutoff_s;
  bool found = false;
  std::size_t cut = 0;
  for (std::size_t first = 0; first < candidates.size() && !options.stop.stop_requested();) {
    const double cutoff = result.best.step_s;
    if (candidates[first].bound_s >= cutoff || cut >= kMostCut) {
      break;
    }
    const std::size_t count = std::min(kBatch, candidates.size() - first);
    std::vector<Found> rows(count);
    std::vector<std::uint64_t> timed(count, 0);
    const auto part = [&](std::size_t k) {
      Interleaved interleaved(fleet, candidates[first + k].spec);
      rows[k] = interleaved.best(cutoff);
      timed[k] = interleaved.timed();
    };
    if (options.parallel_for) {
      options.parallel_for(count, part);
    } else {
      for (std::size_t k = 0; k < count; ++k) {
        part(k);
      }
    }
    for (std::size_t k = 0; k < count; ++k) {
      result.rows_timed += timed[k];
      result.by_memory += rows[k].step_s == kNever ? 1 : 0;
      if (rows[k].step_s < result.best.step_s) {
        result.best = std::move(rows[k]);
        found = true;
      }
    }
    first += count;
    cut += count;
  }
  for (std::size_t k = 0; k < candidates.size(); ++k) {
    result.bound_s = std::min(result.bound_s, candidates[k].bound_s);
    if (k >= cut && candidates[k].bound_s < result.best.step_s) {
      ++result.left;
    } else if (k >= cut) {
      ++result.by_work;
    }
  }
  if (!found) {
    result.best = {};
  }
  return result;
}

}  // namespace tapas::solver
