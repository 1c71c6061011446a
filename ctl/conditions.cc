#include "ctl/conditions.h"

#include "ctl/table.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

namespace tapas::ctl {

namespace {

constexpr double kMaxFactor = 1000;

Result<NodeId> find_node(std::string_view option, const std::string& name,
                         const solver::Cluster& cluster) {
  if (const auto node = cluster.find(name)) {
    return *node;
  }
  std::vector<std::string> names;
  for (const solver::Node& node : cluster.nodes) {
    names.push_back(node.name);
  }
  const std::string nearest = nearest_name(name, names);
  return fail(ErrorCode::kNotFound, "{}: cluster {} has no node \"{}\"{}", option,
              printable(cluster.name), printable(name),
              nearest.empty() ? "" : fmt::format("; did you mean {}?", printable(nearest)));
}

/// "PLACE=FACTOR" in its two parts.
Result<std::pair<std::string, double>> place_and_factor(std::string_view option,
                                                        const std::string& text) {
  const std::size_t equals = text.find('=');
  double factor = 0;
  if (equals != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, factor);
    if (error == std::errc() && stop == end && factor >= 1 / kMaxFactor && factor <= kMaxFactor) {
      return std::pair(text.substr(0, equals), factor);
    }
  }
  return fail(ErrorCode::kInvalid,
              "{} {}: needs NAME=FACTOR, \"takes FACTOR times as long\", from {} to {:.0f}", option,
              printable(text), 1 / kMaxFactor, kMaxFactor);
}

Error twice(std::string_view option, const std::string& place) {
  return Error{ErrorCode::kInvalid, fmt::format("{} {}: given twice", option, printable(place))};
}

Result<void> add_slow(const std::vector<std::string>& texts, const solver::Cluster& cluster,
                      solver::ClusterState& state) {
  std::map<RankId, double> of_device;
  std::map<NodeId, double> of_node;
  for (const std::string& text : texts) {
    const auto given = place_and_factor("--slow", text);
    if (!given) {
      return tl::unexpected(given.error());
    }
    const auto& [place, factor] = *given;
    const std::size_t colon = place.rfind(':');
    const auto node = find_node("--slow", place.substr(0, colon), cluster);
    if (!node) {
      return tl::unexpected(node.error());
    }
    bool fresh = false;
    if (colon == std::string::npos) {
      fresh = of_node.emplace(*node, factor).second;
    } else {
      std::uint32_t device = 0;
      const char* end = place.data() + place.size();
      const auto [stop, error] = std::from_chars(place.data() + colon + 1, end, device);
      const std::uint32_t devices = cluster.type_of(*node).devices;
      if (error != std::errc() || stop != end || device >= devices) {
        return fail(ErrorCode::kNotFound, "--slow {}: node {} has the devices 0 to {}",
                    printable(text), printable(place.substr(0, colon)), devices - 1);
      }
      fresh = of_device.emplace(cluster.rank_of(*node, device), factor).second;
    }
    if (!fresh) {
      return tl::unexpected(twice("--slow", place));
    }
  }
  state.device_slowdown.assign(cluster.device_count(), 1.0);
  for (const auto& [node, factor] : of_node) {
    for (std::uint32_t d = 0; d < cluster.type_of(node).devices; ++d) {
      state.device_slowdown[cluster.rank_of(node, d).value()] = factor;
    }
  }
  for (const auto& [rank, factor] : of_device) {
    state.device_slowdown[rank.value()] = factor;
  }
  return {};
}

Result<void> add_links(std::string_view option, const std::vector<std::string>& texts,
                       double solver::NodeLinks::*direction, const solver::Cluster& cluster,
                       solver::ClusterState& state) {
  std::map<NodeId, double> factors;
  for (const std::string& text : texts) {
    const auto given = place_and_factor(option, text);
    if (!given) {
      return tl::unexpected(given.error());
    }
    const auto node = find_node(option, given->first, cluster);
    if (!node) {
      return tl::unexpected(node.error());
    }
    if (!factors.emplace(*node, given->second).second) {
      return tl::unexpected(twice(option, given->first));
    }
    state.node_links[node->value()].*direction = given->second;
  }
  return {};
}

Result<void> add_paths(const std::vector<std::string>& texts, const solver::Cluster& cluster,
                       solver::ClusterState& state) {
  for (const std::string& text : texts) {
    const auto given = place_and_factor("--path", text);
    if (!given) {
      return tl::unexpected(given.error());
    }
    const std::size_t comma = given->first.find(',');
    if (comma == std::string::npos) {
      return fail(ErrorCode::kInvalid, "--path {}: needs FROM,TO=FACTOR", printable(text));
    }
    const auto from = find_node("--path", given->first.substr(0, comma), cluster);
    const auto to = find_node("--path", given->first.substr(comma + 1), cluster);
    if (!from || !to) {
      return tl::unexpected(from ? to.error() : from.error());
    }
    if (*from == *to) {
      return fail(ErrorCode::kInvalid, "--path {}: leads to the node itself; see --inside",
                  printable(text));
    }
    const bool known = std::any_of(
        state.paths.begin(), state.paths.end(),
        [&](const solver::PathSlowdown& path) { return path.from == *from && path.to == *to; });
    if (known) {
      return tl::unexpected(twice("--path", given->first));
    }
    state.paths.push_back({*from, *to, given->second});
  }
  return {};
}

Result<std::vector<bool>> marked(std::string_view option, const std::vector<std::string>& names,
                                 const solver::Cluster& cluster) {
  std::vector<bool> nodes(names.empty() ? 0 : cluster.nodes.size(), false);
  for (const std::string& name : names) {
    const auto node = find_node(option, name, cluster);
    if (!node) {
      return tl::unexpected(node.error());
    }
    nodes[node->value()] = true;
  }
  return nodes;
}

}  // namespace

Result<solver::ClusterState> cluster_state(const Conditions& conditions,
                                           const solver::Cluster& cluster) {
  solver::ClusterState state;
  state.node_links.resize(cluster.nodes.size());
  Result<void> ok = add_slow(conditions.slow, cluster, state);
  const auto links = [&](std::string_view option, const std::vector<std::string>& texts,
                         double solver::NodeLinks::*direction) {
    if (ok) {
      ok = add_links(option, texts, direction, cluster, state);
    }
  };
  links("--send", conditions.send, &solver::NodeLinks::send);
  links("--receive", conditions.receive, &solver::NodeLinks::receive);
  links("--inside", conditions.inside, &solver::NodeLinks::inside);
  if (ok) {
    ok = add_paths(conditions.path, cluster, state);
  }
  if (!ok) {
    return tl::unexpected(ok.error());
  }
  auto drained = marked("--drain", conditions.drain, cluster);
  if (!drained) {
    return tl::unexpected(drained.error());
  }
  state.drained = *std::move(drained);
  return state;
}

Result<std::vector<bool>> pinned_nodes(const Conditions& conditions,
                                       const solver::Cluster& cluster) {
  return marked("--pin", conditions.pin, cluster);
}

}  // namespace tapas::ctl
