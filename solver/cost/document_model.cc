#include "solver/cost/document_model.h"

#include "solver/cost/layer_table.h"

#include <algorithm>
#include <map>

namespace tapas::solver {

LayerTimes DocumentModel::layer_times(std::uint32_t layer, const Sharding& sharding) const {
  const NodeType& node = job_.cluster.node_types[sharding.node_type];
  const double rate = job_.cluster.device_types[node.device_type].peak_flops * sharding.width;
  LayerTimes times;
  for (const OpNode& op : job_.graph.nodes) {
    if (op.layer == layer) {
      times.forward_s += op.fwd_flops / rate;  // comp_time = flop / (peak * tp)
      times.backward_s += op.bwd_flops / rate;
    }
  }
  return times;
}

Hop DocumentModel::hop(const Link& /*link*/, const Sharding& sharding, double bytes,
                       std::uint32_t stages) const {
  // pp_comm = size * 2 (1 - 1/pp), both directions together; half of it in each.
  const NodeType& node = job_.cluster.node_types[sharding.node_type];
  const double pp_comm = bytes * 2 * (1 - 1 / static_cast<double>(stages));
  return {0, pp_comm / 2 / node.nic_bytes_per_s};
}

StepTail DocumentModel::step_tail(const Ring& /*ring*/, const Sharding& sharding) const {
  // tp_comm = 2 (param + grad) (tp - 1) / tp over the whole, unsharded parameters; `params` of a
  // device is 1/tp of them.
  const NodeType& node = job_.cluster.node_types[sharding.node_type];
  const double bytes = job_.bytes_per_param + job_.gradient_bytes_per_param;
  return {0, 2 * bytes * (sharding.width - 1) / node.fast_link_bytes_per_s};
}

double document_objective(const Job& job, const Plan& plan) {
  const DocumentModel model(job);
  std::map<Sharding, LayerTable> tables;
  const auto all = static_cast<std::uint32_t>(plan.pp_splits.size());
  double tp_comm = 0;
  double pp_comm = 0;
  for (std::uint32_t k = 0; k < all; ++k) {
    const LayerRange range = stage_layers(plan, 0, k, job.graph.layer_count());
    const Position& position = plan.placement[0][k % plan.stages()];
    const Sharding sharding{job.cluster.nodes[position.node.value()].type,
                            static_cast<std::uint16_t>(position.devices.size()), plan.sp_width > 1};
    const LayerTable& table = tables.try_emplace(sharding, job, model, sharding).first->second;
    tp_comm += model.step_tail({}, sharding).sync_s(table.sum(range).params);
    if (k + 1 < all) {
      pp_comm = std::max(
          pp_comm, 2 * model.hop({}, sharding, table.cut_bytes(range.last), plan.stages()).busy_s);
    }
  }
  const Prediction& p = plan.predicted;
  const ObjectiveWeights& weights = job.search.weights;
  return weights.memory_per_byte *
             *std::max_element(p.stage_memory_bytes.begin(), p.stage_memory_bytes.end()) +
         weights.communication_per_s * (tp_comm + pp_comm) +
         weights.stage_time_per_s * *std::max_element(p.stage_time_s.begin(), p.stage_time_s.end());
}

}  // namespace tapas::solver
