#include "agent/twin/fault.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <sstream>
#include <system_error>

namespace tapas::twin {

namespace {

constexpr double kMaxFactor = 1000;
constexpr double kMaxWaitS = 1e5;

Result<double> number(std::string_view key, std::string_view text, double min, double max) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= min && value <= max)) {
    return fail(ErrorCode::kInvalid, "fault: {}={} is not a number from {} to {}", key, text, min,
                max);
  }
  return value;
}

Result<std::uint64_t> counter(std::string_view key, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return fail(ErrorCode::kInvalid, "fault: {}={} is not a whole number", key, text);
  }
  return value;
}

std::optional<Fault::Kind> kind_of(std::string_view key) {
  for (const Fault::Kind kind : {Fault::Kind::kCompute, Fault::Kind::kSend, Fault::Kind::kReceive,
                                 Fault::Kind::kInside, Fault::Kind::kPath, Fault::Kind::kInput}) {
    if (amount_key(kind) == key) {
      return kind;
    }
  }
  return std::nullopt;
}

bool has_begun(const Fault& fault, std::uint64_t step, double job_time_s) {
  return step >= fault.from_step && job_time_s >= fault.from_s;
}

bool is_over(const Fault& fault, std::uint64_t step) {
  return fault.until_step && step >= *fault.until_step;
}

template <typename T, typename U>
Result<void> store(const Result<T>& value, U& into) {
  if (!value) {
    return tl::unexpected<Error>(value.error());
  }
  into = *value;
  return {};
}

}  // namespace

std::string_view amount_key(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kCompute:
      return "slowdown";
    case Fault::Kind::kSend:
      return "send";
    case Fault::Kind::kReceive:
      return "receive";
    case Fault::Kind::kInside:
      return "inside";
    case Fault::Kind::kPath:
      return "path";
    case Fault::Kind::kInput:
      return "input_s";
  }
  return "";
}

Result<Fault> parse_fault(std::string_view text, const solver::Cluster& cluster) {
  Fault fault;
  std::set<std::string> given;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (!given.insert(key).second) {
      return fail(ErrorCode::kInvalid, "fault \"{}\": {} is there twice", text, key);
    }
    Result<void> ok;
    if (const auto kind = kind_of(key)) {
      fault.kind = *kind;
      const bool seconds = *kind == Fault::Kind::kInput;
      ok = store(
          number(key, value, seconds ? 0 : 1.0 / kMaxFactor, seconds ? kMaxWaitS : kMaxFactor),
          fault.amount);
    } else if (key == "node" || key == "from" || key == "to") {
      const auto node = cluster.find(value);
      if (!node) {
        return fail(ErrorCode::kNotFound, "fault: cluster {} has no node {}", cluster.name, value);
      }
      (key == "to" ? fault.to : fault.node) = *node;
    } else if (key == "device") {
      ok = store(counter(key, value), fault.device);
    } else if (key == "step") {
      ok = store(counter(key, value), fault.from_step);
    } else if (key == "until_step") {
      ok = store(counter(key, value), fault.until_step);
    } else if (key == "at_s") {
      ok = store(number(key, value, 0, 1e9), fault.from_s);
    } else {
      return fail(ErrorCode::kInvalid,
                  "fault: unknown key {}; known: node, device, slowdown, send, receive, inside, "
                  "input_s, from, to, path, step, until_step, at_s",
                  key);
    }
    if (!ok) {
      return tl::unexpected<Error>(ok.error());
    }
  }
  const auto factors = std::count_if(given.begin(), given.end(),
                                     [](const std::string& key) { return kind_of(key); });
  const bool path = fault.kind == Fault::Kind::kPath;
  const bool named =
      path ? given.contains("from") && given.contains("to") && !given.contains("node")
           : given.contains("node") && !given.contains("from") && !given.contains("to");
  if (factors != 1 || !named) {
    return fail(
        ErrorCode::kInvalid,
        "fault \"{}\": needs node=NAME and one of slowdown, send, receive, inside, input_s, "
        "or from=NAME to=NAME path=FACTOR",
        text);
  }
  if (path && fault.node == fault.to) {
    return fail(ErrorCode::kInvalid, "fault \"{}\": a path leads to another node", text);
  }
  if (fault.device && fault.kind != Fault::Kind::kCompute && fault.kind != Fault::Kind::kInput) {
    return fail(ErrorCode::kInvalid, "fault \"{}\": only slowdown and input_s can be of one device",
                text);
  }
  if (fault.device && *fault.device >= cluster.type_of(fault.node).devices) {
    return fail(ErrorCode::kNotFound, "fault: node {} has {} devices, no device {}",
                cluster.nodes[fault.node.value()].name, cluster.type_of(fault.node).devices,
                *fault.device);
  }
  return fault;
}

/// The ranks of the fault's node, or the one that it is of.
std::vector<RankId> Faults::ranks_of(const Fault& fault) const {
  std::vector<RankId> ranks;
  for (std::uint32_t device = 0; device < cluster_.type_of(fault.node).devices; ++device) {
    if (fault.device.value_or(device) == device) {
      ranks.push_back(cluster_.rank_of(fault.node, device));
    }
  }
  return ranks;
}

std::size_t Faults::heal(NodeId node, std::uint64_t step, double job_time_s) {
  return std::erase_if(faults_, [&](const Fault& fault) {
    const bool concerns =
        fault.node == node || (fault.kind == Fault::Kind::kPath && fault.to == node);
    return concerns && has_begun(fault, step, job_time_s);
  });
}

std::vector<Fault> Faults::acting(std::uint64_t step, double job_time_s) const {
  std::vector<Fault> acting;
  std::copy_if(faults_.begin(), faults_.end(), std::back_inserter(acting), [&](const Fault& fault) {
    return has_begun(fault, step, job_time_s) && !is_over(fault, step);
  });
  return acting;
}

solver::ClusterState Faults::state(const std::vector<Fault>& acting) const {
  solver::ClusterState state;
  state.device_slowdown.assign(cluster_.device_count(), 1.0);
  state.node_links.resize(cluster_.nodes.size());
  for (const Fault& fault : acting) {
    solver::NodeLinks& links = state.node_links[fault.node.value()];
    switch (fault.kind) {
      case Fault::Kind::kCompute:
        for (const RankId rank : ranks_of(fault)) {
          state.device_slowdown[rank.value()] *= fault.amount;
        }
        break;
      case Fault::Kind::kInput:
        break;
      case Fault::Kind::kSend:
        links.send *= fault.amount;
        break;
      case Fault::Kind::kReceive:
        links.receive *= fault.amount;
        break;
      case Fault::Kind::kInside:
        links.inside *= fault.amount;
        break;
      case Fault::Kind::kPath: {
        const auto same = [&](const solver::PathSlowdown& path) {
          return path.from == fault.node && path.to == fault.to;
        };
        auto path = std::find_if(state.paths.begin(), state.paths.end(), same);
        if (path == state.paths.end()) {
          path = state.paths.insert(path, {fault.node, fault.to, 1.0});
        }
        path->factor *= fault.amount;
        break;
      }
    }
  }
  return state;
}

std::vector<double> Faults::input_s(const std::vector<Fault>& acting) const {
  std::vector<double> waits;
  for (const Fault& fault : acting) {
    if (fault.kind == Fault::Kind::kInput) {
      waits.resize(cluster_.device_count());
      for (const RankId rank : ranks_of(fault)) {
        waits[rank.value()] += fault.amount;
      }
    }
  }
  return waits;
}

}  // namespace tapas::twin
