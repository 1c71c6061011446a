#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "solver/model/job.h"
#include "solver/model/plan.h"

#include <string>
#include <string_view>

/// JSON at the edge of the solver: formats in docs/formats.md. Errors name file, line and column
/// for syntax, and the path of the key for content.
namespace tapas::solver {

/// Loads `tapas.job/1`. `graph` and `cluster` may be inline objects or file names relative to the
/// job file; a cluster's topo files are relative to the cluster file.
[[nodiscard]] Result<Job> load_job(const std::string& path);

/// Loads `tapas.cluster/1`.
[[nodiscard]] Result<Cluster> load_cluster(const std::string& path);
/// `folder` is where topo files are looked for.
[[nodiscard]] Result<Cluster> cluster_from_json(const json::Value& value,
                                                const std::string& folder);

[[nodiscard]] Result<Plan> load_plan(const std::string& path, const Job& job);
[[nodiscard]] Result<Plan> plan_from_json(const json::Value& value, const Job& job);
/// Nodes appear by name. plan_from_json(plan_to_json(p)) gives p back.
[[nodiscard]] json::Value plan_to_json(const Plan& plan, const Job& job);
[[nodiscard]] json::Value moves_to_json(const std::vector<LayerMove>& moves, const Job& job);

[[nodiscard]] Result<Graph> graph_from_json(const json::Value& value);
[[nodiscard]] json::Value graph_to_json(const Graph& graph);

}  // namespace tapas::solver
