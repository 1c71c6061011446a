#pragma once

#include "base/result.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::json {

/// Keys keep the order they were written in, so files and output stay readable.
using Value = nlohmann::ordered_json;

struct ParseLimits {
  std::size_t max_bytes = 64U << 20U;
  std::size_t max_depth = 32;
  bool comments = false;  ///< Accept // and /* */ (configuration files only).
};

/// Parses text under limits. Refused, with line and column: syntax errors, more than max_bytes,
/// nesting over max_depth, duplicate keys, numbers that are not finite, text that is not UTF-8.
[[nodiscard]] Result<Value> parse(std::string_view text, const ParseLimits& limits = {});

/// Reads and parses a file; errors name the path.
[[nodiscard]] Result<Value> parse_file(const std::string& path, const ParseLimits& limits = {});

/// Text of a value; bytes that are not UTF-8 become U+FFFD instead of an exception.
[[nodiscard]] std::string dump(const Value& value, int indent = -1);

/// Reads one object strictly. Every key is asked for by name; finish() then refuses the keys that
/// nobody asked for, with the nearest known name. The first error sticks and wins.
///
///   ObjectReader in(value, "job");
///   job.name = in.string("name");
///   job.batch = in.integer("global_batch", 1, 1 << 20);
///   if (auto ok = in.finish(); !ok) return tl::unexpected(ok.error());
///
/// After an error every getter returns its type's zero, so a reader may run to its end.
class ObjectReader {
 public:
  /// `where` is the path shown in errors, such as "cluster.nodes[3]". `value` must outlive this.
  ObjectReader(const Value& value, std::string where);

  /// `schema` must be exactly `expected` ("tapas.job/1"); the error says which versions are read.
  void require_schema(std::string_view expected);

  [[nodiscard]] bool has(std::string_view key);
  [[nodiscard]] std::string string(std::string_view key);
  [[nodiscard]] std::string string_or(std::string_view key, std::string_view fallback);
  /// One of the allowed words; the error lists them.
  [[nodiscard]] std::string word(std::string_view key,
                                 std::initializer_list<std::string_view> allowed);
  [[nodiscard]] double number(std::string_view key, double min, double max);
  [[nodiscard]] double number_or(std::string_view key, double fallback, double min, double max);
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max);
  [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t fallback,
                                        std::int64_t min, std::int64_t max);
  [[nodiscard]] bool boolean_or(std::string_view key, bool fallback);
  /// The array or object below key; a shared empty one after an error.
  [[nodiscard]] const Value& array(std::string_view key, std::size_t max_items);
  [[nodiscard]] const Value& object(std::string_view key);

  /// Path of a child, for nested readers: child("nodes", 3) is "cluster.nodes[3]".
  [[nodiscard]] std::string child(std::string_view key) const;
  [[nodiscard]] std::string child(std::string_view key, std::size_t index) const;

  /// Takes over the error of a nested reader or loader.
  void absorb(const Error& error);
  [[nodiscard]] bool ok() const { return error_.message.empty(); }
  /// Requires that all wanted keys were asked for before.
  [[nodiscard]] Result<void> finish();

 private:
  const Value* find(std::string_view key, bool required);
  void error(std::string message);

  const Value& value_;
  std::string where_;
  std::vector<std::string> asked_;
  Error error_;
};

}  // namespace tapas::json
