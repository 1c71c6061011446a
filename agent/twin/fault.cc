#include "agent/twin/fault.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>
#include <system_error>

namespace tapas::twin {

namespace {

constexpr double kMaxSlowdown = 1000;

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

Result<Fault> parse_fault(std::string_view text, const solver::Cluster& cluster) {
  Fault fault;
  bool has_node = false;
  bool has_slowdown = false;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    Result<void> ok;
    if (key == "node") {
      const auto node = cluster.find(value);
      if (!node) {
        return fail(ErrorCode::kNotFound, "fault: cluster {} has no node {}", cluster.name, value);
      }
      fault.node = *node;
      has_node = true;
    } else if (key == "slowdown") {
      ok = store(number(key, value, 1.0 / kMaxSlowdown, kMaxSlowdown), fault.slowdown);
      has_slowdown = true;
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
                  "fault: unknown key {}; known: node, device, slowdown, step, until_step, at_s",
                  key);
    }
    if (!ok) {
      return tl::unexpected<Error>(ok.error());
    }
  }
  if (!has_node || !has_slowdown) {
    return fail(ErrorCode::kInvalid, "fault \"{}\": needs node=NAME and slowdown=FACTOR", text);
  }
  if (fault.device && *fault.device >= cluster.type_of(fault.node).devices) {
    return fail(ErrorCode::kNotFound, "fault: node {} has {} devices, no device {}",
                cluster.nodes[fault.node.value()].name, cluster.type_of(fault.node).devices,
                *fault.device);
  }
  return fault;
}

std::size_t Faults::heal(NodeId node, std::uint64_t step, double job_time_s) {
  return std::erase_if(faults_, [&](const Fault& fault) {
    return fault.node == node && has_begun(fault, step, job_time_s);
  });
}

std::vector<Fault> Faults::acting(std::uint64_t step, double job_time_s) const {
  std::vector<Fault> acting;
  std::copy_if(faults_.begin(), faults_.end(), std::back_inserter(acting), [&](const Fault& fault) {
    return has_begun(fault, step, job_time_s) && !is_over(fault, step);
  });
  return acting;
}

std::vector<double> Faults::slowdown(const std::vector<Fault>& acting) const {
  std::vector<double> slowdown(cluster_.device_count(), 1.0);
  for (const Fault& fault : acting) {
    const std::uint32_t devices = cluster_.type_of(fault.node).devices;
    const std::uint32_t first = fault.device.value_or(0);
    const std::uint32_t last = fault.device ? first + 1 : devices;
    for (std::uint32_t device = first; device < last; ++device) {
      slowdown[cluster_.rank_of(fault.node, device).value()] *= fault.slowdown;
    }
  }
  return slowdown;
}

}  // namespace tapas::twin
