#pragma once

#include "base/json/json.h"
#include "daemon/jobs.h"
#include "daemon/recording/names.h"
#include "solver/model/io/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tapas::daemon::recording {

/// The counterpart of Writer: strict, every field must be there and no other. The first error
/// sticks and names the place; values read after it mean nothing.
class Reader {
 public:
  /// `jobs` must hold a job before a plan of it is read; it must outlive this.
  explicit Reader(const JobMap& jobs) : jobs_(jobs) {}

  template <typename T>
  [[nodiscard]] Result<void> read(std::string_view name, const json::Value& value, T& out) {
    at(std::string(name), [&] { get(value, out); });
    if (!error_.empty()) {
      return fail(ErrorCode::kInvalid, "{}", error_);
    }
    return {};
  }

  // What fields() calls, for the value that is being read.
  template <std::size_t kCount, typename... T>
  void operator()(const char* const (&names)[kCount], T&&... values) {
    static_assert(kCount == sizeof...(T));
    const json::Value& object = *value_;
    if (!object.is_object()) {
      return wrong("must be an object");
    }
    std::size_t index = 0;
    (member(object, names[index++], values), ...);
    if (object.size() > kCount) {
      for (const auto& [key, value] : object.items()) {
        if (std::find(std::begin(names), std::end(names), key) == std::end(names)) {
          return wrong(fmt::format("has a field \"{}\" that this version does not know", key));
        }
      }
    }
  }
  template <typename... T>
  void row(T&&... values) {
    const json::Value& array = *value_;
    if (!array.is_array() || array.size() != sizeof...(T)) {
      return wrong(fmt::format("must be an array of {} entries", sizeof...(T)));
    }
    std::size_t index = 0;
    (element(array, index++, values), ...);
  }
  void nothing() {
    if (!value_->is_object() || !value_->empty()) {
      wrong("must be {}");
    }
  }
  void wrong(std::string_view what) {
    if (!error_.empty()) {
      return;
    }
    for (const Step& step : path_) {
      error_ += step.name.empty() ? fmt::format("[{}]", step.index)
                : error_.empty()  ? step.name
                                  : "." + step.name;
    }
    error_ += fmt::format(" {}", what);
  }

 private:
  struct Step {
    std::string name;  ///< empty = an index
    std::size_t index = 0;
  };

  template <typename Work>
  void at(std::string name, Work work, std::size_t index = 0) {
    path_.push_back({std::move(name), index});
    work();
    path_.pop_back();
  }
  template <typename T>
  void member(const json::Value& object, const char* name, T& out) {
    const auto found = object.find(name);
    at(name, [&] { found == object.end() ? wrong("is missing") : get(*found, out); });
  }
  template <typename T>
  void element(const json::Value& array, std::size_t index, T& out) {
    at(
        {}, [&] { get(array[index], out); }, index);
  }

  template <typename T>
  void get(const json::Value& value, T& out) {
    if constexpr (std::is_same_v<T, bool>) {
      value.is_boolean() ? void(out = value.get<bool>()) : wrong("must be true or false");
    } else if constexpr (std::is_integral_v<T>) {
      get_integer(value, out);
    } else if constexpr (std::is_floating_point_v<T>) {
      get_number(value, out);
    } else if constexpr (std::is_enum_v<T>) {
      if (const auto index = index_of<T>(value)) {
        out = static_cast<T>(*index);
      }
    } else if constexpr (std::is_same_v<T, std::string>) {
      value.is_string() ? void(out = value.get<std::string>()) : wrong("must be a text");
    } else {
      const json::Value* outer = std::exchange(value_, &value);
      fields(*this, out);
      value_ = outer;
    }
  }
  template <typename Tag, typename Int>
  void get(const json::Value& value, StrongId<Tag, Int>& out) {
    Int number = 0;
    get(value, number);
    out = StrongId<Tag, Int>(number);
  }
  template <typename Int>
  void get(const json::Value& value, Hex<Int>& out) {
    const std::string text = value.is_string() ? value.get<std::string>() : std::string();
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), out.value, 16);
    if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) {
      wrong("must be 16 hexadecimal digits");
    }
  }
  template <typename Real>
  void get(const json::Value& value, Micros<Real>& out) {
    if (value.is_number_unsigned()) {
      out.value = static_cast<double>(value.get<std::uint64_t>()) * 1e-6;
    } else {
      get_number(value, out.value);
    }
  }
  template <typename T>
  void get(const json::Value& value, std::vector<T>& out) {
    if (!value.is_array()) {
      return wrong("must be an array");
    }
    out.clear();
    out.reserve(value.size());
    for (std::size_t i = 0; i < value.size() && error_.empty(); ++i) {
      T item{};
      element(value, i, item);
      out.push_back(std::move(item));
    }
  }
  template <typename T>
  void get(const json::Value& value, std::map<std::string, T>& out) {
    if (!value.is_object()) {
      return wrong("must be an object");
    }
    for (const auto& [key, entry] : value.items()) {
      at(key, [&, &one = entry, &slot = out[key]] { get(one, slot); });
    }
  }
  template <typename T>
  void get(const json::Value& value, std::optional<T>& out) {
    value.is_null() ? out.reset() : get(value, out.emplace());
  }
  template <typename T>
  void get(const json::Value& value, std::shared_ptr<const T>& out) {
    if (!value.is_null()) {
      auto fresh = std::make_shared<T>();
      get(value, *fresh);
      out = std::move(fresh);
    }
  }
  template <typename... T>
  void get(const json::Value& value, std::variant<T...>& out) {
    using Variant = std::variant<T...>;
    if (!value.is_object() || value.size() != 1) {
      return wrong("must be an object with one entry");
    }
    const std::string& key = value.begin().key();
    const auto& names = Names<Variant>::kList;
    const auto found = std::find(names.begin(), names.end(), key);
    if (found == names.end()) {
      return wrong(fmt::format("is \"{}\"; known are {}", key, fmt::join(names, ", ")));
    }
    const auto index = static_cast<std::size_t>(found - names.begin());
    std::size_t next = 0;
    at(key, [&] {
      ((next++ == index ? get(value.begin().value(), out.template emplace<T>()) : void()), ...);
    });
  }
  template <typename T>
  void get(const json::Value& value, Result<T>& out) {
    if (value.is_object() && value.contains("error")) {
      Error error;
      member(value, "error", error);
      out = tl::unexpected(std::move(error));
    } else if constexpr (std::is_void_v<T>) {
      out = Result<void>();
    } else {
      T good{};
      value.is_object() ? member(value, "value", good) : wrong("must be an object");
      out = std::move(good);
    }
  }
  void get(const json::Value& value, solver::Plan& out) {
    if (value.is_null()) {
      out = {};
      return;
    }
    const auto name = value.is_object() ? value.find("job") : value.end();
    const auto job = name != value.end() && name->is_string()
                         ? jobs_.find(name->get_ref<const std::string&>())
                         : jobs_.end();
    if (job == jobs_.end()) {
      return wrong("must be a plan of a job of this recording");
    }
    if (auto plan = solver::plan_from_json(value, *job->second)) {
      out = *std::move(plan);
    } else {
      wrong(plan.error().message);
    }
  }

  template <typename Int>
  void get_integer(const json::Value& value, Int& out) {
    using Limits = std::numeric_limits<Int>;
    if (value.is_number_unsigned() && std::in_range<Int>(value.get<std::uint64_t>())) {
      out = static_cast<Int>(value.get<std::uint64_t>());
    } else if (value.is_number_integer() && !value.is_number_unsigned() &&
               std::in_range<Int>(value.get<std::int64_t>())) {
      out = static_cast<Int>(value.get<std::int64_t>());
    } else {
      wrong(fmt::format("must be an integer from {} to {}", Limits::min(), Limits::max()));
    }
  }
  void get_number(const json::Value& value, double& out) {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    if (value.is_number()) {
      out = value.get<double>();
    } else if (value == "inf" || value == "-inf") {
      out = value == "inf" ? kInfinite : -kInfinite;
    } else if (value == "nan") {
      out = std::numeric_limits<double>::quiet_NaN();
    } else {
      wrong("must be a number");
    }
  }
  template <typename Enum>
  std::optional<std::size_t> index_of(const json::Value& value) {
    const auto& names = Names<Enum>::kList;
    const auto found = value.is_string() ? std::find(names.begin(), names.end(),
                                                     value.get_ref<const std::string&>())
                                         : names.end();
    if (found == names.end()) {
      wrong(fmt::format("must be one of {}", fmt::join(names, ", ")));
      return std::nullopt;
    }
    return static_cast<std::size_t>(found - names.begin());
  }

  const JobMap& jobs_;
  const json::Value* value_ = nullptr;
  std::vector<Step> path_;
  std::string error_;
};

}  // namespace tapas::daemon::recording
