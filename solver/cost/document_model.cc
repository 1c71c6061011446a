#include "solver/cost/document_model.h"

#include "solver/cost/layer_table.h"

#include <algorithm>

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
  const std::uint32_t node_type = job.cluster.nodes[plan.placement[0][0].node.value()].type;
  const Sharding sharding{node_type, plan.tp_width.front(), plan.sp_width > 1};
  const LayerTable table(job, model, sharding);
  double communication =
      model.step_tail({}, sharding).per_param_s * table.sum({0, table.layers()}).params;
  if (plan.stages() > 1) {
    communication +=
        2 * model.hop({}, sharding, table.cut_bytes(plan.pp_splits[1]), plan.stages()).busy_s;
  }
  const Prediction& p = plan.predicted;
  const ObjectiveWeights& weights = job.search.weights;
  return weights.memory_per_byte *
             *std::max_element(p.stage_memory_bytes.begin(), p.stage_memory_bytes.end()) +
         weights.communication_per_s * communication +
         weights.stage_time_per_s * *std::max_element(p.stage_time_s.begin(), p.stage_time_s.end());
}

}  // namespace tapas::solver
