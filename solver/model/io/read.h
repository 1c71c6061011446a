#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "solver/model/cluster.h"
#include "solver/model/graph.h"
#include "solver/model/io/models.h"
#include "solver/model/plan.h"

#include <string>

/// Pieces that the loaders share among themselves.
namespace tapas::solver::io {

inline constexpr double kMaxAmount = 1e30;  ///< flops, bytes, rates: anything larger is a slip

/// What a model description ({"model": "llama3-8b", ...}) does not say itself.
struct ModelDefaults {
  std::uint32_t micro_batch_size = 1;
  std::uint32_t bytes_per_element = 2;
};

/// `{"model": NAME, ...}`: a model of the catalogue, or "gpt", with the keys given laid over it.
[[nodiscard]] Result<Graph> read_named_model(const json::Value& value, const std::string& where,
                                             const ModelDefaults& defaults);
[[nodiscard]] Result<CatalogueModel> read_model(const json::Value& value, const std::string& where);
[[nodiscard]] Result<Graph> read_graph(const json::Value& value, const std::string& where);

[[nodiscard]] Result<DeviceType> read_device_type(const json::Value& value,
                                                  const std::string& where);
/// The numbers of a server that no topology file describes; errors stay in `in`.
void read_links(json::ObjectReader& in, NodeType& type);

/// `folder` is where topo files are looked for.
[[nodiscard]] Result<Cluster> read_cluster(const json::Value& value, const std::string& where,
                                           const std::string& folder);

[[nodiscard]] json::Value position_to_json(const Position& position, const Cluster& cluster);

/// A bounded integer that fits 32 bits.
[[nodiscard]] inline std::uint32_t u32(json::ObjectReader& in, std::string_view key,
                                       std::int64_t min, std::int64_t max) {
  return static_cast<std::uint32_t>(in.integer(key, min, max));
}
[[nodiscard]] inline std::uint32_t u32_or(json::ObjectReader& in, std::string_view key,
                                          std::int64_t fallback, std::int64_t min,
                                          std::int64_t max) {
  return static_cast<std::uint32_t>(in.integer_or(key, fallback, min, max));
}

}  // namespace tapas::solver::io
