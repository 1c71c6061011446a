#include "daemon/recording/format.h"

#include "base/ids.h"
#include "daemon/recording/action_fields.h"
#include "daemon/recording/event_fields.h"
#include "daemon/recording/job_fields.h"
#include "daemon/recording/reader.h"
#include "daemon/recording/restored_fields.h"
#include "daemon/recording/writer.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

namespace tapas::daemon::recording {
namespace {

constexpr std::string_view kFormat = "tapas.recording/";
constexpr std::string_view kSchema = "tapas.recording/1";
/// Of a node, as in job files: there is memory for each.
constexpr std::uint32_t kMaxDevices = 1024;

bool is_ack(const Action& action) {
  const auto* send = std::get_if<SendToAgent>(&action);
  return send != nullptr && std::holds_alternative<HeartbeatAckMessage>(send->message);
}

Result<void> check_jobs(const std::vector<std::shared_ptr<const solver::Job>>& jobs, JobMap& out) {
  for (const auto& job : jobs) {
    if (job == nullptr) {
      return fail(ErrorCode::kInvalid, "jobs: null is no job");
    }
    if (const auto valid = solver::validate(*job); !valid) {
      return fail(ErrorCode::kInvalid, "jobs: {}", valid.error().message);
    }
    for (const solver::NodeType& type : job->cluster.node_types) {
      if (type.devices > kMaxDevices) {
        return fail(ErrorCode::kInvalid, "jobs: node type \"{}\" has {} devices, at most {} can be",
                    type.name, type.devices, kMaxDevices);
      }
    }
    if (!out.emplace(job->name, job).second) {
      return fail(ErrorCode::kInvalid, "jobs: \"{}\" is there twice", job->name);
    }
  }
  return {};
}

}  // namespace

bool is_recording(std::string_view head) {
  return head.starts_with('{') && head.substr(0, 64).find(kFormat) != std::string_view::npos;
}

void append_beginning(const Beginning& beginning, std::string& out) {
  std::vector<std::shared_ptr<const solver::Job>> jobs;
  for (const auto& [name, job] : beginning.jobs) {
    jobs.push_back(job);
  }
  Writer write(beginning.jobs, out);
  write({"schema", "version", "config", "jobs", "restored"}, kSchema, beginning.version,
        beginning.config, jobs, beginning.restored);
}

void append_step(const JobMap& jobs, const Event& event, const Now& now,
                 const std::vector<Action>& actions, std::string& out) {
  Writer write(jobs, out);
  out += "{\"at\":";
  write.row(now.steady.count(), now.wall_ns);
  out += ",\"event\":";
  write.put(event);
  std::string_view before = ",\"did\":[";
  for (const Action& action : actions) {
    if (!is_ack(action)) {
      out += std::exchange(before, ",");
      write.put(action);
    }
  }
  out += before == "," ? "]}" : "}";
}

void append_end(std::string_view why, std::string& out) {
  const JobMap none;
  Writer(none, out)({"end"}, why);
}

std::vector<json::Value> told(const JobMap& jobs, const std::vector<Action>& actions) {
  std::vector<json::Value> out;
  for (const Action& action : actions) {
    if (!is_ack(action)) {
      std::string text;
      Writer(jobs, text).put(action);
      out.push_back(*json::parse(text));
    }
  }
  return out;
}

Result<Beginning> read_beginning(std::string_view line) {
  const auto value = json::parse(line);
  if (!value) {
    return tl::unexpected(value.error());
  }
  json::ObjectReader in(*value, "recording");
  in.require_schema(kSchema);
  Beginning beginning;
  beginning.version = in.string("version");
  const json::Value& config = in.object("config");
  const json::Value& jobs = in.array("jobs", 64);
  const json::Value& restored = in.object("restored");
  if (auto ok = in.finish(); !ok) {
    return tl::unexpected(ok.error());
  }
  Reader reader(beginning.jobs);
  std::vector<std::shared_ptr<const solver::Job>> list;
  Result<void> ok = reader.read("config", config, beginning.config);
  if (ok) {
    ok = reader.read("jobs", jobs, list);
  }
  if (ok) {
    ok = check_jobs(list, beginning.jobs);
  }
  if (ok) {
    ok = reader.read("restored", restored, beginning.restored);
  }
  if (!ok) {
    return tl::unexpected(ok.error());
  }
  return beginning;
}

Result<std::variant<Step, End>> read_line(std::string_view line, const JobMap& jobs) {
  auto value = json::parse(line);
  if (!value) {
    return tl::unexpected(value.error());
  }
  json::ObjectReader in(*value, "line");
  if (in.has("end")) {
    End end{in.string("end")};
    if (auto ok = in.finish(); !ok) {
      return tl::unexpected(ok.error());
    }
    return end;
  }
  Step step;
  const json::Value& at = in.array("at", 2);
  const json::Value& event = in.object("event");
  if (in.has("did")) {
    for (const json::Value& action : in.array("did", 1U << 20U)) {
      step.did.push_back(action);
    }
  }
  if (auto ok = in.finish(); !ok) {
    return tl::unexpected(ok.error());
  }
  Reader reader(jobs);
  std::array<std::int64_t, 2> clocks{};
  Result<void> ok = at.size() == 2 ? reader.read("at[0]", at[0], clocks[0])
                                   : fail(ErrorCode::kInvalid, "at must be two clocks");
  if (ok) {
    ok = reader.read("at[1]", at[1], clocks[1]);
  }
  if (ok) {
    ok = reader.read("event", event, step.event);
  }
  if (!ok) {
    return tl::unexpected(ok.error());
  }
  step.now = {std::chrono::nanoseconds(clocks[0]), clocks[1]};
  return step;
}

}  // namespace tapas::daemon::recording
