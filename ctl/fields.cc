#include "ctl/fields.h"

#include <limits>

namespace tapas::ctl {

namespace {

const json::Value* find(const json::Value& value, std::string_view key) {
  if (!value.is_object()) {
    return nullptr;
  }
  const auto it = value.find(std::string(key));
  return it == value.end() ? nullptr : &*it;
}

}  // namespace

double number_at(const json::Value& value, std::string_view key) {
  const json::Value* field = find(value, key);
  return field != nullptr && field->is_number() ? field->get<double>()
                                                : std::numeric_limits<double>::quiet_NaN();
}

std::uint64_t count_of(const json::Value& value) {
  if (value.is_number_unsigned()) {
    return value.get<std::uint64_t>();
  }
  return value.is_number_integer() && value.get<std::int64_t>() > 0
             ? static_cast<std::uint64_t>(value.get<std::int64_t>())
             : 0;
}

std::uint64_t count_at(const json::Value& value, std::string_view key) {
  const json::Value* field = find(value, key);
  return field != nullptr ? count_of(*field) : 0;
}

bool flag_at(const json::Value& value, std::string_view key) {
  const json::Value* field = find(value, key);
  return field != nullptr && field->is_boolean() && field->get<bool>();
}

std::string text_at(const json::Value& value, std::string_view key, std::string_view fallback) {
  const json::Value* field = find(value, key);
  return field != nullptr && field->is_string() ? field->get<std::string>() : std::string(fallback);
}

const json::Value& array_at(const json::Value& value, std::string_view key) {
  static const json::Value kEmpty = json::Value::array();
  const json::Value* field = find(value, key);
  return field != nullptr && field->is_array() ? *field : kEmpty;
}

const json::Value& object_at(const json::Value& value, std::string_view key) {
  static const json::Value kEmpty = json::Value::object();
  const json::Value* field = find(value, key);
  return field != nullptr && field->is_object() ? *field : kEmpty;
}

}  // namespace tapas::ctl
