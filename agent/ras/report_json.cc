// The JSON form: every communicator with all its ranks, so the comparison is ours.
#include "agent/ras/gather.h"
#include "base/clean.h"
#include "base/json/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tapas::agent::ras {

namespace {

using json::Value;

/// 2.28.7 to 2.28.9 leave out the comma between "nvml_dev" and "status" of a missing rank. Puts it
/// there; lines stay where they are.
std::string with_commas(std::string_view text) {
  constexpr std::string_view kKey = "\"nvml_dev\":";
  std::string out;
  out.reserve(text.size() + 64);
  while (true) {
    const std::size_t key = text.find(kKey);
    if (key == std::string_view::npos) {
      return out.append(text);
    }
    const std::size_t value = std::min(text.find_first_not_of(' ', key + kKey.size()), text.size());
    const std::size_t end = std::min(text.find_first_not_of("-0123456789", value), text.size());
    out.append(text.substr(0, end));
    text.remove_prefix(end);
    const std::size_t next = text.find_first_not_of(" \t\r\n");
    if (end > value && next != std::string_view::npos && text[next] == '"') {
      out += ',';
    }
  }
}

/// NCCL's results (nccl.h); 0 is success and 7 means that it is still at it.
std::string error_word(std::int64_t result) {
  switch (result) {
    case 1:
      return "Unhandled CUDA error";
    case 2:
      return "System error";
    case 3:
      return "Internal error";
    case 4:
      return "Invalid argument";
    case 5:
      return "Invalid usage";
    case 6:
      return "Remote process error";
    default:
      return fmt::format("NCCL result {}", result);
  }
}
bool is_error(std::int64_t result) { return result != 0 && result != 7; }

/// Ranks by what they say.
class Groups {
 public:
  void put(std::uint64_t launched, const std::string& word, const RankAt& rank) {
    Group& group = groups_[{launched, word}];
    group.launched = launched;
    group.word = word;
    ++group.count;
    group.ranks.push_back(rank);
  }
  [[nodiscard]] std::vector<Group> all() const {
    std::vector<Group> found;
    for (const auto& [said, group] : groups_) {
      found.push_back(group);
    }
    return found;
  }

 private:
  std::map<std::pair<std::uint64_t, std::string>, Group> groups_;
};

class JsonReader {
 public:
  Result<Report> read(std::string_view text) {
    const auto root = json::parse(with_commas(text), {2 * kMaxReportBytes, 16});
    if (!root) {
      return fail(ErrorCode::kInvalid, "no report of NCCL's RAS: {}", root.error().message);
    }
    report_.nccl_version = clean(string(*root, "nccl_version"));
    const Value& communicators = array(*root, "communicators");
    expect_count(*root, "communicators_count", communicators.size(), "communicators");
    for (std::size_t i = 0; i < communicators.size() && error_.empty(); ++i) {
      where_ = fmt::format("communicators[{}]", i);
      communicator(communicators[i]);
    }
    where_.clear();
    if (const auto ras = root->find("ras"); ras != root->end() && error_.empty()) {
      where_ = "ras";
      report_.timeouts = integer(*ras, "timeouts_count");
    }
    if (!error_.empty()) {
      return fail(ErrorCode::kInvalid, "no report of NCCL's RAS: {}", error_);
    }
    report_.nodes = static_cast<std::int64_t>(hosts_.size());
    report_.processes = static_cast<std::int64_t>(processes_.size());
    report_.gpus = static_cast<std::int64_t>(gpus_.size());
    gather_.finish(report_);
    return std::move(report_);
  }

 private:
  void communicator(const Value& value) {
    const std::string place = where_;
    std::string hash = clean(string(value, "hash"));
    if (hash.rfind("0x", 0) == 0) {
      hash = fmt::format("{:0>16}", hash.substr(2));  // As the text form writes it.
    }
    const std::int64_t size = integer(value, "size");
    const Value& ranks = array(value, "ranks");
    const Value& missing = array(value, "missing_ranks");
    expect_count(value, "ranks_count", ranks.size(), "ranks");
    expect_count(value, "missing_ranks_count", missing.size(), "missing_ranks");
    report_.communicators.push_back({hash, 1, size});

    std::set<std::int64_t> seen;
    Said said;
    for (std::size_t i = 0; i < ranks.size() && error_.empty(); ++i) {
      where_ = fmt::format("{}.ranks[{}]", place, i);
      present(ranks[i], rank_at(ranks[i], size, seen), said);
    }
    for (std::size_t i = 0; i < missing.size() && error_.empty(); ++i) {
      where_ = fmt::format("{}.missing_ranks[{}]", place, i);
      const RankAt rank = rank_at(missing[i], size, seen);
      const Value& status = object(missing[i], "status");
      if (flag(status, "considered_dead")) {
        gather_.silent_rank(Kind::kDead, hash, rank);
      } else if (flag(status, "unresponsive")) {
        gather_.silent_rank(Kind::kUnresponsive, hash, rank);
      } else {
        gather_.missing_rank(hash, rank);
      }
    }
    gather_.unnamed(Kind::kMissing, hash, size - static_cast<std::int64_t>(seen.size()));
    gather_.errors(hash, said.errors.all());
    gather_.statuses(hash, said.statuses.all());
    for (const auto& [operation, groups] : said.launches) {
      gather_.launches(hash, operation, groups.all());
    }
  }

  /// What the ranks of a communicator say.
  struct Said {
    Groups errors;
    Groups statuses;
    std::map<std::string, Groups> launches;
  };

  void present(const Value& value, const RankAt& rank, Said& said) {
    const Value& status = object(value, "status");
    const std::int64_t init = integer(status, "init_state");
    for (const std::int64_t result : {init, integer(status, "async_error")}) {
      if (is_error(result)) {
        said.errors.put(0, error_word(result), rank);
      }
    }
    const bool ends = flag(status, "finalize_called") || flag(status, "destroy_flag");
    said.statuses.put(0,
                      flag(status, "abort_flag") ? "ABORT"
                      : ends                     ? "FINALIZE"
                      : init == 0                ? "RUNNING"
                                                 : "INIT",
                      rank);
    const Value& counts = object(value, "collective_counts");
    for (const auto& [operation, count] : counts.items()) {
      if (!count.is_number_unsigned()) {
        refuse(fmt::format("collective_counts.{}", clean(operation)), "a count", count);
        return;
      }
      said.launches[operation].put(count.get<std::uint64_t>(), "", rank);
    }
  }

  RankAt rank_at(const Value& value, std::int64_t size, std::set<std::int64_t>& seen) {
    RankAt rank;
    rank.rank = integer(value, "rank");
    if (error_.empty() && (rank.rank < 0 || rank.rank >= size || !seen.insert(rank.rank).second)) {
      error_ = fmt::format("{}: rank {} is there twice, or not one of the {} of its communicator",
                           where_, rank.rank, size);
    }
    const std::int64_t cuda = integer(value, "cuda_dev");
    const std::int64_t nvml = integer(value, "nvml_dev");
    const std::string host = string(value, "host");
    const std::int64_t pid = integer(value, "pid");
    if (host != "unknown") {
      rank.place = {host, pid, gpu_text(cuda, nvml)};
      hosts_.insert(host);
      processes_.emplace(host, pid);
      gpus_.emplace(host, nvml);
    }
    return rank;
  }

  static std::string gpu_text(std::int64_t cuda, std::int64_t nvml) {
    return cuda == nvml ? fmt::format("{}", cuda) : fmt::format("{} (NVML {})", cuda, nvml);
  }

  // The first error stays and wins; after it the getters return nothing.
  const Value* find(const Value& value, const char* key) {
    if (!error_.empty()) {
      return nullptr;
    }
    const auto at = value.is_object() ? value.find(key) : value.end();
    if (!value.is_object() || at == value.end()) {
      error_ = fmt::format("{} has no \"{}\"", where_.empty() ? "it" : where_, key);
      return nullptr;
    }
    return &*at;
  }
  void refuse(const std::string& key, std::string_view wanted, const Value& seen) {
    if (error_.empty()) {
      error_ = fmt::format("{}{}{} is not {}: {}", where_, where_.empty() ? "" : ".", key, wanted,
                           clean(json::dump(seen)));
    }
  }
  std::string string(const Value& value, const char* key) {
    const Value* found = find(value, key);
    if (found != nullptr && !found->is_string()) {
      refuse(key, "text", *found);
    }
    return found != nullptr && found->is_string() ? found->get<std::string>() : "";
  }
  std::int64_t integer(const Value& value, const char* key) {
    const Value* found = find(value, key);
    // NCCL's own numbers are 32 bit.
    const bool good = found != nullptr && found->is_number_integer() &&
                      (!found->is_number_unsigned() || found->get<std::uint64_t>() < 1U << 31U);
    if (found != nullptr && !good) {
      refuse(key, "an integer below 2^31", *found);
    }
    return good ? found->get<std::int64_t>() : 0;
  }
  bool flag(const Value& value, const char* key) {
    const Value* found = find(value, key);
    if (found != nullptr && !found->is_boolean()) {
      refuse(key, "true or false", *found);
    }
    return found != nullptr && found->is_boolean() && found->get<bool>();
  }
  const Value& array(const Value& value, const char* key) {
    static const Value kEmpty = Value::array();
    const Value* found = find(value, key);
    if (found != nullptr && !found->is_array()) {
      refuse(key, "an array", *found);
    }
    return found != nullptr && found->is_array() ? *found : kEmpty;
  }
  const Value& object(const Value& value, const char* key) {
    static const Value kEmpty = Value::object();
    const Value* found = find(value, key);
    if (found != nullptr && !found->is_object()) {
      refuse(key, "an object", *found);
    }
    return found != nullptr && found->is_object() ? *found : kEmpty;
  }
  void expect_count(const Value& value, const char* key, std::size_t there, const char* what) {
    const std::int64_t told = integer(value, key);
    if (error_.empty() && told != static_cast<std::int64_t>(there)) {
      error_ = fmt::format("{}{}{} is {}, but {} has {}", where_, where_.empty() ? "" : ".", key,
                           told, what, there);
    }
  }

  Report report_;
  Gather gather_;
  std::set<std::string> hosts_;
  std::set<std::pair<std::string, std::int64_t>> processes_;
  std::set<std::pair<std::string, std::int64_t>> gpus_;
  std::string where_;
  std::string error_;
};

}  // namespace

Result<Report> parse_json(std::string_view text) { return JsonReader().read(text); }

}  // namespace tapas::agent::ras
