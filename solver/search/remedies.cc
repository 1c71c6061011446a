#include "solver/search/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kGigabyte = 1e9;
constexpr std::uint32_t kMostTimesNodes = 16;
constexpr std::uint32_t kMostTimesMemory = 64;

class Remedies {
 public:
  Remedies(const Job& job, const SolveOptions& options) : job_(job), options_(options) {}

  std::vector<Remedy> run() {
    widths();
    stages();
    microbatches();
    recompute();
    step_time();
    memory();
    nodes();
    return std::move(found_);
  }

 private:
  /// Solves a changed job; remembers it under the sentence when a plan fits.
  bool attempt(Job changed, const std::string& change) {
    if (options_.stop.stop_requested()) {
      return false;
    }
    auto outcome = solve(changed, options_);
    if (!outcome) {
      return false;
    }
    found_.push_back({change, std::move(changed), std::move(*outcome)});
    return true;
  }

  [[nodiscard]] bool solvable(const Job& changed) const {
    return !options_.stop.stop_requested() && solve(changed, options_).has_value();
  }

  /// Least whole number in (low, high] for which the changed job is solvable, when it is at `high`
  /// and more never hurts.
  std::optional<std::uint32_t> least(std::uint32_t low, std::uint32_t high,
                                     const std::function<Job(std::uint32_t)>& changed) const {
    if (high <= low || !solvable(changed(high))) {
      return std::nullopt;
    }
    while (high - low > 1) {
      const std::uint32_t middle = low + (high - low) / 2;
      (solvable(changed(middle)) ? high : low) = middle;
    }
    return high;
  }

  void widths() {
    if (!job_.search.tp_widths.empty()) {
      Job changed = job_;
      changed.search.tp_widths.clear();
      attempt(std::move(changed), "search.tp_widths left out, so that all widths are allowed");
    }
  }

  void stages() {
    const std::uint32_t layers = job_.graph.layer_count();
    if (job_.search.min_stages <= 1 && job_.search.max_stages >= layers) {
      return;
    }
    Job changed = job_;
    changed.search.min_stages = 1;
    changed.search.max_stages = std::max(layers, job_.search.max_stages);
    auto outcome = solve(changed, options_);
    if (outcome) {
      const std::uint32_t stages = outcome->plan.stages();
      found_.push_back(
          {stages < job_.search.min_stages
               ? fmt::format("search.min_stages {} instead of {}", stages, job_.search.min_stages)
               : fmt::format("search.max_stages {} instead of {}", stages, job_.search.max_stages),
           std::move(changed), std::move(*outcome)});
    }
  }

  void microbatches() {
    const std::uint32_t now = job_.graph.micro_batch_size;
    for (std::uint32_t size = now - 1; size >= 1; --size) {
      if (job_.global_batch % size == 0 && now % size == 0) {
        Job changed = with_micro_batch_size(job_, size);
        changed.search.micro_batch_sizes.clear();
        if (attempt(std::move(changed),
                    fmt::format("micro_batch_size {} instead of {}", size, now))) {
          return;
        }
      }
    }
  }

  void recompute() {
    const auto with_percent = [&](std::uint32_t percent) {
      Job changed = job_;
      changed.limits.recompute_ratio = percent / 100.0;
      return changed;
    };
    const auto now = static_cast<std::uint32_t>(job_.limits.recompute_ratio * 100 + 1e-9);
    if (const auto percent = least(now, 100, with_percent)) {
      attempt(with_percent(*percent), fmt::format("limits.recompute_ratio {} instead of {}",
                                                  *percent / 100.0, job_.limits.recompute_ratio));
    }
  }

  void step_time() {
    if (job_.limits.step_time_s <= 0) {
      return;
    }
    Job changed = job_;
    changed.limits.step_time_s = 0;
    if (const auto outcome = solve(changed, options_)) {
      changed.limits.step_time_s = outcome->plan.predicted.step_time_s * (1 + 1e-9);
      attempt(changed, fmt::format("limits.step_time_s {:.4g} instead of {:.4g}",
                                   changed.limits.step_time_s, job_.limits.step_time_s));
    }
  }

  void memory() {
    double now = job_.limits.device_memory_bytes;
    double own = 0;
    for (const NodeType& type : job_.cluster.node_types) {
      own = std::max(own, job_.cluster.device_types[type.device_type].memory_bytes);
    }
    now = now > 0 ? std::min(now, own) : own;
    const double grain = std::min(0.1 * kGigabyte, now / 100);
    const auto with_steps = [&](std::uint32_t steps) {
      Job changed = job_;
      const double bytes = steps * grain;
      changed.limits.device_memory_bytes = bytes;
      for (DeviceType& type : changed.cluster.device_types) {
        type.memory_bytes = std::max(type.memory_bytes, bytes);
      }
      return changed;
    };
    const auto low = static_cast<std::uint32_t>(now / grain);
    if (const auto steps = least(low, low * kMostTimesMemory + 1, with_steps)) {
      const double bytes = *steps * grain;
      attempt(with_steps(*steps),
              bytes <= own
                  ? fmt::format("limits.device_memory_bytes {:.4g} GB instead of {:.4g} GB",
                                bytes / kGigabyte, now / kGigabyte)
                  : fmt::format("devices of {:.4g} GB instead of {:.4g} GB", bytes / kGigabyte,
                                now / kGigabyte));
    }
  }

  void nodes() {
    const auto usable = std::find_if(job_.cluster.nodes.begin(), job_.cluster.nodes.end(),
                                     [](const Node& node) { return !node.spare; });
    if (usable == job_.cluster.nodes.end()) {
      return;
    }
    const Node like = *usable;
    const auto now = static_cast<std::uint32_t>(
        std::count_if(job_.cluster.nodes.begin(), job_.cluster.nodes.end(),
                      [](const Node& node) { return !node.spare; }));
    const auto with_more = [&](std::uint32_t more) {
      Job changed = job_;
      for (std::uint32_t k = 0; k < more; ++k) {
        Node node = like;
        node.name = fmt::format("{}-more{}", like.name, k + 1);
        changed.cluster.nodes.push_back(std::move(node));
      }
      return changed;
    };
    for (std::uint32_t most = 1; most <= now * kMostTimesNodes; most *= 2) {
      if (const auto more = least(most / 2, most, with_more)) {
        const std::string& type = job_.cluster.node_types[like.type].name;
        attempt(with_more(*more), fmt::format("{} more node{} of type {} ({} instead of {})", *more,
                                              *more == 1 ? "" : "s", type, now + *more, now));
        return;
      }
    }
  }

  const Job& job_;
  const SolveOptions& options_;
  std::vector<Remedy> found_;
};

}  // namespace

std::vector<Remedy> find_remedies(const Job& job, const SolveOptions& options) {
  return Remedies(job, options).run();
}

}  // namespace tapas::solver
