#include "solver/model/io/load.h"
#include "solver/model/io/read.h"

#include <utility>

namespace tapas::solver {

namespace io {

namespace {

constexpr std::size_t kMaxNodes = 200'000;
constexpr std::size_t kMaxEdges = 1'000'000;
constexpr std::int64_t kMaxId = (std::int64_t{1} << 32) - 1;

constexpr std::size_t kMaxMeasured = 4096;

Result<MeasuredOp> read_measured(const json::Value& value, const std::string& where) {
  json::ObjectReader in(value, where);
  MeasuredOp measured;
  measured.device = in.string("device");
  measured.micro_batch_size = u32(in, "micro_batch_size", 1, 1 << 16);
  measured.tp_width = static_cast<std::uint16_t>(in.integer("tp_width", 1, 1 << 12));
  measured.forward_s = in.number("forward_s", 0, kMaxAmount);
  measured.backward_s = in.number("backward_s", 0, kMaxAmount);
  for (const auto& [key, amount] : {std::pair("forward_comm_s", &measured.forward_comm_s),
                                    std::pair("backward_comm_s", &measured.backward_comm_s),
                                    std::pair("param_bytes", &measured.param_bytes),
                                    std::pair("act_bytes", &measured.act_bytes),
                                    std::pair("work_bytes", &measured.work_bytes)}) {
    if (in.has(key)) {
      *amount = in.number(key, 0, kMaxAmount);
    }
  }
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  return measured;
}

json::Value measured_to_json(const std::vector<MeasuredOp>& measured) {
  json::Value out = json::Value::array();
  for (const MeasuredOp& m : measured) {
    json::Value entry = {{"device", m.device},
                         {"micro_batch_size", m.micro_batch_size},
                         {"tp_width", m.tp_width},
                         {"forward_s", m.forward_s},
                         {"backward_s", m.backward_s}};
    for (const auto& [key, amount] :
         {std::pair("forward_comm_s", m.forward_comm_s),
          std::pair("backward_comm_s", m.backward_comm_s), std::pair("param_bytes", m.param_bytes),
          std::pair("act_bytes", m.act_bytes), std::pair("work_bytes", m.work_bytes)}) {
      if (amount) {
        entry[key] = *amount;
      }
    }
    out.push_back(std::move(entry));
  }
  return out;
}

Result<OpNode> read_node(const json::Value& value, const std::string& where) {
  json::ObjectReader in(value, where);
  OpNode node;
  node.id = u32(in, "id", 0, kMaxId);
  node.name = in.string("name");
  const std::string kind = in.string("kind");
  node.layer = u32(in, "layer", 0, 1 << 20);
  node.fwd_flops = in.number("fwd_flops", 0, kMaxAmount);
  node.bwd_flops = in.number("bwd_flops", 0, kMaxAmount);
  node.param_bytes = in.number("param_bytes", 0, kMaxAmount);
  node.act_bytes = in.number("act_bytes", 0, kMaxAmount);
  node.work_bytes = in.number("work_bytes", 0, kMaxAmount);
  node.out_bytes = in.number("out_bytes", 0, kMaxAmount);
  node.fwd_moved_bytes = in.number_or("fwd_moved_bytes", 0, 0, kMaxAmount);
  node.bwd_moved_bytes = in.number_or("bwd_moved_bytes", 0, 0, kMaxAmount);
  if (in.has("measured")) {
    const json::Value& entries = in.array("measured", kMaxMeasured);
    for (std::size_t i = 0; i < entries.size() && in.ok(); ++i) {
      if (auto entry = read_measured(entries[i], in.child("measured", i))) {
        node.measured.push_back(std::move(*entry));
      } else {
        in.absorb(entry.error());
      }
    }
  }
  if (in.ok()) {
    if (const auto known = op_kind_from(kind)) {
      node.kind = *known;
    } else {
      in.absorb(
          {ErrorCode::kInvalid, fmt::format("{}: {}", in.child("kind"), known.error().message)});
    }
  }
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  return node;
}

Result<OpEdge> read_edge(const json::Value& value, const std::string& where) {
  json::ObjectReader in(value, where);
  OpEdge edge;
  edge.src = u32(in, "src", 0, kMaxId);
  edge.dst = u32(in, "dst", 0, kMaxId);
  edge.bytes = in.number("bytes", 0, kMaxAmount);
  edge.dtype = in.string("dtype");
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  return edge;
}

}  // namespace

Result<Graph> read_graph(const json::Value& value, const std::string& where) {
  json::ObjectReader in(value, where);
  in.require_schema("tapas.graph/1");
  Graph graph;
  graph.name = in.string("name");
  graph.micro_batch_size = u32_or(in, "micro_batch_size", 1, 1, 1 << 16);
  graph.sequence_length = u32_or(in, "sequence_length", 0, 1, 1 << 24);
  graph.hidden_size = u32_or(in, "hidden_size", 0, 1, 1 << 20);
  const json::Value& nodes = in.array("nodes", kMaxNodes);
  graph.nodes.reserve(nodes.size());
  for (std::size_t i = 0; i < nodes.size() && in.ok(); ++i) {
    auto node = read_node(nodes[i], in.child("nodes", i));
    if (!node) {
      in.absorb(node.error());
    } else {
      graph.nodes.push_back(std::move(*node));
    }
  }
  const json::Value& edges = in.array("edges", kMaxEdges);
  graph.edges.reserve(edges.size());
  for (std::size_t i = 0; i < edges.size() && in.ok(); ++i) {
    auto edge = read_edge(edges[i], in.child("edges", i));
    if (!edge) {
      in.absorb(edge.error());
    } else {
      graph.edges.push_back(std::move(*edge));
    }
  }
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  if (const auto valid = validate(graph); !valid) {
    return tl::unexpected<Error>(valid.error());
  }
  return graph;
}

}  // namespace io

Result<Graph> graph_from_json(const json::Value& value) { return io::read_graph(value, "graph"); }

json::Value graph_to_json(const Graph& graph) {
  json::Value out = {{"schema", "tapas.graph/1"},
                     {"name", graph.name},
                     {"micro_batch_size", graph.micro_batch_size}};
  if (graph.sequence_length != 0) {
    out["sequence_length"] = graph.sequence_length;
  }
  if (graph.hidden_size != 0) {
    out["hidden_size"] = graph.hidden_size;
  }
  json::Value& nodes = out["nodes"] = json::Value::array();
  for (const OpNode& node : graph.nodes) {
    nodes.push_back({{"id", node.id},
                     {"name", node.name},
                     {"kind", to_string(node.kind)},
                     {"layer", node.layer},
                     {"fwd_flops", node.fwd_flops},
                     {"bwd_flops", node.bwd_flops},
                     {"param_bytes", node.param_bytes},
                     {"act_bytes", node.act_bytes},
                     {"work_bytes", node.work_bytes},
                     {"out_bytes", node.out_bytes}});
    for (const auto& [key, amount] : {std::pair("fwd_moved_bytes", node.fwd_moved_bytes),
                                      std::pair("bwd_moved_bytes", node.bwd_moved_bytes)}) {
      if (amount > 0) {
        nodes.back()[key] = amount;
      }
    }
    if (!node.measured.empty()) {
      nodes.back()["measured"] = io::measured_to_json(node.measured);
    }
  }
  json::Value& edges = out["edges"] = json::Value::array();
  for (const OpEdge& edge : graph.edges) {
    edges.push_back(
        {{"src", edge.src}, {"dst", edge.dst}, {"bytes", edge.bytes}, {"dtype", edge.dtype}});
  }
  return out;
}

}  // namespace tapas::solver
