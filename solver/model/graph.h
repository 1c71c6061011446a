#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tapas::solver {

enum class OpKind : std::uint8_t {
  kEmbedding,
  kMoe,
  kColumnParallelLinear,
  kRowParallelLinear,
  kAttention,
  kNorm,
  kHead,
  kOther,
};
std::string_view to_string(OpKind kind);
[[nodiscard]] Result<OpKind> op_kind_from(std::string_view word);

/// What profiling gave for one operator on one kind of device: seconds and bytes of one device of
/// its TP group, for one microbatch of `micro_batch_size` samples. They take the place of what the
/// cost model would work out.
struct MeasuredOp {
  std::string device;  ///< DeviceType::name
  std::uint32_t micro_batch_size = 1;
  std::uint16_t tp_width = 1;
  double forward_s = 0;
  double backward_s = 0;  ///< without recomputation
  /// TP collectives, beside the times above: absent = the cost model's own, 0 = within the times.
  std::optional<double> forward_comm_s = {};
  std::optional<double> backward_comm_s = {};
  /// Absent = the operator's own bytes, divided by the width as its kind says.
  std::optional<double> param_bytes = {};
  std::optional<double> act_bytes = {};
  std::optional<double> work_bytes = {};
};

/// One operator. Flops and bytes are those of one microbatch at TP width 1; parameters count once.
struct OpNode {
  std::uint32_t id = 0;
  std::string name;
  OpKind kind = OpKind::kOther;
  std::uint32_t layer = 0;
  double fwd_flops = 0;
  double bwd_flops = 0;
  double param_bytes = 0;  ///< in the job's data type
  double act_bytes = 0;    ///< stashed for the backward pass
  double work_bytes = 0;   ///< scratch memory while the operator runs
  double out_bytes = 0;
  /// Moved to and from device memory besides what matrix products stream: element-wise passes,
  /// stored attention scores, the loss. 0 = by kind: nothing for matrix products and attention, 2
  /// and 3 times out_bytes for the others.
  double fwd_moved_bytes = 0;
  double bwd_moved_bytes = 0;
  std::vector<MeasuredOp> measured = {};  ///< one per device, micro-batch size and TP width
};

struct OpEdge {
  std::uint32_t src = 0;
  std::uint32_t dst = 0;
  double bytes = 0;
  std::string dtype;
};

/// A model as operators in topological order. Layers are numbered 0..layer_count-1 without gaps,
/// never decrease along `nodes`, and are the only places where a pipeline may be cut.
struct Graph {
  std::string name;
  std::uint32_t micro_batch_size = 1;  ///< samples per microbatch that the numbers stand for
  std::uint32_t sequence_length = 0;
  std::uint32_t hidden_size = 0;
  std::vector<OpNode> nodes;
  std::vector<OpEdge> edges;

  [[nodiscard]] std::uint32_t layer_count() const {
    return nodes.empty() ? 0 : nodes.back().layer + 1;
  }
};

/// Where in Graph::nodes an id stands.
class NodePlaces {
 public:
  explicit NodePlaces(const Graph& graph);
  /// Requires a node with this id.
  [[nodiscard]] std::size_t operator[](std::uint32_t id) const;

 private:
  std::vector<std::pair<std::uint32_t, std::size_t>> by_id_;
};

/// Requires what the comment on Graph promises; the error names the node and what is wrong.
[[nodiscard]] Result<void> validate(const Graph& graph);

/// The entry for this device, micro-batch size and width; null when there is none.
[[nodiscard]] const MeasuredOp* find_measured(const OpNode& op, std::string_view device,
                                              std::uint32_t micro_batch_size, std::uint32_t width);

/// Fails when an operator was profiled but not for this device and width at the graph's micro-batch
/// size, as when the profiling run had no memory left: such a width cannot be planned. An operator
/// that was profiled on other devices only is worked out from its flops, and fails without any.
[[nodiscard]] Result<void> check_measured(const Graph& graph, std::string_view device,
                                          std::uint32_t width);

}  // namespace tapas::solver
