#include "solver/cost/stage_fit.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <unordered_set>
#include <utility>

namespace tapas::solver {
namespace {

// Branch and bound over equal-ratio types can grow; past this the bound is reported as a gap.
constexpr std::uint32_t kMaxBranches = 20'000;

/// A type that may be recomputed: per layer of it, what that costs and saves.
struct Item {
  std::uint32_t type = 0;
  std::uint32_t available = 0;
  double seconds = 0;
  double bytes = 0;  ///< over all microbatches in flight
  double flops = 0;
  double transient = 0;  ///< activations of the one layer being recomputed
};

/// Seconds per byte saved, the cheapest first.
bool by_cost(const Item& a, const Item& b) { return a.seconds * b.bytes < b.seconds * a.bytes; }

/// Minimum-cost cover: counts per item with enough bytes saved and flops within the limit, cheaper
/// than `cutoff`. Requires items in the order of by_cost().
class Cover {
 public:
  Cover(std::vector<Item> items, double need, double flops, double cutoff)
      : items_(std::move(items)), cutoff_(cutoff), best_(cutoff) {
    counts_.assign(items_.size(), 0);
    root_bound_ = bound(0, need);
    search(0, need, flops, 0);
  }

  [[nodiscard]] bool found() const { return best_ < cutoff_; }
  [[nodiscard]] double seconds() const { return best_; }
  /// No cover costs less, or less than the cutoff.
  [[nodiscard]] double bound_s() const { return branches_ > kMaxBranches ? root_bound_ : best_; }
  [[nodiscard]] const std::vector<Item>& items() const { return items_; }
  [[nodiscard]] const std::vector<std::uint32_t>& counts() const { return best_counts_; }

 private:
  /// Cost of covering `need` with items k.. when layers could be split.
  [[nodiscard]] double bound(std::size_t k, double need) const {
    double seconds = 0;
    for (; k < items_.size(); ++k) {
      const double most = items_[k].available * items_[k].bytes;
      if (need <= most) {
        return seconds + std::max(need, 0.0) / items_[k].bytes * items_[k].seconds;
      }
      seconds += items_[k].available * items_[k].seconds;
      need -= most;
    }
    return std::numeric_limits<double>::infinity();
  }

  void search(std::size_t k, double need, double flops, double seconds) {
    if (need <= 0) {
      if (seconds < best_) {
        best_ = seconds;
        best_counts_ = counts_;
      }
      return;
    }
    if (k == items_.size() || seconds + bound(k, need) >= best_ || ++branches_ > kMaxBranches) {
      return;
    }
    const Item& item = items_[k];
    const auto wanted =
        static_cast<std::uint32_t>(std::min<double>(item.available, std::ceil(need / item.bytes)));
    for (std::uint32_t n = wanted + 1; n-- > 0;) {
      if (n * item.flops <= flops) {
        counts_[k] = n;
        search(k + 1, need - n * item.bytes, flops - n * item.flops, seconds + n * item.seconds);
      }
    }
    counts_[k] = 0;
  }

  std::vector<Item> items_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint32_t> best_counts_;
  double cutoff_;
  double best_;
  double root_bound_ = 0;
  std::uint32_t branches_ = 0;
};

std::vector<Item> recompute_items(const LayerTable& table, LayerRange range,
                                  std::uint32_t in_flight, StagePace pace) {
  std::vector<Item> items;
  const auto consider = [&](std::uint32_t type) {
    const LayerCost& cost = table[table.example(type)];
    const double transient = cost.stash_bytes - cost.input_bytes;
    const std::uint32_t available = transient > 0 ? table.count(type, range) : 0;
    if (available > 0) {
      const double seconds =
          cost.times.forward_s * pace.compute + cost.times.forward_comm_s * pace.collectives;
      items.push_back(
          {type, available, seconds, in_flight * transient, cost.forward_flops, transient});
    }
  };
  if (table.types() < range.last - range.first) {
    for (std::uint32_t type = 0; type < table.types(); ++type) {
      consider(type);
    }
  } else {
    std::unordered_set<std::uint32_t> seen;
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      if (seen.insert(table.type(l)).second) {
        consider(table.type(l));
      }
    }
  }
  return items;
}

double plain_memory(const LayerCost& sum, const MemoryRule& rule, std::uint32_t in_flight) {
  return sum.params * rule.state_bytes_per_param + in_flight * sum.stash_bytes + sum.work_bytes;
}

}  // namespace

MemoryRule memory_rule(const Job& job, std::uint32_t node_type, std::uint32_t replicas) {
  const DeviceType& device =
      job.cluster.device_types[job.cluster.node_types[node_type].device_type];
  const double cap =
      job.limits.device_memory_bytes > 0 ? job.limits.device_memory_bytes : device.memory_bytes;
  const double owners = job.zero_stage > 0 ? replicas : 1;
  return {
      cap * (1 - job.limits.memory_reserve_ratio),
      job.bytes_per_param + job.gradient_bytes_per_param + job.optimizer_bytes_per_param / owners,
      job.limits.recompute_ratio};
}

double stage_memory_bytes(const LayerTable& table, const MemoryRule& rule, LayerRange range,
                          std::uint32_t in_flight, const std::vector<bool>& checkpoint) {
  double bytes = plain_memory(table.sum(range), rule, in_flight);
  double transient = 0;
  for (std::uint32_t l = range.first; l < range.last; ++l) {
    if (checkpoint[l]) {
      const double saved = table[l].stash_bytes - table[l].input_bytes;
      bytes -= in_flight * saved;
      transient = std::max(transient, saved);
    }
  }
  return bytes + transient;
}

std::optional<StageFit> fit_stage(const LayerTable& table, const MemoryRule& rule, LayerRange range,
                                  std::uint32_t in_flight, StagePace pace) {
  const LayerCost sum = table.sum(range);
  StageFit fit{sum.times.forward_s,
               sum.times.backward_s,
               sum.times.forward_comm_s,
               sum.times.backward_comm_s,
               0,
               {}};
  const double excess = plain_memory(sum, rule, in_flight) - rule.capacity_bytes;
  if (excess <= 0) {
    return fit;
  }
  std::vector<Item> all = recompute_items(table, range, in_flight, pace);
  std::stable_sort(all.begin(), all.end(), by_cost);
  std::vector<double> transients;
  for (const Item& item : all) {
    transients.push_back(item.transient);
  }
  std::sort(transients.begin(), transients.end());
  transients.erase(std::unique(transients.begin(), transients.end()), transients.end());
  // The largest recomputed layer sets the working memory: try each as the largest.
  double best = std::numeric_limits<double>::infinity();
  double bound = std::numeric_limits<double>::infinity();
  for (const double transient : transients) {
    std::vector<Item> items;
    std::copy_if(all.begin(), all.end(), std::back_inserter(items),
                 [&](const Item& item) { return item.transient <= transient; });
    const Cover cover(std::move(items), excess + transient, rule.recompute_ratio * sum.flops, best);
    bound = std::min(bound, cover.bound_s());
    if (cover.found()) {
      best = cover.seconds();
      fit.recomputed.clear();
      for (std::size_t k = 0; k < cover.items().size(); ++k) {
        if (cover.counts()[k] > 0) {
          fit.recomputed.push_back({cover.items()[k].type, cover.counts()[k]});
        }
      }
    }
  }
  if (fit.recomputed.empty()) {
    return std::nullopt;
  }
  fit.saved_s = best - std::min(best, bound);
  for (const auto& [type, layers] : fit.recomputed) {
    const LayerTimes& times = table[table.example(type)].times;
    fit.backward_s += layers * times.forward_s;
    fit.backward_comm_s += layers * times.forward_comm_s;
  }
  return fit;
}

double least_memory_bytes(const LayerTable& table, const MemoryRule& rule, LayerRange range,
                          std::uint32_t in_flight) {
  const LayerCost sum = table.sum(range);
  std::vector<Item> items = recompute_items(table, range, in_flight, {});
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.bytes * b.flops > b.bytes * a.flops;
  });
  const double plain = plain_memory(sum, rule, in_flight);
  double least = plain;
  double bytes = plain;
  double flops = rule.recompute_ratio * sum.flops;
  double transient = 0;
  for (const Item& item : items) {
    for (std::uint32_t n = 0; n < item.available && item.flops <= flops; ++n) {
      flops -= item.flops;
      bytes -= item.bytes;
      transient = std::max(transient, item.transient);
      least = std::min(least, bytes + transient);
    }
  }
  return least;
}

void mark_recomputed(const LayerTable& table, LayerRange range, const StageFit& fit,
                     std::vector<bool>& checkpoint) {
  std::fill(checkpoint.begin() + range.first, checkpoint.begin() + range.last, false);
  for (const auto& [type, layers] : fit.recomputed) {
    std::uint32_t left = layers;
    for (std::uint32_t l = range.first; l < range.last && left > 0; ++l) {
      if (table.type(l) == type) {
        checkpoint[l] = true;
        --left;
      }
    }
  }
}

}  // namespace tapas::solver
