#include "agent/health/node_codec.h"

#include <cstring>
#include <type_traits>
#include <utility>

namespace tapas::agent::health {
namespace {

/// What of each record goes over, in both directions.
template <typename Archive>
void fields(Archive& io, Gap& gap) {
  io(gap.what, gap.why);
}
template <typename Archive>
void fields(Archive& io, Measured& device) {
  io(device.name, device.identity, device.read_at, device.counters, device.gaps);
}
template <typename Archive>
void fields(Archive& io, PcieLink& link) {
  io(link.gt_per_s, link.lanes);
}
template <typename Archive>
void fields(Archive& io, NvLink& link) {
  io(link.link, link.active);
}
template <typename Archive>
void fields(Archive& io, Gpu& gpu) {
  io(gpu.index, gpu.uuid, gpu.model, gpu.sm_mhz, gpu.sm_max_mhz, gpu.memory_mhz, gpu.memory_max_mhz,
     gpu.throttle_bits, gpu.temperature_c, gpu.to_slowdown_c, gpu.power_mw, gpu.power_limit_mw,
     gpu.ecc, gpu.repair_pending, gpu.repair_failed, gpu.nvlinks, gpu.now, gpu.max, gpu.mig,
     gpu.mig_uuids);
}
template <typename Archive>
void fields(Archive& io, PciDevice& device) {
  fields<Archive>(io, static_cast<Measured&>(device));
  io(device.kind, device.vendor, device.device, device.now, device.max, device.slot_max,
     device.lost, device.gpu);
}
template <typename Archive>
void fields(Archive& io, IbPort& port) {
  fields<Archive>(io, static_cast<Measured&>(port));
  io(port.pci, port.board, port.link_layer, port.state, port.phys_state, port.bits_per_s,
     port.lanes);
}
template <typename Archive>
void fields(Archive& io, NetDevice& net) {
  fields<Archive>(io, static_cast<Measured&>(net));
  io(net.pci, net.model, net.enabled, net.carrier, net.bits_per_s);
}
template <typename Archive>
void fields(Archive& io, Pressure& pressure) {
  fields<Archive>(io, static_cast<Measured&>(pressure));
  io(pressure.some_ratio, pressure.full_ratio);
}
template <typename Archive>
void fields(Archive& io, NodeHealth& node) {
  io(node.pci, node.ports, node.nets, node.pressures, node.driver, node.gaps);
}

using TimePoint = std::chrono::steady_clock::time_point;

class Writer {
 public:
  template <typename... Values>
  void operator()(Values&... values) {
    (put(values), ...);
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <typename Value>
  void put(Value& value) {
    if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>) {
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    } else {
      fields(*this, value);
    }
  }
  void put(TimePoint& time) {
    auto count = time.time_since_epoch().count();
    put(count);
  }
  void put(std::string& text) {
    put_size(text.size());
    bytes_ += text;
  }
  template <typename Value>
  void put(std::optional<Value>& value) {
    bytes_.push_back(value ? 1 : 0);
    if (value) {
      put(*value);
    }
  }
  template <typename Value>
  void put(std::vector<Value>& values) {
    put_size(values.size());
    for (Value& value : values) {
      put(value);
    }
  }
  void put(std::map<std::string, std::uint64_t>& counters) {
    put_size(counters.size());
    for (auto& [name, count] : counters) {
      std::string key = name;
      put(key);
      put(count);
    }
  }
  void put_size(std::size_t size) {
    auto count = static_cast<std::uint32_t>(size);
    put(count);
  }

  std::string bytes_;
};

/// After the first thing that is wrong it takes nothing more.
class Taker {
 public:
  explicit Taker(std::string_view bytes) : bytes_(bytes) {}

  template <typename... Values>
  void operator()(Values&... values) {
    (take(values), ...);
  }
  [[nodiscard]] bool whole() const { return good_ && bytes_.empty(); }

 private:
  template <typename Value>
  void take(Value& value) {
    if constexpr (std::is_same_v<Value, bool>) {
      value = flag();
    } else if constexpr (std::is_arithmetic_v<Value>) {
      number(value);
    } else if constexpr (std::is_same_v<Value, PciKind>) {
      std::underlying_type_t<PciKind> kind = 0;
      number(kind);
      good_ = good_ && kind >= 0 && kind <= static_cast<int>(PciKind::kUnknown);
      value = good_ ? static_cast<PciKind>(kind) : PciKind::kUnknown;
    } else {
      fields(*this, value);
    }
  }
  void take(TimePoint& time) {
    TimePoint::rep count = 0;
    number(count);
    time = TimePoint(TimePoint::duration(count));
  }
  void take(std::string& text) {
    const std::uint32_t size = length();
    if (good_) {
      text = bytes_.substr(0, size);
      bytes_.remove_prefix(size);
    }
  }
  template <typename Value>
  void take(std::optional<Value>& value) {
    if (flag()) {
      take(value.emplace());
    }
  }
  template <typename Value>
  void take(std::vector<Value>& values) {
    for (std::uint32_t left = length(); good_ && left > 0; --left) {
      take(values.emplace_back());
    }
  }
  void take(std::map<std::string, std::uint64_t>& counters) {
    for (std::uint32_t left = length(); good_ && left > 0; --left) {
      std::string name;
      take(name);
      number(counters[name]);
    }
  }

  template <typename Number>
  void number(Number& value) {
    good_ = good_ && bytes_.size() >= sizeof(value);
    if (good_) {
      std::memcpy(&value, bytes_.data(), sizeof(value));
      bytes_.remove_prefix(sizeof(value));
    }
  }
  bool flag() {
    std::uint8_t byte = 0;
    number(byte);
    good_ = good_ && byte <= 1;
    return good_ && byte == 1;
  }
  /// Of a text or list: each of its elements takes a byte at least.
  std::uint32_t length() {
    std::uint32_t size = 0;
    number(size);
    good_ = good_ && size <= bytes_.size();
    return good_ ? size : 0;
  }

  std::string_view bytes_;
  bool good_ = true;
};

}  // namespace

std::string encode(NodeHealth node) {
  Writer writer;
  writer(node);
  return writer.take();
}

Result<NodeHealth> decode(std::string_view bytes) {
  NodeHealth node;
  Taker taker(bytes);
  taker(node);
  if (!taker.whole()) {
    return fail(ErrorCode::kInvalid, "sent {} bytes that are no reading", bytes.size());
  }
  return node;
}

}  // namespace tapas::agent::health
