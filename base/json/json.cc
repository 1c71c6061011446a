#include "base/json/json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

namespace tapas::json {

namespace {

constexpr std::size_t kMaxQuoted = 80;

/// Foreign text in our messages: printable ASCII, of bounded length.
std::string printable(std::string_view text, std::size_t limit = kMaxQuoted) {
  std::string out;
  for (const char c : text.substr(0, limit)) {
    out += (c >= 0x20 && c < 0x7f) ? c : '?';
  }
  return text.size() > limit ? out + "..." : out;
}

std::string position_text(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
  return fmt::format("line {}, column {}", line, column);
}

/// Reads the text for the parser and tells how far it has come, which the parser does not.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** consumed) : at_(at), consumed_(consumed) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *consumed_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ != b.at_;
  }

 private:
  const char* at_;
  const char** consumed_;
};

/// Builds the value from parser events; a false return stops the parser.
class Builder : public nlohmann::json_sax<Value> {
 public:
  Builder(std::string_view text, std::size_t max_depth) : text_(text), max_depth_(max_depth) {}

  const char* consumed = nullptr;  ///< set by CountingIterator
  Value root;
  std::string failure;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(Value::object()); }
  bool start_array(std::size_t) override { return open(Value::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    if (!level.keys.insert(name).second) {
      failure = fmt::format("{}: duplicate key \"{}\"", position_text(text_, start_of_string()),
                            printable(name));
      return false;
    }
    // Past the container's own emplace(), which searches all keys again.
    auto& members = level.value->get_ref<Value::object_t&>();
    static_cast<Value::object_t::Container&>(members).emplace_back(std::move(name), nullptr);
    slot_ = &members.back().second;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    std::string_view what = e.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..."
    if (const auto bracket = what.find("] "); bracket != std::string_view::npos) {
      what.remove_prefix(bracket + 2);
    }
    if (what.starts_with("parse error")) {
      what.remove_prefix(std::min(what.find(": ") + 2, what.size()));
    }
    const std::size_t used = offset();
    failure =
        fmt::format("{}: {}", position_text(text_, used == 0 ? 0 : used - 1), printable(what, 240));
    return false;
  }

 private:
  struct Level {
    Value* value;
    std::set<std::string> keys;
  };

  [[nodiscard]] std::size_t offset() const {
    return consumed == nullptr ? 0 : static_cast<std::size_t>(consumed - text_.data());
  }

  /// The parser stands behind a string's closing quote: where did it open?
  [[nodiscard]] std::size_t start_of_string() const {
    std::size_t at = offset() - 1;
    for (;;) {
      at = text_.rfind('"', at - 1);
      const std::size_t slashes = at - (text_.find_last_not_of('\\', at - 1) + 1);
      if (slashes % 2 == 0) {
        return at;
      }
    }
  }

  template <typename T>
  bool add(T&& value) {
    place(Value(std::forward<T>(value)));
    return true;
  }

  Value* place(Value value) {
    if (levels_.empty()) {
      root = std::move(value);
      return &root;
    }
    Value& parent = *levels_.back().value;
    if (parent.is_array()) {
      return &parent.get_ref<Value::array_t&>().emplace_back(std::move(value));
    }
    *slot_ = std::move(value);
    return slot_;
  }

  bool open(Value value) {
    if (levels_.size() >= max_depth_) {
      failure = fmt::format("{}: nested deeper than {} levels", position_text(text_, offset() - 1),
                            max_depth_);
      return false;
    }
    levels_.push_back({place(std::move(value)), {}});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  std::string_view text_;
  std::size_t max_depth_;
  std::vector<Level> levels_;
  Value* slot_ = nullptr;
};

}  // namespace

Result<Value> parse(std::string_view text, const ParseLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return fail(ErrorCode::kInvalid, "JSON text of {} bytes is over the limit of {} bytes",
                text.size(), limits.max_bytes);
  }
  // The parser would take a zero byte for the end of the text and ignore what follows.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    return fail(ErrorCode::kInvalid, "{}: zero byte in JSON text", position_text(text, zero));
  }
  Builder builder(text, limits.max_depth);
  const char* const end = text.data() + text.size();
  const bool parsed = Value::sax_parse(CountingIterator(text.data(), &builder.consumed),
                                       CountingIterator(end, &builder.consumed), &builder,
                                       Value::input_format_t::json, true, limits.comments);
  if (!parsed) {
    return fail(ErrorCode::kInvalid, "{}", builder.failure);
  }
  return std::move(builder.root);
}

Result<Value> parse_file(const std::string& path, const ParseLimits& limits) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int reason = errno;
    return fail(reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: cannot open: {}",
                path, std::strerror(reason));
  }
  std::string text;
  char block[1U << 16U];
  while (text.size() <= limits.max_bytes && file.read(block, sizeof block).gcount() > 0) {
    text.append(block, static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) {
    return fail(ErrorCode::kIo, "{}: cannot read: {}", path, std::strerror(errno));
  }
  if (text.size() > limits.max_bytes) {
    return fail(ErrorCode::kInvalid, "{}: larger than the limit of {} bytes", path,
                limits.max_bytes);
  }
  auto value = parse(text, limits);
  if (!value) {
    return fail_in(path, value.error());
  }
  return value;
}

std::string dump(const Value& value, int indent) {
  return value.dump(indent, ' ', false, Value::error_handler_t::replace);
}

namespace {

/// Insertions, deletions, substitutions and swaps of neighbours that turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

/// A typing slip: up to a third of the longer word differs, or one is the head of the other.
bool near(std::string_view a, std::string_view b) {
  constexpr std::size_t kLongestKey = 64;
  if (a.empty() || b.empty() || a.size() > kLongestKey || b.size() > kLongestKey) {
    return false;
  }
  const std::size_t shorter = std::min(a.size(), b.size());
  if (shorter >= 4 && a.substr(0, shorter) == b.substr(0, shorter)) {
    return true;
  }
  return edit_distance(a, b) * 3 <= std::max(a.size(), b.size());
}

template <typename Names>
std::string nearest(std::string_view word, const Names& names) {
  std::string best;
  std::size_t best_distance = 0;
  for (const auto& name : names) {
    if (near(word, name)) {
      const std::size_t distance = edit_distance(word, name);
      if (best.empty() || distance < best_distance) {
        best = name;
        best_distance = distance;
      }
    }
  }
  return best;
}

std::string shown(const Value& value) { return printable(dump(value), 40); }

const Value& empty_array() {
  static const Value value = Value::array();
  return value;
}

const Value& empty_object() {
  static const Value value = Value::object();
  return value;
}

}  // namespace

ObjectReader::ObjectReader(const Value& value, std::string where)
    : value_(value), where_(std::move(where)) {
  if (!value_.is_object()) {
    error(fmt::format("{}must be an object, not {}", where_.empty() ? "" : where_ + " ",
                      shown(value_)));
  }
}

void ObjectReader::error(std::string message) {
  if (ok()) {
    error_ = Error{ErrorCode::kInvalid, std::move(message)};
  }
}

void ObjectReader::absorb(const Error& other) {
  if (ok()) {
    error_ = other;
  }
}

std::string ObjectReader::child(std::string_view key) const {
  return where_.empty() ? std::string(key) : fmt::format("{}.{}", where_, key);
}

std::string ObjectReader::child(std::string_view key, std::size_t index) const {
  return fmt::format("{}[{}]", child(key), index);
}

const Value* ObjectReader::find(std::string_view key, bool required) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
    asked_.emplace_back(key);
  }
  if (!ok()) {
    return nullptr;
  }
  const auto found = value_.find(key);
  if (found != value_.end()) {
    return &*found;
  }
  if (required) {
    std::vector<std::string> unasked;
    for (const auto& item : value_.items()) {
      if (std::find(asked_.begin(), asked_.end(), item.key()) == asked_.end()) {
        unasked.push_back(item.key());
      }
    }
    const std::string slip = nearest(key, unasked);
    error(fmt::format(
        "{}: missing key \"{}\"{}", where_.empty() ? "document" : where_, key,
        slip.empty() ? "" : fmt::format("; is \"{}\" meant to be it?", printable(slip))));
  }
  return nullptr;
}

void ObjectReader::require_schema(std::string_view expected) {
  const Value* value = find("schema", false);
  if (!ok()) {
    return;
  }
  if (value == nullptr) {
    error(fmt::format("{}: missing key \"schema\"; it must be \"{}\"",
                      where_.empty() ? "document" : where_, expected));
  } else if (!value->is_string() || value->get_ref<const std::string&>() != expected) {
    error(fmt::format("{} is {}; this version reads \"{}\"", child("schema"), shown(*value),
                      expected));
  }
}

bool ObjectReader::has(std::string_view key) { return find(key, false) != nullptr; }

std::string ObjectReader::string(std::string_view key) {
  const Value* value = find(key, true);
  if (value == nullptr) {
    return {};
  }
  if (!value->is_string()) {
    error(fmt::format("{} must be a string, not {}", child(key), shown(*value)));
    return {};
  }
  return value->get<std::string>();
}

std::string ObjectReader::string_or(std::string_view key, std::string_view fallback) {
  if (!has(key)) {
    return ok() ? std::string(fallback) : std::string();
  }
  return string(key);
}

std::string ObjectReader::word(std::string_view key,
                               std::initializer_list<std::string_view> allowed) {
  std::string text = string(key);
  if (ok() && std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
    error(fmt::format("{} is \"{}\"; allowed: {}", child(key), printable(text),
                      fmt::join(allowed, ", ")));
  }
  return ok() ? text : std::string();
}

double ObjectReader::number(std::string_view key, double min, double max) {
  const Value* value = find(key, true);
  if (value == nullptr) {
    return 0;
  }
  const double number = value->is_number() ? value->get<double>() : 0;
  if (!value->is_number() || number < min || number > max) {
    error(fmt::format("{} must be a number from {} to {}, not {}", child(key), min, max,
                      shown(*value)));
    return 0;
  }
  return number;
}

double ObjectReader::number_or(std::string_view key, double fallback, double min, double max) {
  if (!has(key)) {
    return ok() ? fallback : 0;
  }
  return number(key, min, max);
}

std::int64_t ObjectReader::integer(std::string_view key, std::int64_t min, std::int64_t max) {
  const Value* value = find(key, true);
  if (value == nullptr) {
    return 0;
  }
  const bool fits =
      value->is_number_integer() &&
      (!value->is_number_unsigned() || value->get<std::uint64_t>() <= std::uint64_t{INT64_MAX});
  const std::int64_t number = fits ? value->get<std::int64_t>() : 0;
  if (!fits || number < min || number > max) {
    error(fmt::format("{} must be an integer from {} to {}, not {}", child(key), min, max,
                      shown(*value)));
    return 0;
  }
  return number;
}

std::int64_t ObjectReader::integer_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                                      std::int64_t max) {
  if (!has(key)) {
    return ok() ? fallback : 0;
  }
  return integer(key, min, max);
}

bool ObjectReader::boolean_or(std::string_view key, bool fallback) {
  const Value* value = find(key, false);
  if (value == nullptr) {
    return ok() && fallback;
  }
  if (!value->is_boolean()) {
    error(fmt::format("{} must be true or false, not {}", child(key), shown(*value)));
    return false;
  }
  return value->get<bool>();
}

const Value& ObjectReader::array(std::string_view key, std::size_t max_items) {
  const Value* value = find(key, true);
  if (value == nullptr) {
    return empty_array();
  }
  if (!value->is_array()) {
    error(fmt::format("{} must be an array, not {}", child(key), shown(*value)));
    return empty_array();
  }
  if (value->size() > max_items) {
    error(fmt::format("{} has {} entries; at most {} are allowed", child(key), value->size(),
                      max_items));
    return empty_array();
  }
  return *value;
}

const Value& ObjectReader::object(std::string_view key) {
  const Value* value = find(key, true);
  if (value == nullptr) {
    return empty_object();
  }
  if (!value->is_object()) {
    error(fmt::format("{} must be an object, not {}", child(key), shown(*value)));
    return empty_object();
  }
  return *value;
}

Result<void> ObjectReader::finish() {
  if (ok()) {
    for (const auto& item : value_.items()) {
      if (std::find(asked_.begin(), asked_.end(), item.key()) != asked_.end()) {
        continue;
      }
      const std::string slip = nearest(item.key(), asked_);
      error(fmt::format("{}: unknown key \"{}\"; {}", where_.empty() ? "document" : where_,
                        printable(item.key()),
                        slip.empty() ? fmt::format("known: {}", fmt::join(asked_, ", "))
                                     : fmt::format("did you mean \"{}\"?", slip)));
      break;
    }
  }
  if (!ok()) {
    return tl::unexpected<Error>(error_);
  }
  return {};
}

}  // namespace tapas::json
