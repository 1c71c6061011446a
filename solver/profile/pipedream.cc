#include "solver/profile/layers.h"
#include "solver/profile/readers.h"

#include <array>
#include <charconv>
#include <map>
#include <utility>

namespace tapas::solver::profile {
namespace {

constexpr std::size_t kMaxNodes = 100'000;
constexpr std::size_t kMaxEdges = 1'000'000;
constexpr std::size_t kMaxNameBytes = 4096;
constexpr std::string_view kSeparator = " -- ";

/// One line of text at a time, with its number.
class Reader {
 public:
  Reader(const File& file, const Options& options) : file_(file), options_(options) {}

  Result<Profile> run() {
    std::string_view rest = file_.text;
    while (!rest.empty()) {
      ++line_;
      const std::size_t end = rest.find('\n');
      std::string_view text = rest.substr(0, end);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      if (!text.empty() && text.back() == '\r') {
        text.remove_suffix(1);
      }
      if (text.empty()) {
        continue;
      }
      const Result<void> ok = text.front() == '\t' ? edge(text.substr(1)) : node(text);
      if (!ok) {
        return tl::unexpected(ok.error());
      }
    }
    return finish();
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> complain(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(ErrorCode::kInvalid, "{}:{}: {}", file_.name, line_,
                fmt::format(format, std::forward<Args>(args)...));
  }

  Result<double> number(std::string_view text, double max) const {
    double value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size() || !(value >= 0) ||
        value > max) {
      return complain("\"{}\" is not a number between 0 and {}", text, max);
    }
    return value;
  }

  /// A number, or "[a; b; c]" for several outputs: their sum.
  Result<double> size(std::string_view text) const {
    if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
      return number(text, kMaxBytes);
    }
    text = text.substr(1, text.size() - 2);
    double sum = 0;
    while (!text.empty()) {
      const std::size_t end = text.find(';');
      std::string_view part = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      while (!part.empty() && part.front() == ' ') {
        part.remove_prefix(1);
      }
      const auto value = number(part, kMaxBytes);
      if (!value) {
        return value;
      }
      sum += *value;
    }
    return sum;
  }

  Result<void> node(std::string_view text) {
    const std::size_t first = text.find(kSeparator);
    const std::size_t second =
        first == std::string_view::npos ? first : text.find(kSeparator, first + 1);
    if (second == std::string_view::npos) {
      return complain("expected \"node -- operator -- times and sizes\"");
    }
    if (profile_.graph.nodes.size() == kMaxNodes) {
      return complain("more than {} nodes", kMaxNodes);
    }
    const std::string id(text.substr(0, first));
    const std::string_view op =
        text.substr(first + kSeparator.size(), second - first - kSeparator.size());
    if (id.empty() || id.size() > kMaxNameBytes || op.size() > kMaxNameBytes) {
      return complain("names must have 1 to {} characters", kMaxNameBytes);
    }
    const auto index = static_cast<std::uint32_t>(profile_.graph.nodes.size());
    if (!ids_.emplace(id, index).second) {
      return complain("{} was described before", id);
    }
    std::string_view values = text.substr(second + kSeparator.size());
    values = values.substr(0, values.find(kSeparator));  // an older plan's stage may follow
    static constexpr std::array<std::string_view, 4> kKeys = {
        "forward_compute_time=", "backward_compute_time=", "activation_size=", "parameter_size="};
    std::array<double, kKeys.size()> read{};
    for (std::size_t k = 0; k < kKeys.size(); ++k) {
      const std::size_t end = values.find(", ");
      const std::string_view field = values.substr(0, end);
      values.remove_prefix(end == std::string_view::npos ? values.size() : end + 2);
      if (field.substr(0, kKeys[k].size()) != kKeys[k]) {
        return complain("expected {}<number>, found \"{}\"", kKeys[k], field);
      }
      const auto value = size(field.substr(kKeys[k].size()));
      if (!value) {
        return tl::unexpected(value.error());
      }
      read[k] = *value;
    }
    if (!values.empty()) {
      return complain("unexpected \"{}\" after the sizes", values);
    }
    constexpr double kMillisecond = 1e-3;
    OpNode made;
    made.id = index;
    made.name = id + " " + std::string(op);
    made.act_bytes = read[2];
    made.out_bytes = read[2];
    made.param_bytes = read[3];
    MeasuredOp times;
    times.device = options_.device;
    times.micro_batch_size = profile_.graph.micro_batch_size;
    times.forward_s = read[0] * kMillisecond;
    times.backward_s = read[1] * kMillisecond;
    made.measured.push_back(std::move(times));
    profile_.graph.nodes.push_back(std::move(made));
    return {};
  }

  Result<void> edge(std::string_view text) {
    const std::size_t middle = text.find(kSeparator);
    if (middle == std::string_view::npos) {
      return complain("expected \"node -- node\" after the tab");
    }
    if (profile_.graph.edges.size() == kMaxEdges) {
      return complain("more than {} edges", kMaxEdges);
    }
    std::array<std::uint32_t, 2> ends{};
    const std::array<std::string_view, 2> names = {text.substr(0, middle),
                                                   text.substr(middle + kSeparator.size())};
    for (std::size_t k = 0; k < 2; ++k) {
      const auto known = ids_.find(std::string(names[k]));
      if (known == ids_.end()) {
        return complain("edge to {}, which no line above describes", names[k]);
      }
      ends[k] = known->second;
    }
    profile_.graph.edges.push_back(
        {ends[0], ends[1], profile_.graph.nodes[ends[0]].out_bytes, "fp32"});
    return {};
  }

  Result<Profile> finish() {
    if (profile_.graph.nodes.empty()) {
      return fail(ErrorCode::kInvalid, "{}: describes no node", file_.name);
    }
    if (auto ok = arrange(profile_.graph); !ok) {
      return fail_in(file_.name, ok.error());
    }
    profile_.notes.push_back(
        "one microbatch is the minibatch that was profiled; sizes are those of fp32");
    return std::move(profile_);
  }

 public:
  void start(std::string name, std::uint32_t micro_batch_size) {
    profile_.graph.name = std::move(name);
    profile_.graph.micro_batch_size = micro_batch_size;
  }

 private:
  const File& file_;
  const Options& options_;
  Profile profile_;
  std::map<std::string, std::uint32_t> ids_;
  std::size_t line_ = 0;
};

}  // namespace

Result<Profile> read_pipedream(const std::vector<File>& files, const Options& options) {
  if (files.size() != 1) {
    return fail(ErrorCode::kInvalid, "layout pipedream takes one file, not {}", files.size());
  }
  if (options.device.empty()) {
    return fail(ErrorCode::kInvalid, "{}: the file does not say which device was profiled; name it",
                files[0].name);
  }
  Reader reader(files[0], options);
  std::string name = options.name;
  if (name.empty()) {
    name = base_name(files[0]);
    name = name.substr(0, name.find("_graph"));
  }
  reader.start(name.empty() ? "pipedream" : name,
               options.micro_batch_size > 0 ? options.micro_batch_size : 1);
  return reader.run();
}

}  // namespace tapas::solver::profile
