#include "agent/health/rates.h"

#include <fmt/format.h>

#include <string_view>

namespace tapas::agent::health {
namespace {

constexpr std::uint64_t kMax32 = 0xffffffff;

/// Where a counter of an InfiniBand port stops (PortCounters, InfiniBand Architecture 16.1.3.5);
/// empty for the others, which wrap.
std::optional<std::uint64_t> stops_at(std::string_view counter) {
  static const std::map<std::string_view, std::uint64_t> kMaximum = {
      {"local_link_integrity_errors", 0xf},
      {"excessive_buffer_overrun_errors", 0xf},
      {"link_error_recovery", 0xff},
      {"link_downed", 0xff},
      {"port_xmit_constraint_errors", 0xff},
      {"port_rcv_constraint_errors", 0xff},
      {"symbol_error", 0xffff},
      {"port_rcv_errors", 0xffff},
      {"port_rcv_remote_physical_errors", 0xffff},
      {"port_rcv_switch_relay_errors", 0xffff},
      {"port_xmit_discards", 0xffff},
      {"VL15_dropped", 0xffff},
      {"port_xmit_wait", kMax32},
      {"port_xmit_data", kMax32},  // Only in ports without the extended counters of 64 bits.
      {"port_rcv_data", kMax32},
      {"port_xmit_packets", kMax32},
      {"port_rcv_packets", kMax32},
  };
  const auto found = kMaximum.find(counter);
  return found == kMaximum.end() ? std::nullopt : std::optional(found->second);
}

/// Of bnxt_re: what is in use now, and the most that ever was.
bool is_gauge(std::string_view counter) {
  return counter.substr(0, 7) == "active_" || counter.substr(0, 10) == "watermark_";
}

/// Growth over a wrap; empty when the fall from `before` to `now` is none. Less than half of the
/// range, as a reset looks like a wrap that nearly went all the way round.
std::optional<std::uint64_t> over_wrap(std::uint64_t before, std::uint64_t now) {
  const std::uint64_t range_mask = before <= kMax32 ? kMax32 : ~std::uint64_t{0};
  const std::uint64_t grown = (now - before) & range_mask;
  return grown <= range_mask / 2 ? std::optional(grown) : std::nullopt;
}

Growth unknown(std::string why) {
  Growth growth;
  growth.gaps.push_back({"rates", std::move(why)});
  return growth;
}

template <typename Device>
void compare(const std::vector<Device>& before, const std::vector<Device>& now, Rates& rates) {
  std::map<std::string_view, const Measured*> earlier;
  for (const Device& device : before) {
    earlier.emplace(device.name, &device);
  }
  for (const Device& device : now) {
    const auto found = earlier.find(device.name);
    rates.devices.emplace(device.name, found == earlier.end()
                                           ? unknown("the device was not there before")
                                           : growth(*found->second, device));
    earlier.erase(device.name);
  }
  for (const auto& [name, device] : earlier) {
    rates.gone.emplace_back(name);
  }
}

}  // namespace

std::optional<std::uint64_t> Growth::of(const std::string& counter) const {
  const auto found = grown.find(counter);
  return found == grown.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> Growth::per_s(const std::string& counter) const {
  const auto by = of(counter);
  return by ? std::optional(static_cast<double>(*by) / interval_s) : std::nullopt;
}

Growth growth(const Measured& before, const Measured& now) {
  if (before.identity != now.identity) {
    return unknown("another device has this name now");
  }
  Growth growth;
  growth.interval_s = std::chrono::duration<double>(now.read_at - before.read_at).count();
  if (growth.interval_s <= 0) {
    return unknown("no time passed between the readings");
  }
  for (const auto& [counter, value] : now.counters) {
    const auto earlier = before.counters.find(counter);
    if (is_gauge(counter)) {
      continue;
    }
    if (earlier == before.counters.end()) {
      growth.gaps.push_back({counter, "was not read before"});
      continue;
    }
    const std::uint64_t was = earlier->second;
    const auto maximum = stops_at(counter);
    if (maximum && value == *maximum) {
      growth.gaps.push_back({counter, fmt::format("has stopped at its maximum, {}", value)});
    } else if (value >= was) {
      growth.grown.emplace(counter, value - was);
    } else if (const auto wrapped = maximum ? std::nullopt : over_wrap(was, value)) {
      growth.grown.emplace(counter, *wrapped);
    } else {
      return unknown(
          fmt::format("the counters began anew: {} fell from {} to {}", counter, was, value));
    }
  }
  return growth;
}

Rates rates_between(const NodeHealth& before, const NodeHealth& now) {
  Rates rates;
  compare(before.pci, now.pci, rates);
  compare(before.ports, now.ports, rates);
  compare(before.nets, now.nets, rates);
  compare(before.pressures, now.pressures, rates);
  return rates;
}

}  // namespace tapas::agent::health
