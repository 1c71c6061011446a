#pragma once

#include "base/json/json.h"
#include "daemon/jobs.h"
#include "daemon/recording/names.h"
#include "solver/model/io/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
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

/// Appends JSON to a text, straight and without a tree in between: it runs on the core's thread for
/// every record of the fleet. What a struct consists of is said once, by its fields(), to Writer
/// and Reader alike.
class Writer {
 public:
  /// `jobs` must hold the job of each plan that is written; both must outlive this.
  Writer(const JobMap& jobs, std::string& out) : jobs_(jobs), out_(out) {}

  /// An object.
  template <std::size_t kCount, typename... T>
  void operator()(const char* const (&names)[kCount], const T&... values) {
    static_assert(kCount == sizeof...(T));
    std::size_t index = 0;
    ((out_ += index == 0 ? "{\"" : ",\"", out_ += names[index++], out_ += "\":", put(values)), ...);
    out_ += '}';
  }
  /// An array of values of different kinds.
  template <typename... T>
  void row(const T&... values) {
    char before = '[';
    ((out_ += std::exchange(before, ','), put(values)), ...);
    out_ += ']';
  }
  void nothing() { out_ += "{}"; }

  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      out_ += value ? "true" : "false";
    } else if constexpr (std::is_integral_v<T>) {
      fmt::format_to(std::back_inserter(out_), "{}", value);
    } else if constexpr (std::is_floating_point_v<T>) {
      put_number(value);
    } else if constexpr (std::is_enum_v<T>) {
      put(word_of(value));
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      put_text(value);
    } else {
      fields(*this, value);
    }
  }
  template <typename Tag, typename Int>
  void put(StrongId<Tag, Int> id) {
    put(id.value());
  }
  template <typename Int>
  void put(Hex<Int> id) {
    fmt::format_to(std::back_inserter(out_), "\"{:016x}\"", id.value);
  }
  template <typename Real>
  void put(Micros<Real> time) {
    const double rounded = std::round(time.value * 1e6);
    if (rounded >= 0 && rounded < 0x1p53 && !std::signbit(time.value) &&
        rounded * 1e-6 == time.value) {
      put(static_cast<std::uint64_t>(rounded));
      return;
    }
    const std::size_t start = out_.size();
    put_number(time.value);
    if (out_.find_first_of(".e\"", start) == std::string::npos) {
      out_ += ".0";
    }
  }
  template <typename T>
  void put(const std::vector<T>& list) {
    char before = '[';
    for (const T& item : list) {
      out_ += std::exchange(before, ',');
      put(item);
    }
    out_ += list.empty() ? "[]" : "]";
  }
  template <typename T>
  void put(const std::map<std::string, T>& entries) {
    char before = '{';
    for (const auto& [key, value] : entries) {
      out_ += std::exchange(before, ',');
      put_text(key);
      out_ += ':';
      put(value);
    }
    out_ += entries.empty() ? "{}" : "}";
  }
  template <typename T>
  void put(const std::optional<T>& maybe) {
    put_pointer(maybe ? &*maybe : nullptr);
  }
  template <typename T>
  void put(const std::shared_ptr<const T>& maybe) {
    put_pointer(maybe.get());
  }
  template <typename... T>
  void put(const std::variant<T...>& one) {
    out_ += "{\"";
    out_ += Names<std::variant<T...>>::kList[one.index()];
    out_ += "\":";
    std::visit([this](const auto& value) { put(value); }, one);
    out_ += '}';
  }
  template <typename T>
  void put(const Result<T>& result) {
    if (!result) {
      (*this)({"error"}, result.error());
    } else if constexpr (std::is_void_v<T>) {
      nothing();
    } else {
      (*this)({"value"}, *result);
    }
  }
  /// `tapas.plan/1`; null stands for a plan of no job, which is no plan yet.
  void put(const solver::Plan& plan) {
    const auto job = jobs_.find(plan.job);
    out_ += job == jobs_.end() ? "null" : json::dump(solver::plan_to_json(plan, *job->second));
  }

 private:
  template <typename T>
  void put_pointer(const T* value) {
    if (value == nullptr) {
      out_ += "null";
    } else {
      put(*value);
    }
  }
  void put_number(double value) {
    if (!std::isfinite(value)) {
      fmt::format_to(std::back_inserter(out_), "\"{}\"", value);
    } else if (value == 0 && std::signbit(value)) {
      out_ += "-0.0";
    } else {
      fmt::format_to(std::back_inserter(out_), "{}", value);
    }
  }
  void put_text(std::string_view text) {
    const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
      return c >= ' ' && c <= '~' && c != '"' && c != '\\';
    });
    if (plain) {
      ((out_ += '"') += text) += '"';
    } else {
      out_ += json::dump(json::Value(text));
    }
  }

  const JobMap& jobs_;
  std::string& out_;
};

}  // namespace tapas::daemon::recording
