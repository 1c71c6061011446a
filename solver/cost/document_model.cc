#include "solver/cost/document_model.h"

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

}  // namespace tapas::solver
