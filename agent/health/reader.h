#pragma once

#include "agent/health/formats.h"
#include "agent/health/node_health.h"
#include "agent/health/sys_tree.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tapas::agent::health {

/// The files of one folder, read into one device: what cannot be had becomes a gap of it.
class Reader {
 public:
  Reader(const SysTree& tree, std::string folder, Measured& device)
      : tree_(tree), folder_(std::move(folder)), device_(device) {}

  /// The file's text; a gap when there is none.
  std::optional<std::string> text(std::string_view file) {
    auto text = tree_.read(path(file));
    if (!text) {
      gap(file, text.error().message);
      return std::nullopt;
    }
    return *std::move(text);
  }

  /// `parse(text)`; a gap when there is no text, or none that `parse` knows.
  template <typename Parse>
  auto value(std::string_view file, Parse parse) -> decltype(parse(std::string_view())) {
    const auto read = text(file);
    if (!read) {
      return std::nullopt;
    }
    auto parsed = parse(std::string_view(*read));
    if (!parsed) {
      gap(file, fmt::format("says \"{}\"", read->substr(0, kShownBytes)));
    }
    return parsed;
  }

  /// Like value(), for a file that not every kernel or driver has: no gap when it is not there.
  template <typename Parse>
  auto value_if_any(std::string_view file, Parse parse) -> decltype(parse(std::string_view())) {
    return tree_.has(path(file)) ? value(file, parse) : std::nullopt;
  }

  /// All numbers in the folder `below`, as counters; `skip` is a file that is none.
  void counters(std::string_view below, std::string_view skip = "");

  void counter(std::string_view name, const std::optional<std::uint64_t>& value) {
    if (value) {
      device_.counters.emplace(name, *value);
    }
  }
  void gap(std::string_view what, std::string why) {
    device_.gaps.push_back({std::string(what), std::move(why)});
  }
  [[nodiscard]] std::string path(std::string_view file) const {
    return fmt::format("{}/{}", folder_, file);
  }

 private:
  static constexpr std::size_t kShownBytes = 40;

  const SysTree& tree_;
  std::string folder_;
  Measured& device_;
};

}  // namespace tapas::agent::health
