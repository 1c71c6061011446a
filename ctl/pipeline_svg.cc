#include "ctl/pipeline_svg.h"

#include "ctl/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

namespace tapas::ctl {
namespace {

constexpr double kWidth = 1200;
constexpr double kLeft = 70;
constexpr double kRight = 20;
constexpr double kTop = 74;
constexpr double kBreak = 26;  ///< between two pieces of the time axis
constexpr double kDigitWidth = 6.2;
constexpr std::size_t kMostBoxes = 6000;
constexpr std::size_t kMostRows = 256;
constexpr double kSteadyRounds = 3;

constexpr std::string_view kStyle = R"(  <style>
    svg { font: 12px system-ui, sans-serif; }
    text { fill: #1f2328; }
    .soft { fill: #59636e; }
    .page { fill: #ffffff; }
    .row { fill: #e7eaee; }
    .f { fill: #3b82c4; }
    .b { fill: #2f9e6e; }
    .r { fill: #d98e1f; }
    .g { fill: #8a63d2; }
    .u { fill: #6e7781; }
    .odd { opacity: 0.72; }
    .n { fill: #ffffff; text-anchor: middle; }
    .axis { stroke: #59636e; stroke-width: 1; }
    .cut { stroke: #59636e; stroke-width: 1; stroke-dasharray: 3 3; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .soft { fill: #9198a1; }
      .page { fill: #0d1117; }
      .row { fill: #262c36; }
      .axis, .cut { stroke: #9198a1; }
    }
  </style>
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// A piece of the time axis.
struct Window {
  double from_s = 0;
  double to_s = 0;
  double x = 0;
};

/// 1, 2 or 5 times a power of ten, so that about `count` of them fill the span.
double tick_step(double span_s, double count) {
  const double raw = span_s / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (raw <= step * power) {
      return step * power;
    }
  }
  return 10 * power;
}

class Picture {
 public:
  Picture(const solver::ReplicaTimeline& timeline, const std::string& title)
      : timeline_(timeline),
        title_(escaped(title)),
        rows_(std::min<std::size_t>(timeline.groups, kMostRows)),
        pitch_(rows_ > 40 ? 14 : 26) {}

  std::string draw() {
    choose_windows();
    const double bottom = kTop + static_cast<double>(rows_) * pitch_;
    const double height = bottom + 56;
    write(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n  <title>{2}</title>\n",
        kWidth, height, title_);
    out_ += kStyle;
    write("  <rect class=\"page\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", kWidth, height);
    write("  <text x=\"{:.0f}\" y=\"24\" font-size=\"15\" font-weight=\"600\">{}</text>\n", kLeft,
          title_);
    legend();
    rows();
    boxes();
    axis(bottom);
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void write(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  /// The whole step when it is small enough to read; else what the warm-up and the cool-down take
  /// and some rounds between.
  void choose_windows() {
    const double end = timeline_.step_time_s;
    const double stages = static_cast<double>(timeline_.recompute_share.size());
    const double m = std::max<std::uint32_t>(1, timeline_.microbatches);
    const double round = pipeline_end() / (m + stages - 1);
    const double tail = end - pipeline_end();
    const double fill = (timeline_.groups + kSteadyRounds) * round;
    windows_ = {{0, end, kLeft}};
    if (2 * fill + kSteadyRounds * round < 0.9 * pipeline_end()) {
      const double middle = pipeline_end() / 2;
      windows_ = {{0, fill, 0},
                  {middle, middle + kSteadyRounds * round, 0},
                  {pipeline_end() - fill, pipeline_end() + tail, 0}};
    }
    double span = 0;
    for (const Window& window : windows_) {
      span += window.to_s - window.from_s;
    }
    const double room = kWidth - kLeft - kRight - kBreak * static_cast<double>(windows_.size() - 1);
    scale_ = room / span;
    double x = kLeft;
    for (Window& window : windows_) {
      window.x = x;
      x += (window.to_s - window.from_s) * scale_ + kBreak;
    }
  }

  [[nodiscard]] double pipeline_end() const {
    double end = 0;
    for (const solver::GroupEnd& group : timeline_.ends) {
      end = std::max(end, group.end_s);
    }
    return end;
  }

  void legend() {
    constexpr std::array<std::pair<const char*, const char*>, 6> kKeys = {{
        {"f", "forward"},
        {"r", "recompute"},
        {"b", "backward"},
        {"g", "gradient synchronisation"},
        {"u", "update"},
        {"row", "waiting or transfer"},
    }};
    double x = kLeft;
    for (const auto& [style, words] : kKeys) {
      write("  <rect class=\"{}\" x=\"{:.0f}\" y=\"38\" width=\"14\" height=\"14\" rx=\"2\"/>\n",
            style, x);
      write("  <text x=\"{:.0f}\" y=\"50\">{}</text>\n", x + 20, words);
      x += 48 + 7.0 * static_cast<double>(std::string_view(words).size());
    }
  }

  void rows() {
    for (std::size_t g = 0; g < rows_; ++g) {
      const double y = top_of(g);
      if (pitch_ > 20 || g % 4 == 0) {
        write(
            "  <text class=\"soft\" x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">stage "
            "{}</text>\n",
            kLeft - 8, y + thickness() / 2 + 4, g);
      }
      for (const Window& window : windows_) {
        write(
            "  <rect class=\"row\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" "
            "height=\"{:.1f}\"/>\n",
            window.x, y, (window.to_s - window.from_s) * scale_, thickness());
      }
    }
    if (rows_ < timeline_.groups) {
      write("  <text class=\"soft\" x=\"{:.0f}\" y=\"64\">the first {} of {} stages</text>\n",
            kLeft, rows_, timeline_.groups);
    }
  }

  void boxes() {
    for (const solver::Action& action : timeline_.actions) {
      const std::uint32_t g = action.stage % timeline_.groups;
      const bool odd = action.stage / timeline_.groups % 2 == 1;
      if (action.forward) {
        box("f", odd, g, action.start_s, action.end_s, action.microbatch);
      } else {
        const double split = action.start_s + (action.end_s - action.start_s) *
                                                  timeline_.recompute_share[action.stage];
        box("r", odd, g, action.start_s, split, kNoNumber);
        box("b", odd, g, split, action.end_s, action.microbatch);
      }
    }
    for (std::uint32_t g = 0; g < timeline_.ends.size(); ++g) {
      const solver::GroupEnd& end = timeline_.ends[g];
      box("g", false, g, end.end_s, end.synchronised_s, kNoNumber);
      box("u", false, g, timeline_.update_at_s, timeline_.update_at_s + end.update_s, kNoNumber);
    }
  }

  void box(const char* style, bool odd, std::uint32_t group, double from_s, double to_s,
           std::uint32_t number) {
    if (group >= rows_ || to_s <= from_s) {
      return;
    }
    for (const Window& window : windows_) {
      const double from = std::max(from_s, window.from_s);
      const double to = std::min(to_s, window.to_s);
      const double width = (to - from) * scale_;
      if (width <= 0.05 || ++drawn_ > kMostBoxes) {
        continue;
      }
      const double x = window.x + (from - window.from_s) * scale_;
      const double gap = width > 3 ? 0.6 : 0;
      write(
          "  <rect class=\"{}{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"/>\n",
          style, odd ? " odd" : "", x, top_of(group), width - gap, thickness());
      const double needed = kDigitWidth * (number >= 99 ? 3 : number >= 9 ? 2 : 1) + 2;
      if (number != kNoNumber && width >= needed && pitch_ > 20) {
        write("  <text class=\"n\" x=\"{:.2f}\" y=\"{:.1f}\" font-size=\"11\">{}</text>\n",
              x + width / 2, top_of(group) + thickness() / 2 + 4, number + 1);
      }
    }
  }

  void axis(double bottom) {
    for (std::size_t w = 0; w < windows_.size(); ++w) {
      const Window& window = windows_[w];
      const double span = window.to_s - window.from_s;
      write("  <line class=\"axis\" x1=\"{:.2f}\" y1=\"{:.1f}\" x2=\"{:.2f}\" y2=\"{:.1f}\"/>\n",
            window.x, bottom + 4, window.x + span * scale_, bottom + 4);
      const double step = tick_step(span, std::max(1.0, span * scale_ / 110));
      for (double t = std::ceil(window.from_s / step) * step; t <= window.to_s + step * 1e-6;
           t += step) {
        const double x = window.x + (t - window.from_s) * scale_;
        write(
            "  <line class=\"axis\" x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" "
            "y2=\"{2:.1f}\"/>\n",
            x, bottom + 4, bottom + 9);
        write("  <text class=\"soft\" x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x,
              bottom + 23, x > kWidth - kRight - 20 ? "end" : "middle",
              format_seconds(std::abs(t) < step * 1e-6 ? 0 : t));
      }
      if (w + 1 < windows_.size()) {
        const double x = window.x + span * scale_ + kBreak / 2;
        write(
            "  <line class=\"cut\" x1=\"{0:.2f}\" y1=\"{1:.0f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\"/>\n",
            x, kTop - 6, bottom + 9);
      }
    }
    if (windows_.size() > 1) {
      write(
          "  <text class=\"soft\" x=\"{:.0f}\" y=\"{:.1f}\">The beginning, a steady piece and the "
          "end "
          "of {}; numbers are the {} microbatches.</text>\n",
          kLeft, bottom + 44, format_seconds(timeline_.step_time_s), timeline_.microbatches);
    }
  }

  [[nodiscard]] double top_of(std::size_t group) const {
    return kTop + static_cast<double>(group) * pitch_;
  }
  [[nodiscard]] double thickness() const { return pitch_ - (pitch_ > 20 ? 4 : 2); }

  static constexpr std::uint32_t kNoNumber = 0xFFFFFFFFU;

  const solver::ReplicaTimeline& timeline_;
  const std::string title_;
  const std::size_t rows_;
  const double pitch_;
  std::vector<Window> windows_;
  double scale_ = 1;
  std::size_t drawn_ = 0;
  std::string out_;
};

}  // namespace

std::string pipeline_svg(const solver::ReplicaTimeline& timeline, const std::string& title) {
  return Picture(timeline, title).draw();
}

}  // namespace tapas::ctl
