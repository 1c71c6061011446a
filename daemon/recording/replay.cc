#include "daemon/recording/replay.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

namespace tapas::daemon::recording {
namespace {

constexpr std::size_t kMaxLine = json::ParseLimits{}.max_bytes;

/// One line after the other; a line over kMaxLine is cut there, and the parser refuses it.
class Lines {
 public:
  explicit Lines(std::istream& in) : in_(*in.rdbuf()) {}

  bool next() {
    using Traits = std::istream::traits_type;
    line_.clear();
    ended_ = false;
    for (auto c = in_.sbumpc(); c != Traits::eof(); c = in_.sbumpc()) {
      if (c == '\n') {
        ended_ = true;
        break;
      }
      line_ += Traits::to_char_type(c);
      if (line_.size() > kMaxLine) {
        break;
      }
    }
    const bool any = ended_ || !line_.empty();
    number_ += any ? 1 : 0;
    return any;
  }
  [[nodiscard]] const std::string& line() const { return line_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  /// The file stops within the line.
  [[nodiscard]] bool cut() const { return !ended_ && line_.size() <= kMaxLine; }
  [[nodiscard]] tl::unexpected<Error> error(const Error& error) const {
    return fail(error.code, "line {}: {}", number_, error.message);
  }

 private:
  std::streambuf& in_;
  std::string line_;
  std::uint64_t number_ = 0;
  bool ended_ = false;
};

/// The first actions that differ.
std::optional<Difference> difference(const std::vector<json::Value>& did,
                                     const std::vector<json::Value>& does) {
  for (std::size_t i = 0; i < std::max(did.size(), does.size()); ++i) {
    json::Value expected = i < did.size() ? did[i] : json::Value();
    json::Value seen = i < does.size() ? does[i] : json::Value();
    if (expected != seen) {
      return Difference{0, 0, std::move(expected), std::move(seen)};
    }
  }
  return std::nullopt;
}

}  // namespace

Result<Replayed> replay(std::istream& in, const OnStep& on_step) {
  Lines lines(in);
  if (!lines.next()) {
    return fail(ErrorCode::kInvalid, "the file is empty");
  }
  auto beginning = read_beginning(lines.line());
  if (!beginning) {
    return lines.error(beginning.error());
  }
  std::vector<std::shared_ptr<const solver::Job>> jobs;
  for (const auto& [name, job] : beginning->jobs) {
    jobs.push_back(job);
  }
  Core core(beginning->config, jobs, std::move(beginning->restored));
  Replayed out;
  out.version = beginning->version;
  while (lines.next()) {
    if (out.end) {
      return lines.error({ErrorCode::kInvalid, "something follows the line that ends it"});
    }
    auto line = read_line(lines.line(), beginning->jobs);
    if (!line && lines.cut()) {
      out.cut = true;
      break;
    }
    if (!line) {
      return lines.error(line.error());
    }
    if (auto* end = std::get_if<End>(&*line)) {
      out.end = std::move(end->why);
      continue;
    }
    const Step& step = std::get<Step>(*line);
    const std::vector<Action> actions = core.apply(step.event, step.now);
    auto differs = difference(step.did, told(beginning->jobs, actions));
    out.first_ns = out.events == 0 ? step.now.wall_ns : out.first_ns;
    out.last_ns = step.now.wall_ns;
    ++out.events;
    on_step(step, actions, !differs);
    if (differs) {
      ++out.differing;
      if (!out.first) {
        differs->line = lines.number();
        differs->wall_ns = step.now.wall_ns;
        out.first = std::move(differs);
      }
    }
  }
  return out;
}

}  // namespace tapas::daemon::recording
