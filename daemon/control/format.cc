#include "daemon/control/format.h"

#include "base/wall_time.h"
#include "solver/model/io/proposal_json.h"

#include <fmt/format.h>

namespace tapas::daemon {
namespace {

json::Value parsed_object(const std::string& text) {
  auto value = json::parse(text);
  return value ? *std::move(value) : json::Value::object();
}

json::Value shape_json(const solver::Plan& plan) {
  const std::uint16_t tp = plan.tp_width.empty() ? std::uint16_t{0} : plan.tp_width.front();
  return {{"tp", tp}, {"pp", plan.stages()}, {"dp", plan.replicas()}};
}

json::Value job_json(const JobView& job) {
  json::Value out = {{"job", job.job},
                     {"session", fmt::format("{:016x}", job.session)},
                     {"epoch", job.plan ? job.plan->epoch.value() : 0},
                     {"phase", job.phase},
                     {"last_step", job.last_step},
                     {"observed_step_s", job.observed_step_s},
                     {"healthy_step_s", job.healthy_step_s},
                     {"predicted_step_s", job.predicted_step_s},
                     {"bound_step_s", job.bound_step_s},
                     {"verdict", job.verdict},
                     {"slow_links", job.slow_links},
                     {"ranks_reporting", job.ranks_reporting},
                     {"ranks_expected", job.ranks_expected}};
  out["shape"] = job.plan ? shape_json(*job.plan) : json::Value::object();
  return out;
}

json::Value agent_json(const AgentView& agent) {
  json::Value findings = json::Value::array();
  for (const NodeFinding& finding : agent.findings) {
    findings.push_back(
        {{"device", finding.device}, {"kind", finding.kind}, {"text", finding.text}});
  }
  return {{"node", agent.node},
          {"connected", agent.connected},
          {"drained", agent.drained},
          {"drain_reason", agent.drain_reason},
          {"pinned", agent.pinned},
          {"pin_reason", agent.pin_reason},
          {"quarantine_s", agent.quarantine_s},
          {"clock_off_s", agent.clock_off_s},
          {"silent_s", agent.silent_s},
          {"records", agent.records},
          {"records_dropped", agent.records_dropped},
          {"slowdown", agent.slowdown},
          {"findings", std::move(findings)}};
}

}  // namespace

json::Value status_json(const StatusView& status, const WireView& wire,
                        const std::map<std::string, std::uint64_t>& rejected) {
  json::Value out = {{"schema", "tapas.status/1"},        {"version", TAPAS_VERSION},
                     {"term", status.term.value()},       {"auto_replan", status.auto_replan},
                     {"auto_reason", status.auto_reason}, {"agents", json::Value::array()},
                     {"jobs", json::Value::array()},      {"received", json::Value(wire.received)},
                     {"rejected", json::Value(rejected)}};
  out["answers"] = {{"count", wire.answers},
                    {"median_s", wire.answer_median_s},
                    {"p99_s", wire.answer_p99_s},
                    {"max_s", wire.answer_max_s}};
  for (const AgentView& agent : status.agents) {
    const auto over = wire.over_limit.find(agent.node);
    json::Value& item = out["agents"].emplace_back(agent_json(agent));
    item["over_limit"] = over == wire.over_limit.end() ? 0 : over->second;
  }
  for (const JobView& job : status.jobs) {
    out["jobs"].push_back(job_json(job));
  }
  return out;
}

json::Value plans_json(const std::vector<StoredPlan>& plans) {
  json::Value out = {{"schema", "tapas.plans/1"}, {"plans", json::Value::array()}};
  for (const StoredPlan& plan : plans) {
    out["plans"].push_back({{"epoch", plan.epoch.value()},
                            {"parent", plan.parent.value()},
                            {"status", plan.status},
                            {"trigger", plan.trigger},
                            {"time", format_wall_time(plan.wall_ns)},
                            {"predicted_step_s", plan.predicted_step_s}});
  }
  return out;
}

json::Value decisions_json(const std::vector<StoredDecision>& decisions) {
  json::Value out = {{"schema", "tapas.decisions/1"}, {"decisions", json::Value::array()}};
  for (const StoredDecision& decision : decisions) {
    out["decisions"].push_back({{"decision", decision.decision},
                                {"epoch", decision.epoch.value()},
                                {"reason_code", decision.reason_code},
                                {"sentence", decision.sentence},
                                {"time", format_wall_time(decision.wall_ns)},
                                {"evidence", parsed_object(decision.evidence)}});
  }
  return out;
}

json::Value events_json(const std::vector<StoredEvent>& events, std::int64_t after) {
  json::Value out = {{"schema", "tapas.events/1"},
                     {"events", json::Value::array()},
                     {"last", events.empty() ? after : events.back().id}};
  for (const StoredEvent& event : events) {
    out["events"].push_back({{"id", event.id},
                             {"time", format_wall_time(event.wall_ns)},
                             {"job", event.job},
                             {"kind", event.kind},
                             {"node", event.node},
                             {"sentence", event.sentence},
                             {"evidence", parsed_object(event.evidence)}});
  }
  return out;
}

json::Value proposal_json(const solver::Proposal& proposal, const solver::Job& job,
                          const std::string& message) {
  json::Value out = solver::proposal_to_json(proposal, job);
  out["message"] = message;
  return out;
}

json::Value error_json(ErrorCode code, const std::string& message) {
  return {{"schema", "tapas.error/1"},
          {"error", {{"code", to_string(code)}, {"message", message}}}};
}

}  // namespace tapas::daemon
