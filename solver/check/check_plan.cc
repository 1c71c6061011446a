#include "solver/check/check_plan.h"

#include "solver/check/check_memory.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kGigabyte = 1e9;
// Two correct programs may add the same bytes in another order.
constexpr double kRounding = 1e-9;

class Checker {
 public:
  Checker(const Job& job, const Plan& plan)
      : job_(job), plan_(plan), layers_(job.graph.layer_count()) {}

  std::vector<std::string> run() {
    check_shapes();
    if (found_.empty()) {  // the rest indexes by these shapes
      check_widths();
      check_placement();
    }
    if (found_.empty()) {
      check_microbatches();
      check_capabilities();
      check_stages();
      check_prediction();
    }
    return std::move(found_);
  }

 private:
  template <typename... Args>
  void complain(fmt::format_string<Args...> format, Args&&... args) {
    found_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  /// Of a replica, or the common ones.
  void check_cuts(const std::vector<std::uint32_t>& cuts, std::optional<std::size_t> replica = {}) {
    const auto name = [&] {
      return replica ? fmt::format("replica_splits[{}]", *replica) : std::string("pp_splits");
    };
    if (cuts.empty() || cuts.front() != 0) {
      complain("{} must start with layer 0, so layer 0 has no stage", name());
      return;
    }
    for (std::size_t s = 1; s < cuts.size(); ++s) {
      if (cuts[s] <= cuts[s - 1]) {
        complain("{} does not grow at stage {}: layer {} follows layer {}", name(), s, cuts[s],
                 cuts[s - 1]);
      }
    }
    if (cuts.back() >= layers_) {
      complain("{} starts a stage at layer {}, but the model has layers 0 to {}", name(),
               cuts.back(), layers_ - 1);
    }
  }

  void check_interleave() {
    const std::size_t chunks = plan_.interleave;
    if (chunks == 1) {
      return;
    }
    if (plan_.schedule != Schedule::kInterleaved) {
      complain("interleave is {}, but schedule {} runs one stage per device group", chunks,
               to_string(plan_.schedule));
    }
    if (chunks == 0 || plan_.pp_splits.size() % chunks != 0 ||
        plan_.pp_splits.size() < 2 * chunks) {
      complain("pp_splits has {} stages; interleave {} needs a multiple of it, at least twice",
               plan_.pp_splits.size(), chunks);
      return;
    }
    for (std::size_t r = 0; r < plan_.microbatches.size(); ++r) {
      if (plan_.microbatches[r] % plan_.stages() != 0) {
        complain(
            "replica {} has {} microbatches; interleaving over {} device groups needs a "
            "multiple of {}",
            r, plan_.microbatches[r], plan_.stages(), plan_.stages());
      }
    }
  }

  void check_shapes() {
    if (plan_.job != job_.name) {
      complain("the plan is for job \"{}\", not for \"{}\"", plan_.job, job_.name);
    }
    if (plan_.schedule != job_.schedule) {
      complain("the plan's schedule is {}, the job's is {}", to_string(plan_.schedule),
               to_string(job_.schedule));
    }
    check_interleave();
    check_cuts(plan_.pp_splits);
    if (plan_.tp_width.size() != layers_) {
      complain("tp_width has {} entries for {} layers", plan_.tp_width.size(), layers_);
    }
    if (plan_.checkpoint.size() != layers_) {
      complain("checkpoint has {} entries for {} layers", plan_.checkpoint.size(), layers_);
    }
    if (plan_.placement.empty()) {
      complain("placement has no replica");
    }
    if (plan_.microbatches.size() != plan_.placement.size()) {
      complain("microbatches has {} entries for {} replicas", plan_.microbatches.size(),
               plan_.placement.size());
    }
    for (std::size_t r = 0; r < plan_.placement.size(); ++r) {
      if (plan_.interleave != 0 &&
          plan_.placement[r].size() * plan_.interleave != plan_.pp_splits.size()) {
        complain("replica {} places {} stages, but pp_splits has {}{}", r,
                 plan_.placement[r].size(), plan_.pp_splits.size(),
                 plan_.interleave > 1 ? fmt::format(" for interleave {}", plan_.interleave) : "");
      }
    }
    if (!plan_.replica_splits.empty() && plan_.replica_splits.size() != plan_.placement.size()) {
      complain("replica_splits has {} entries for {} replicas", plan_.replica_splits.size(),
               plan_.placement.size());
    }
    for (std::size_t r = 0; r < plan_.replica_splits.size(); ++r) {
      const auto& cuts = plan_.replica_splits[r];
      if (cuts.empty()) {
        continue;
      }
      if (cuts.size() != plan_.pp_splits.size()) {
        complain("replica_splits[{}] has {} stages, but pp_splits has {}", r, cuts.size(),
                 plan_.pp_splits.size());
      }
      check_cuts(cuts, r);
    }
    if (!plan_.replica_checkpoint.empty() &&
        plan_.replica_checkpoint.size() != plan_.placement.size()) {
      complain("replica_checkpoint has {} entries for {} replicas", plan_.replica_checkpoint.size(),
               plan_.placement.size());
    }
    for (std::size_t r = 0; r < plan_.replica_checkpoint.size(); ++r) {
      const std::size_t flags = plan_.replica_checkpoint[r].size();
      if (flags != 0 && flags != layers_) {
        complain("replica_checkpoint[{}] has {} entries for {} layers", r, flags, layers_);
      }
    }
  }

  [[nodiscard]] LayerRange range_of(const std::vector<std::uint32_t>& cuts, std::size_t k) const {
    return {cuts[k], k + 1 < cuts.size() ? cuts[k + 1] : layers_};
  }

  void check_widths() {
    const std::uint16_t widest = *std::max_element(plan_.tp_width.begin(), plan_.tp_width.end());
    if (plan_.sp_width != 1 && plan_.sp_width != widest) {
      complain("sp_width is {}; it must be 1 or the largest TP width {}", plan_.sp_width, widest);
    }
    for (std::uint32_t l = 0; l < layers_; ++l) {
      if (plan_.tp_width[l] == 0) {
        complain("layer {} has TP width 0", l);
      }
    }
    for (std::uint32_t r = 0; r < plan_.replicas(); ++r) {
      const auto& cuts = plan_.splits_of(r);
      for (std::uint32_t k = 0; k < cuts.size(); ++k) {
        const LayerRange range = range_of(cuts, k);
        const std::uint16_t width = plan_.tp_width[range.first];
        const auto other =
            std::find_if(plan_.tp_width.begin() + range.first, plan_.tp_width.begin() + range.last,
                         [&](std::uint16_t w) { return w != width; });
        if (other != plan_.tp_width.begin() + range.last) {
          complain("stage {} of replica {} mixes TP widths {} and {}", k, r, width, *other);
        }
        check_group(k, r, plan_.placement[r][k % plan_.stages()].devices.size(), width);
      }
    }
  }

  void check_group(std::size_t k, std::uint32_t r, std::size_t devices, std::uint16_t width) {
    const bool part = devices > 0 && devices < width;
    if (devices == width || (part && job_.capabilities.narrower_groups && width % devices == 0)) {
      return;
    }
    complain("stage {} of replica {} has {} devices for TP width {}{}", k, r, devices, width,
             !part ? ""
             : job_.capabilities.narrower_groups
                 ? "; a narrower group must divide it"
                 : ", and the job's runtime runs no narrower groups");
  }

  void check_placement() {
    const Cluster& cluster = job_.cluster;
    struct User {
      std::uint32_t replica = 0;
      std::uint32_t stage = 0;
    };
    std::vector<std::size_t> first(cluster.nodes.size() + 1, 0);  // device of each node
    for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
      first[n + 1] = first[n] + cluster.node_types[cluster.nodes[n].type].devices;
    }
    std::vector<std::optional<User>> taken(first.back());
    // Devices per node, also those that a narrower group leaves idle.
    std::vector<std::uint32_t> used(cluster.nodes.size(), 0);
    for (std::uint32_t r = 0; r < plan_.replicas(); ++r) {
      for (std::uint32_t s = 0; s < plan_.stages(); ++s) {
        const Position& position = plan_.placement[r][s];
        const std::uint32_t node = position.node.value();
        if (node >= cluster.nodes.size()) {
          complain("stage {} of replica {} is on node {}, but the cluster has {} nodes", s, r, node,
                   cluster.nodes.size());
          continue;
        }
        const std::size_t devices = first[node + 1] - first[node];
        for (const std::uint16_t device : position.devices) {
          if (device >= devices) {
            complain("stage {} of replica {} uses device {} of node {}, which has {}", s, r, device,
                     cluster.nodes[node].name, devices);
          } else if (const std::optional<User> other =
                         std::exchange(taken[first[node] + device], {{r, s}})) {
            complain(
                "device {} of node {} is used by stage {} of replica {} and by stage {} of "
                "replica {}",
                device, cluster.nodes[node].name, other->stage, other->replica, s, r);
          }
        }
        used[node] += plan_.tp_width[plan_.splits_of(r)[s]];
        const NodeId partner = plan_.placement[0][s].node;
        if (partner.value() < cluster.nodes.size() &&
            cluster.nodes[partner.value()].type != cluster.nodes[node].type &&
            cluster.device_type_of(partner).collective_library !=
                cluster.device_type_of(position.node).collective_library) {
          complain(
              "stage {} runs on {} in replica 0 and on {} in replica {}; these cannot reduce "
              "gradients together",
              s, cluster.device_type_of(partner).name, cluster.device_type_of(position.node).name,
              r);
        }
      }
    }
    for (std::size_t n = 0; n < used.size(); ++n) {
      if (cluster.nodes[n].spare && used[n] != 0 && used[n] != first[n + 1] - first[n]) {
        complain("spare node {} is used with {} of its {} devices; a spare is used whole or not",
                 cluster.nodes[n].name, used[n], first[n + 1] - first[n]);
      }
    }
  }

  void check_microbatches() {
    std::uint64_t sum = 0;
    for (std::size_t r = 0; r < plan_.microbatches.size(); ++r) {
      if (plan_.microbatches[r] == 0) {
        complain("replica {} has no microbatch", r);
      }
      sum += plan_.microbatches[r];
    }
    if (sum != job_.total_microbatches()) {
      complain("microbatches add up to {}, but a batch of {} in microbatches of {} needs {}", sum,
               job_.global_batch, job_.graph.micro_batch_size, job_.total_microbatches());
    }
  }

  void check_capabilities() {
    const auto differs = [&](const auto& cuts) { return !cuts.empty() && cuts != plan_.pp_splits; };
    if (!job_.capabilities.replica_splits &&
        std::any_of(plan_.replica_splits.begin(), plan_.replica_splits.end(), differs)) {
      complain("replicas are cut differently, which the job's runtime cannot do");
    }
    if (!job_.capabilities.recompute &&
        std::any_of(
            plan_.replica_checkpoint.begin(), plan_.replica_checkpoint.end(),
            [&](const auto& flags) { return !flags.empty() && flags != plan_.checkpoint; })) {
      complain("replicas recompute different layers, which the job's runtime cannot do");
    }
    const auto [least, most] =
        std::minmax_element(plan_.microbatches.begin(), plan_.microbatches.end());
    if (!job_.capabilities.microbatch_counts && *most - *least > 1) {
      complain("replicas take {} to {} microbatches, but the job's runtime needs equal counts",
               *least, *most);
    }
  }

  /// Of a layer and microbatch.
  struct Flops {
    double all = 0;
    double forward = 0;
  };

  void check_stages() {
    const MemoryCheck memory(job_);
    std::vector<Flops> flops(layers_);
    for (const OpNode& op : job_.graph.nodes) {
      flops[op.layer].all += op.fwd_flops + op.bwd_flops;
      flops[op.layer].forward += op.fwd_flops;
    }
    // Equal stages of other replicas would repeat the sentence.
    std::vector<std::vector<std::uint32_t>> seen(plan_.stages());
    for (std::uint32_t r = 0; r < plan_.replicas(); ++r) {
      for (std::uint32_t s = 0; s < plan_.stages(); ++s) {
        if (std::any_of(seen[s].begin(), seen[s].end(),
                        [&](std::uint32_t other) { return same_stage(s, r, other); })) {
          continue;
        }
        seen[s].push_back(r);
        const std::vector<LayerRange> chunks = chunks_of(s, r);
        check_stage_memory(r, s, group_bytes(memory, chunks, s, r));
        check_stage_recompute(r, s, chunks, flops);
      }
    }
  }

  [[nodiscard]] std::vector<LayerRange> chunks_of(std::uint32_t s, std::uint32_t r) const {
    const auto& cuts = plan_.splits_of(r);
    std::vector<LayerRange> chunks;
    for (std::size_t k = s; k < cuts.size(); k += plan_.stages()) {
      chunks.push_back(range_of(cuts, k));
    }
    return chunks;
  }

  /// Whether the stage needs the same memory and recomputes as much in both replicas.
  [[nodiscard]] bool same_stage(std::uint32_t s, std::uint32_t a, std::uint32_t b) const {
    const Position& here = plan_.placement[a][s];
    const Position& there = plan_.placement[b][s];
    if (held_by(s, a) != held_by(s, b) || here.devices.size() != there.devices.size() ||
        job_.cluster.nodes[here.node.value()].type != job_.cluster.nodes[there.node.value()].type) {
      return false;
    }
    const auto& cuts = plan_.splits_of(a);
    const auto& other_cuts = plan_.splits_of(b);
    const std::vector<bool>& flags = plan_.checkpoint_of(a);
    const std::vector<bool>& other_flags = plan_.checkpoint_of(b);
    for (std::size_t k = s; k < cuts.size(); k += plan_.stages()) {
      const LayerRange range = range_of(cuts, k);
      const LayerRange other = range_of(other_cuts, k);
      if (range.first != other.first || range.last != other.last) {
        return false;
      }
      for (std::uint32_t l = range.first; l < range.last && &flags != &other_flags; ++l) {
        if (flags[l] != other_flags[l]) {
          return false;
        }
      }
    }
    return true;
  }

  /// Microbatches that decide what a device group holds at once.
  [[nodiscard]] std::uint32_t held_by(std::uint32_t s, std::uint32_t r) const {
    const std::uint32_t m = plan_.microbatches[r];
    return plan_.interleave > 1 || plan_.schedule == Schedule::kGpipe
               ? m
               : std::min(m, plan_.stages() - s);
  }

  [[nodiscard]] double group_bytes(const MemoryCheck& memory, const std::vector<LayerRange>& chunks,
                                   std::uint32_t s, std::uint32_t r) const {
    const Position& position = plan_.placement[r][s];
    const auto bytes = [&](const LayerRange& range, std::uint32_t held) {
      return memory.stage_bytes(plan_, position, plan_.checkpoint_of(r), range, held);
    };
    if (chunks.size() == 1) {
      return bytes(chunks.front(), held_by(s, r));
    }
    // Parameters of all chunks, the scratch of the chunk at work, and what the microbatches hold.
    double state = 0;
    double scratch = 0;
    std::vector<double> each;
    for (const LayerRange& range : chunks) {
      const double idle = bytes(range, 0);
      const double chunk_state = memory.state_bytes(plan_, position, range);
      state += chunk_state;
      scratch = std::max(scratch, idle - chunk_state);
      each.push_back(bytes(range, 1) - idle);
    }
    return state + scratch + interleaved_peak(each, s, plan_.microbatches[r]);
  }

  /// Walks the interleaved order: forwards go through groups of as many microbatches as there are
  /// device groups, chunk after chunk, backwards likewise from the last chunk.
  [[nodiscard]] double interleaved_peak(const std::vector<double>& each, std::uint32_t s,
                                        std::uint32_t m) const {
    const std::uint32_t p = plan_.stages();
    const auto v = static_cast<std::uint32_t>(each.size());
    std::vector<std::uint32_t> chunk_of;
    for (std::uint32_t first = 0; first < m; first += p) {
      for (std::uint32_t c = 0; c < v; ++c) {
        chunk_of.insert(chunk_of.end(), p, c);
      }
    }
    const std::size_t warm = std::min<std::size_t>(chunk_of.size(), (p - s - 1) * 2 + (v - 1) * p);
    double held = 0;
    double peak = 0;
    for (std::size_t k = 0; k < chunk_of.size() + warm; ++k) {
      if (k < chunk_of.size()) {
        held += each[chunk_of[k]];
        peak = std::max(peak, held);
      }
      if (k >= warm) {
        held -= each[v - 1 - chunk_of[k - warm]];
      }
    }
    return peak;
  }

  void check_stage_memory(std::uint32_t r, std::uint32_t s, double needed) {
    const DeviceType& device = job_.cluster.device_type_of(plan_.placement[r][s].node);
    const double own = job_.limits.device_memory_bytes;
    const double cap =
        (own > 0 ? own : device.memory_bytes) * (1 - job_.limits.memory_reserve_ratio);
    if (needed > cap * (1 + kRounding)) {
      complain(
          "stage {} of replica {} needs {:.2f} GB of the {:.2f} GB that {} offers after the "
          "reserve of {:.0f} %",
          s, r, needed / kGigabyte, cap / kGigabyte, device.name,
          job_.limits.memory_reserve_ratio * 100);
    }
  }

  void check_stage_recompute(std::uint32_t r, std::uint32_t s,
                             const std::vector<LayerRange>& chunks,
                             const std::vector<Flops>& flops) {
    const std::vector<bool>& recomputed = plan_.checkpoint_of(r);
    double all = 0;
    double again = 0;
    for (const LayerRange& range : chunks) {
      for (std::uint32_t l = range.first; l < range.last; ++l) {
        all += flops[l].all;
        again += recomputed[l] ? flops[l].forward : 0;
      }
    }
    if (again > job_.limits.recompute_ratio * all * (1 + kRounding)) {
      complain("stage {} of replica {} recomputes {:.1f} % of its compute, the limit is {:.1f} %",
               s, r, again / all * 100, job_.limits.recompute_ratio * 100);
    }
  }

  void check_prediction() {
    const double step = plan_.predicted.step_time_s;
    if (!std::isfinite(step) || step < 0) {
      complain("the predicted step time {} s is not a time", step);
      return;
    }
    if (job_.limits.step_time_s > 0 && step > job_.limits.step_time_s) {
      complain("the predicted step time {:.3f} s is over the limit of {:.3f} s", step,
               job_.limits.step_time_s);
    }
    double flops = 0;
    for (const OpNode& op : job_.graph.nodes) {
      flops += op.fwd_flops + op.bwd_flops;
    }
    double peak = 0;
    for (const auto& row : plan_.placement) {
      for (const Position& position : row) {
        peak += job_.cluster.device_type_of(position.node).peak_flops *
                static_cast<double>(position.devices.size());
      }
    }
    const double floor = flops * job_.total_microbatches() / peak;
    if (step > 0 && step < floor * (1 - kRounding)) {
      complain(
          "the predicted step time {:.3f} s is impossible: the devices' peak alone allows "
          "{:.3f} s",
          step, floor);
    }
  }

  const Job& job_;
  const Plan& plan_;
  const std::uint32_t layers_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> plan_violations(const Job& job, const Plan& plan) {
  const std::uint32_t size = plan.micro_batch_size;
  if (size == 0 || size == job.graph.micro_batch_size) {
    return Checker(job, plan).run();
  }
  const auto& sizes = job.search.micro_batch_sizes;
  if (std::find(sizes.begin(), sizes.end(), size) == sizes.end() || job.global_batch % size != 0) {
    return {fmt::format("the plan takes {} samples per microbatch, which the job does not allow",
                        size)};
  }
  const Job sized = with_micro_batch_size(job, size);
  return Checker(sized, plan).run();
}

Result<void> check_plan(const Job& job, const Plan& plan) {
  const std::vector<std::string> found = plan_violations(job, plan);
  if (found.empty()) {
    return {};
  }
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t k = 0; k < std::min(kShown, found.size()); ++k) {
    text += (k > 0 ? "; " : "") + found[k];
  }
  if (found.size() > kShown) {
    text += fmt::format("; and {} more", found.size() - kShown);
  }
  return fail(ErrorCode::kInvalid, "the plan is not valid: {}", text);
}

}  // namespace tapas::solver
