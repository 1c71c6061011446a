#include "solver/check/check_switch.h"

#include "solver/check/check_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kGigabyte = 1e9;
// Two correct programs may add the same bytes in another order.
constexpr double kRounding = 1e-9;

/// What a device group of a plan holds.
struct Holder {
  const Position* position = nullptr;
  std::uint32_t replica = 0;
  std::vector<LayerRange> layers;  ///< one range per chunk
};

bool holds(const Holder& holder, std::uint32_t layer) {
  return std::any_of(holder.layers.begin(), holder.layers.end(), [&](const LayerRange& range) {
    return layer >= range.first && layer < range.last;
  });
}

bool same_layers(const Holder& a, const Holder& b) {
  return std::equal(a.layers.begin(), a.layers.end(), b.layers.begin(), b.layers.end(),
                    [](const LayerRange& x, const LayerRange& y) {
                      return x.first == y.first && x.last == y.last;
                    });
}

bool part_of(const Position& part, const Position& whole) {
  return part.node == whole.node &&
         std::all_of(part.devices.begin(), part.devices.end(), [&](std::uint16_t device) {
           return std::find(whole.devices.begin(), whole.devices.end(), device) !=
                  whole.devices.end();
         });
}

class SwitchChecker {
 public:
  SwitchChecker(const Job& job, const Plan& from, const Plan& to)
      : job_(job), from_(from), to_(to), layers_(job.graph.layer_count()), memory_(job) {}

  std::vector<std::string> run() {
    check_placement();
    check_recompute();
    check_microbatches();
    check_memory();
    return std::move(found_);
  }

 private:
  template <typename... Args>
  void complain(fmt::format_string<Args...> format, Args&&... args) {
    found_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void check_placement() {
    if (job_.capabilities.placement) {
      return;
    }
    if (from_.replicas() != to_.replicas() || from_.stages() != to_.stages()) {
      complain(
          "{} replicas of {} stages become {} of {}, but the job's runtime cannot move stages to "
          "other devices",
          from_.replicas(), from_.stages(), to_.replicas(), to_.stages());
      return;
    }
    for (std::uint32_t r = 0; r < to_.replicas(); ++r) {
      for (std::uint32_t s = 0; s < to_.stages(); ++s) {
        const Position& old = from_.placement[r][s];
        const Position& now = to_.placement[r][s];
        const bool narrower =
            job_.capabilities.narrower_groups && (part_of(now, old) || part_of(old, now));
        if (old != now && !narrower) {
          complain(
              "stage {} of replica {} goes from {} of node {} to {} of node {}, but the job's "
              "runtime cannot move stages to other devices",
              s, r, devices_of(old), name_of(old), devices_of(now), name_of(now));
        }
      }
    }
  }

  void check_recompute() {
    if (job_.capabilities.recompute) {
      return;
    }
    for (std::uint32_t r = 0; r < std::min(from_.replicas(), to_.replicas()); ++r) {
      const std::vector<bool>& old = from_.checkpoint_of(r);
      const std::vector<bool>& now = to_.checkpoint_of(r);
      const auto layer = std::mismatch(old.begin(), old.end(), now.begin(), now.end()).first;
      if (layer != old.end()) {
        complain(
            "replica {} {} to recompute layer {}, but the job's runtime cannot change that while "
            "it runs",
            r, *layer ? "ceases" : "begins", layer - old.begin());
      }
    }
  }

  void check_microbatches() {
    if (!job_.capabilities.microbatch_counts && from_.replicas() == to_.replicas() &&
        from_.micro_batch_size == to_.micro_batch_size) {
      for (std::uint32_t r = 0; r < to_.replicas(); ++r) {
        if (from_.microbatches[r] != to_.microbatches[r]) {
          complain(
              "replica {} goes from {} to {} microbatches, but the job's runtime cannot change "
              "that while it runs",
              r, from_.microbatches[r], to_.microbatches[r]);
        }
      }
    }
  }

  void check_memory() {
    index_devices();
    for (std::uint32_t r = 0; r < to_.replicas(); ++r) {
      for (std::uint32_t s = 0; s < to_.stages(); ++s) {
        const Holder now = holder(to_, r, s);
        const std::vector<const Holder*>& before = holders_[now.position->node.value()];
        double most = 0;
        std::optional<const Holder*> seen;
        for (const std::uint16_t device : now.position->devices) {
          if (before[device] != seen) {
            seen = before[device];
            most = std::max(most, device_bytes(before[device], now));
          }
        }
        const DeviceType& type = job_.cluster.device_type_of(now.position->node);
        const double own = job_.limits.device_memory_bytes;
        const double cap =
            (own > 0 ? own : type.memory_bytes) * (1 - job_.limits.memory_reserve_ratio);
        if (most > cap * (1 + kRounding)) {
          complain(
              "during the switch a device of stage {} of replica {} on node {} holds {:.2f} GB, "
              "what it gives and what arrives, of the {:.2f} GB that {} offers after the reserve "
              "of {:.0f} %",
              s, r, name_of(*now.position), most / kGigabyte, cap / kGigabyte, type.name,
              job_.limits.memory_reserve_ratio * 100);
        }
      }
    }
  }

  /// Bytes on a device between the arrival of its new layers and the end of its old ones.
  double device_bytes(const Holder* before, const Holder& now) {
    if (before == nullptr) {
      return arriving_bytes(Holder{}, now);
    }
    const bool stays = before->replica == now.replica && *before->position == *now.position &&
                       same_layers(*before, now);
    const std::vector<double>& params = params_before(*before->position);
    double held = 0;
    for (const LayerRange& range : before->layers) {
      held += params[range.last] - params[range.first];
    }
    return held * (job_.bytes_per_param + job_.gradient_bytes_per_param + optimizer_bytes(from_)) +
           (stays ? 0 : arriving_bytes(*before, now));
  }

  /// Of a parameter, in one replica.
  [[nodiscard]] double optimizer_bytes(const Plan& plan) const {
    return job_.optimizer_bytes_per_param / (job_.zero_stage > 0 ? plan.replicas() : 1);
  }

  double arriving_bytes(const Holder& before, const Holder& now) {
    const std::vector<double>& params = params_before(*now.position);
    const bool same_group = before.position != nullptr && *before.position == *now.position;
    double bytes = 0;
    for (const LayerRange& range : now.layers) {
      for (std::uint32_t l = range.first; l < range.last; ++l) {
        const double of_layer = params[l + 1] - params[l];
        if (!same_group || !holds(before, l)) {
          bytes += of_layer * (job_.bytes_per_param + optimizer_bytes(to_));
        } else if (job_.zero_stage > 0 && before.replica != now.replica % from_.replicas()) {
          bytes += of_layer * optimizer_bytes(to_);
        }
      }
    }
    return bytes;
  }

  /// Parameters of all layers before each one, on one device of a group like this.
  const std::vector<double>& params_before(const Position& position) {
    auto& params =
        params_[{job_.cluster.nodes[position.node.value()].type, position.devices.size()}];
    if (params.empty()) {
      params.reserve(layers_ + std::size_t{1});
      params.push_back(0);
      for (std::uint32_t l = 0; l < layers_; ++l) {
        params.push_back(params.back() + memory_.params(position, {l, l + 1}));
      }
    }
    return params;
  }

  [[nodiscard]] Holder holder(const Plan& plan, std::uint32_t r, std::uint32_t s) const {
    Holder holder{&plan.placement[r][s], r, {}};
    const auto& cuts = plan.splits_of(r);
    for (std::size_t k = s; k < cuts.size(); k += plan.stages()) {
      holder.layers.push_back({cuts[k], k + 1 < cuts.size() ? cuts[k + 1] : layers_});
    }
    return holder;
  }

  void index_devices() {
    holders_.resize(job_.cluster.nodes.size());
    for (std::uint32_t n = 0; n < holders_.size(); ++n) {
      holders_[n].resize(job_.cluster.type_of(NodeId(n)).devices, nullptr);
    }
    old_.reserve(std::size_t{from_.replicas()} * from_.stages());
    for (std::uint32_t r = 0; r < from_.replicas(); ++r) {
      for (std::uint32_t s = 0; s < from_.stages(); ++s) {
        old_.push_back(holder(from_, r, s));
        for (const std::uint16_t device : old_.back().position->devices) {
          holders_[old_.back().position->node.value()][device] = &old_.back();
        }
      }
    }
  }

  [[nodiscard]] const std::string& name_of(const Position& position) const {
    return job_.cluster.nodes[position.node.value()].name;
  }
  [[nodiscard]] static std::string devices_of(const Position& position) {
    return fmt::format("devices {}", fmt::join(position.devices, ", "));
  }

  const Job& job_;
  const Plan& from_;
  const Plan& to_;
  const std::uint32_t layers_;
  const MemoryCheck memory_;
  std::vector<Holder> old_;                          ///< of the plan that runs
  std::vector<std::vector<const Holder*>> holders_;  ///< [node][device]; null = idle
  std::map<std::pair<std::uint32_t, std::size_t>, std::vector<double>> params_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> switch_violations(const Job& job, const Plan& from, const Plan& to) {
  if (to.micro_batch_size != 0 && to.micro_batch_size != job.graph.micro_batch_size) {
    return switch_violations(with_micro_batch_size(job, to.micro_batch_size), from, to);
  }
  return SwitchChecker(job, from, to).run();
}

}  // namespace tapas::solver
