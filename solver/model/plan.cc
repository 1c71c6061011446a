#include "solver/model/plan.h"

#include <algorithm>

namespace tapas::solver {

namespace {

std::uint32_t stage_of_layer(const std::vector<std::uint32_t>& splits, std::uint32_t layer) {
  const auto next = std::upper_bound(splits.begin(), splits.end(), layer);
  return static_cast<std::uint32_t>(next - splits.begin()) - 1;
}

}  // namespace

LayerRange stage_layers(const Plan& plan, std::uint32_t replica, std::uint32_t stage,
                        std::uint32_t layers) {
  const std::vector<std::uint32_t>& splits = plan.splits_of(replica);
  return {splits[stage], stage + 1 < splits.size() ? splits[stage + 1] : layers};
}

std::vector<LayerMove> moves_between(const Job& job, const Plan& before, const Plan& after) {
  std::vector<LayerMove> moves;
  if (before.replicas() == 0) {
    return moves;
  }
  const std::uint32_t layers = job.graph.layer_count();
  std::vector<double> layer_params(layers);
  for (const OpNode& node : job.graph.nodes) {
    layer_params[node.layer] += node.param_bytes / job.bytes_per_param;
  }
  const bool shared = job.zero_stage >= 1;  // a replica holds its share of the optimizer state only
  const double optimizer = job.optimizer_bytes_per_param / (shared ? after.replicas() : 1);
  struct Place {
    std::uint32_t replica = 0;
    std::uint32_t stage = 0;
  };
  std::vector<std::vector<Place>> places(job.cluster.nodes.size());  // of each node
  for (std::uint32_t r = 0; r < before.replicas(); ++r) {
    for (std::uint32_t s = 0; s < before.stages(); ++s) {
      places[before.placement[r][s].node.value()].push_back({r, s});
    }
  }
  const auto held = [&](const Position& position, std::uint32_t layer, std::uint32_t not_by) {
    const std::vector<Place>& here = places[position.node.value()];
    return std::any_of(here.begin(), here.end(), [&](const Place& place) {
      return place.replica != not_by && before.placement[place.replica][place.stage] == position &&
             stage_of_layer(before.splits_of(place.replica), layer) % before.stages() ==
                 place.stage;
    });
  };
  for (std::uint32_t replica = 0; replica < after.replicas(); ++replica) {
    const std::uint32_t donor = replica % before.replicas();
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const std::uint32_t from_stage =
          stage_of_layer(before.splits_of(donor), layer) % before.stages();
      const std::uint32_t to_stage =
          stage_of_layer(after.splits_of(replica), layer) % after.stages();
      const Position& from = before.placement[donor][from_stage];
      const Position& to = after.placement[replica][to_stage];
      if (from == to) {
        continue;
      }
      const bool has_parameters = held(to, layer, donor);
      if (has_parameters && !shared) {
        continue;
      }
      const double bytes_per_param = optimizer + (has_parameters ? 0 : job.bytes_per_param);
      moves.push_back(
          {replica, layer, from_stage, to_stage, from, to, layer_params[layer] * bytes_per_param});
    }
  }
  return moves;
}

}  // namespace tapas::solver
