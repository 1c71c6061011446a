#include "agent/health/look.h"

#include "agent/health/child.h"
#include "agent/health/node_codec.h"
#include "agent/health/nvml.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

namespace tapas::agent::health {
namespace {

constexpr std::string_view kSysAdvice =
    "a device or its driver hangs; look at the kernel's log for it";
constexpr std::string_view kNvmlAdvice =
    "look at the kernel's log for Xid and hung tasks; a GPU that nothing else uses takes seconds "
    "to start without persistence mode, so try a larger --timeout";
constexpr std::string_view kCrashAdvice =
    "look at the kernel's log, and whether library and kernel module are of one driver version";

// Each time may leave a process behind that the kernel does not let go.
constexpr std::chrono::hours kAskAgain{1};

/// One source of a reading, /sys or NVML.
class Source {
 public:
  using Read = std::function<Result<NodeHealth>(const Step&)>;
  /// `advice` is for when it hangs.
  Source(std::string name, std::string_view advice, Read read)
      : name_(std::move(name)), advice_(advice), read_(std::move(read)) {}

  /// Only a gap when the source did not come back, now or before.
  Result<NodeHealth> ask(std::chrono::milliseconds timeout) {
    const auto now = std::chrono::steady_clock::now();
    if (!gone_ || now >= ask_again_at_) {
      gone_.reset();
      ask_again_at_ = now + kAskAgain;
      auto node = read_in_child(timeout);
      if (node || !gone_) {
        return node;
      }
      why_not_ = node.error().message;
    }
    NodeHealth nothing;
    nothing.gaps.push_back({name_, why_not_});
    return nothing;
  }
  [[nodiscard]] bool gone() const { return gone_.has_value(); }
  void add_to(std::vector<Finding>& found) const {
    if (gone_) {
      const bool hung = *gone_ == ErrorCode::kTimeout;
      found.push_back({name_, hung ? "no_answer" : "crashed",
                       fmt::format("{} {}: {}", name_, why_not_, hung ? advice_ : kCrashAdvice)});
    }
  }

 private:
  Result<NodeHealth> read_in_child(std::chrono::milliseconds timeout) {
    const auto work = [this](const Step& step) {
      return read_(step).map([](NodeHealth node) { return encode(std::move(node)); });
    };
    auto node =
        in_child(work, timeout).and_then([](const std::string& bytes) { return decode(bytes); });
    if (!node && node.error().code != ErrorCode::kNotFound) {
      gone_ = node.error().code;
    }
    return node;
  }

  std::string name_;
  std::string_view advice_;
  Read read_;
  std::string why_not_;
  std::optional<ErrorCode> gone_;
  std::chrono::steady_clock::time_point ask_again_at_;
};

Result<NodeHealth> read_both(Source& sys, Source& nvml, std::chrono::milliseconds timeout) {
  auto node = sys.ask(timeout);
  if (!node) {
    return node;
  }
  auto gpus = nvml.ask(timeout);
  if (!gpus) {
    return gpus;
  }
  join(*node, *std::move(gpus));
  return node;
}

}  // namespace

Result<void> look(const LookOptions& options, const std::function<bool(const Report&)>& show) {
  Source sys("sysfs", kSysAdvice, [&](const Step& step) { return read_node(options.roots, step); });
  Source nvml("nvml", kNvmlAdvice, [&](const Step& step) -> Result<NodeHealth> {
    NodeHealth not_asked;
    not_asked.gaps.push_back({"nvml", "is not asked for a copied tree; --nvml names its library"});
    return options.nvml.empty() ? not_asked : read_nvml(options.nvml, step);
  });
  auto before = read_both(sys, nvml, options.timeout);
  if (!before) {
    return tl::unexpected(before.error());
  }
  for (;;) {
    std::this_thread::sleep_for(options.interval);
    auto now = read_both(sys, nvml, options.timeout);
    if (!now) {
      return tl::unexpected(now.error());
    }
    Report report;
    report.rates = rates_between(*before, *now);
    if (sys.gone() || nvml.gone()) {
      report.rates.gone.clear();  // Nobody can tell.
    }
    sys.add_to(report.findings);
    nvml.add_to(report.findings);
    auto found = findings(*now, report.rates);
    report.findings.insert(report.findings.end(), std::make_move_iterator(found.begin()),
                           std::make_move_iterator(found.end()));
    report.node = *now;
    before = std::move(now);
    if (!show(report)) {
      return {};
    }
  }
}

}  // namespace tapas::agent::health
