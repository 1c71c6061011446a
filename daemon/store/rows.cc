#include "daemon/store/rows.h"

#include "base/json/json.h"
#include "solver/model/io/load.h"

#include <fmt/format.h>

#include <sstream>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tapas::daemon {
namespace {

std::string_view word(PlanStatus status) {
  switch (status) {
    case PlanStatus::kProposed:
      return "proposed";
    case PlanStatus::kActive:
      return "active";
    case PlanStatus::kSuperseded:
      return "superseded";
    case PlanStatus::kAborted:
      return "aborted";
  }
  return "proposed";
}

std::string_view word(SwitchState state) {
  switch (state) {
    case SwitchState::kRunning:
      return "running";
    case SwitchState::kCommitDecided:
      return "commit_decided";
    case SwitchState::kDone:
      return "done";
    case SwitchState::kAborted:
      return "aborted";
  }
  return "running";
}

SwitchState switch_state(std::string_view text) {
  for (const SwitchState state :
       {SwitchState::kCommitDecided, SwitchState::kDone, SwitchState::kAborted}) {
    if (word(state) == text) {
      return state;
    }
  }
  return SwitchState::kRunning;
}

template <typename T>
json::Value as_json(const T& value) {
  return value;
}
json::Value as_json(const std::vector<AnswerPrice>& answers) {
  json::Value out = json::Value::array();
  for (const AnswerPrice& answer : answers) {
    json::Value& entry = out.emplace_back(json::Value{{"answer", answer.answer},
                                                      {"step_s", answer.step_s},
                                                      {"cost_s", answer.cost_s},
                                                      {"loss_s", answer.loss_s},
                                                      {"chosen", answer.chosen}});
    if (!answer.note.empty()) {
      entry["note"] = answer.note;
    }
  }
  return out;
}

class Writer {
 public:
  Writer(Database& database, const JobMap& jobs) : database_(database), jobs_(jobs) {}

  // A plan's content belongs to its epoch for ever: only its status may change later.
  Result<void> operator()(const PlanRow& row) {
    const auto job = jobs_.find(row.job);
    if (job == jobs_.end() || row.plan == nullptr) {
      return fail(ErrorCode::kInvalid, "plan row of job \"{}\" has no {}", row.job,
                  row.plan == nullptr ? "plan" : "known job");
    }
    const std::string body = json::dump(solver::plan_to_json(*row.plan, *job->second));
    return database_.run(
        "INSERT INTO plan (job, epoch, parent, status, trigger, created_ns, predicted_step_s, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (job, epoch) DO UPDATE SET status = excluded.status",
        row.job, row.plan->epoch.value(), row.plan->parent.value(), word(row.status), row.trigger,
        row.wall_ns, row.plan->predicted.step_time_s, body);
  }
  Result<void> operator()(const DecisionRow& row) {
    return database_.run(
        "INSERT INTO decision (job, decision, epoch, reason_code, sentence, evidence, wall_ns)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (job, decision) DO UPDATE SET epoch = excluded.epoch,"
        " reason_code = excluded.reason_code, sentence = excluded.sentence,"
        " evidence = excluded.evidence",
        row.job, row.decision, row.epoch.value(), row.reason_code, row.sentence,
        evidence_text(row.evidence), row.wall_ns);
  }
  Result<void> operator()(const SwitchRow& row) {
    return database_.run(
        "INSERT INTO switch (job, to_epoch, from_epoch, state, reason, wall_ns)"
        " VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (job, to_epoch) DO UPDATE SET state = excluded.state,"
        " reason = excluded.reason, wall_ns = excluded.wall_ns",
        row.job, row.to.value(), row.from.value(), word(row.state), row.reason, row.wall_ns);
  }
  Result<void> operator()(const EventRow& row) {
    return database_.run(
        "INSERT INTO event (job, kind, node, sentence, evidence, wall_ns) VALUES (?, ?, ?, ?, ?, "
        "?)",
        row.job, row.kind, row.node, row.sentence, evidence_text(row.evidence), row.wall_ns);
  }
  Result<void> operator()(const OperatorRow& row) {
    return database_.run(
        "INSERT INTO operator_action (who, action, reason, outcome, wall_ns) VALUES (?, ?, ?, ?, "
        "?)",
        row.who, row.action, row.reason, row.outcome, row.wall_ns);
  }
  Result<void> operator()(const NodeStateRow& row) {
    return database_.run(
        "INSERT OR REPLACE INTO node_state (node, drained, reason, pinned, pin_reason, wall_ns)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        row.node, std::int64_t{row.drained}, row.reason, std::int64_t{row.pinned}, row.pin_reason,
        row.wall_ns);
  }
  Result<void> operator()(const DeviceRow& row) {
    return database_.run(
        "INSERT OR REPLACE INTO device (job, device, node, slot, slow, slowdown, since_s, until_s,"
        " episodes, slow_s, planned_at, wall_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        row.job, row.device, row.node, std::int64_t{row.index}, std::int64_t{row.slow},
        row.slowdown, row.since_s, row.until_s, std::int64_t{row.episodes}, row.slow_s,
        row.planned_at, row.wall_ns);
  }
  Result<void> operator()(const LearntRow& row) {
    return database_.run(
        "INSERT OR REPLACE INTO learnt (job, healthy_step_s, healthy_epoch, calibration, wall_ns)"
        " VALUES (?, ?, ?, ?, ?)",
        row.job, row.healthy_step_s, row.healthy_epoch.value(), row.calibration, row.wall_ns);
  }
  Result<void> operator()(const AutomaticSwitchRow& row) {
    return database_.run(
        "INSERT OR REPLACE INTO automatic_switch (job, epoch, time_s, nodes, rests_until_s,"
        " wall_ns) VALUES (?, ?, ?, ?, ?, ?)",
        row.job, row.epoch.value(), row.time_s, fmt::format("{}", fmt::join(row.nodes, ",")),
        row.rests_until_s, row.wall_ns);
  }
  Result<void> operator()(const DecisionAmendment& row) {
    return database_.run(
        "UPDATE decision SET evidence = json_patch(evidence, ?) WHERE job = ? AND decision = ?",
        evidence_text(row.evidence), row.job, row.decision);
  }
  Result<void> operator()(const TrialRow& row) {
    return database_.run(
        "INSERT OR REPLACE INTO trial (job, epoch, decision, nodes, before_s, before_model_s,"
        " may_roll_back, open, wall_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        row.job, row.epoch.value(), row.decision, fmt::format("{}", fmt::join(row.nodes, ",")),
        row.before_s, row.before_model_s, std::int64_t{row.may_roll_back}, std::int64_t{row.open},
        row.wall_ns);
  }
  Result<void> operator()(const LossRow& row) {
    return database_.run(
        "INSERT OR REPLACE INTO loss (job, lost_s, until_s, wall_ns) VALUES (?, ?, ?, ?)", row.job,
        row.lost_s, row.until_s, row.wall_ns);
  }
  Result<void> operator()(const SlowLinkRow& row) {
    return database_.run(
        "INSERT OR REPLACE INTO slow_link (job, source, destination, part, slowdown, before_s,"
        " since_s, planned, wall_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        row.job, row.from, row.to, row.part, row.slowdown, row.before_s, row.since_s,
        std::int64_t{row.planned}, row.wall_ns);
  }

  Result<void> operator()(const LateLoaderRow& row) {
    return database_.run(
        "INSERT OR REPLACE INTO late_loader (job, node, slot, session, before, slowdown, wall_ns)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        row.job, row.node, std::int64_t{row.index}, row.session, row.before, row.slowdown,
        row.wall_ns);
  }

 private:
  Database& database_;
  const JobMap& jobs_;
};

Result<std::shared_ptr<const solver::Plan>> parsed_plan(const std::string& body,
                                                        const solver::Job& job, Epoch epoch) {
  const auto value = json::parse(body);
  auto plan = value ? solver::plan_from_json(*value, job)
                    : Result<solver::Plan>(tl::unexpected(value.error()));
  if (!plan) {
    return fail(
        ErrorCode::kInvalid,
        "the stored plan {} of job \"{}\" does not fit the job's file any more: {}; put the "
        "old job file back, or give the changed job another name",
        epoch, job.name, plan.error().message);
  }
  return std::make_shared<const solver::Plan>(std::move(*plan));
}

Result<std::shared_ptr<const solver::Plan>> read_plan(Database& database, const solver::Job& job,
                                                      Epoch epoch) {
  std::string body;
  if (auto ok = database.each(
          "SELECT body FROM plan WHERE job = ? AND epoch = ?",
          [&](const Row& row) { body = row.text(0); }, job.name, epoch.value());
      !ok) {
    return tl::unexpected(ok.error());
  }
  return parsed_plan(body, job, epoch);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    out.push_back(word);
  }
  return out;
}

/// What the core remembers of a job beside its plans.
Result<void> restore_memory(Database& database, const std::string& job, RestoredJob& out) {
  Result<void> ok = database.each(
      "SELECT device, node, slot, slow, slowdown, since_s, until_s, episodes, slow_s, planned_at,"
      " wall_ns FROM device WHERE job = ? ORDER BY device",
      [&](const Row& row) {
        out.devices.push_back({job, row.text(0), row.text(1),
                               static_cast<std::uint32_t>(row.integer(2)), row.integer(3) != 0,
                               row.number(4), row.number(5), row.number(6),
                               static_cast<std::uint32_t>(row.integer(7)), row.number(8),
                               row.number(9), row.integer(10)});
      },
      job);
  if (ok) {
    ok = database.each(
        "SELECT healthy_step_s, healthy_epoch, calibration, wall_ns FROM learnt WHERE job = ?",
        [&](const Row& row) {
          out.learnt = {job, row.number(0), Epoch(row.counter(1)), row.number(2), row.integer(3)};
        },
        job);
  }
  if (ok) {
    // As many as the core ever looks back over; newest first from the table, oldest first out.
    ok = database.each(
        "SELECT epoch, time_s, nodes, rests_until_s, wall_ns FROM (SELECT * FROM automatic_switch"
        " WHERE job = ? ORDER BY epoch DESC LIMIT 1000) ORDER BY epoch",
        [&](const Row& row) {
          out.switches.push_back({job, Epoch(row.counter(0)), row.number(1), split(row.text(2)),
                                  row.number(3), row.integer(4)});
        },
        job);
  }
  if (ok) {
    ok = database.each(
        "SELECT epoch, decision, nodes, before_s, before_model_s, may_roll_back, open, wall_ns"
        " FROM trial WHERE job = ?",
        [&](const Row& row) {
          out.trial = {
              job,           Epoch(row.counter(0)), row.counter(1),      split(row.text(2)),
              row.number(3), row.number(4),         row.integer(5) != 0, row.integer(6) != 0,
              row.integer(7)};
        },
        job);
  }
  if (ok) {
    ok = database.each(
        "SELECT lost_s, until_s, wall_ns FROM loss WHERE job = ?",
        [&](const Row& row) {
          out.loss = {job, row.number(0), row.number(1), row.integer(2)};
        },
        job);
  }
  if (ok) {
    ok = database.each(
        "SELECT source, destination, part, slowdown, before_s, since_s, planned, wall_ns"
        " FROM slow_link WHERE job = ? ORDER BY source, destination",
        [&](const Row& row) {
          out.slow_links.push_back({job, row.text(0), row.text(1), row.text(2), row.number(3),
                                    row.number(4), row.number(5), row.integer(6) != 0,
                                    row.integer(7)});
        },
        job);
  }
  if (ok) {
    ok = database.each(
        "SELECT node, slot, session, before, slowdown, wall_ns FROM late_loader WHERE job = ?"
        " ORDER BY node, slot",
        [&](const Row& row) {
          out.late_loaders.push_back({job, row.text(0), static_cast<std::uint32_t>(row.integer(1)),
                                      row.counter(2), row.number(3), row.number(4),
                                      row.integer(5)});
        },
        job);
  }
  return ok;
}

Result<RestoredJob> restore_job(Database& database, const solver::Job& job) {
  RestoredJob out;
  Epoch active;
  Result<void> ok = database.each(
      "SELECT max(epoch), coalesce(max(epoch) FILTER (WHERE status = 'active'), 0)"
      " FROM plan WHERE job = ?",
      [&](const Row& row) {
        out.highest_epoch = Epoch(row.counter(0));
        active = Epoch(row.counter(1));
      },
      job.name);
  if (ok) {
    ok = database.each(
        "SELECT from_epoch, to_epoch, state, reason, wall_ns FROM switch"
        " WHERE job = ? AND state IN ('running', 'commit_decided') ORDER BY to_epoch",
        [&](const Row& row) {
          out.open_switches.push_back({job.name, Epoch(row.counter(0)), Epoch(row.counter(1)),
                                       switch_state(row.text(2)), row.text(3), row.integer(4)});
        },
        job.name);
  }
  if (ok) {
    ok = database.each(
        "SELECT coalesce(max(decision), 0) FROM decision WHERE job = ?",
        [&](const Row& row) { out.last_decision = row.counter(0); }, job.name);
  }
  if (ok) {
    ok = restore_memory(database, job.name, out);
  }
  if (!ok) {
    return tl::unexpected(ok.error());
  }
  if (active != Epoch()) {
    auto plan = read_plan(database, job, active);
    if (!plan) {
      return tl::unexpected(plan.error());
    }
    out.active = *plan;
  }
  if (!out.open_switches.empty()) {
    auto plan = read_plan(database, job, out.open_switches.back().to);
    if (!plan) {
      return tl::unexpected(plan.error());
    }
    out.pending = *plan;
  }
  for (const auto& plan : {out.active, out.pending}) {
    if (plan && out.trial.open && out.trial.epoch == plan->epoch) {
      auto before = read_plan(database, job, plan->parent);
      if (!before) {
        return tl::unexpected(before.error());
      }
      out.before_trial = *before;
    }
  }
  return out;
}

}  // namespace

StoredEvent stored_event(const Row& row) {
  return {row.integer(0), row.text(1), row.text(2),   row.text(3),
          row.text(4),    row.text(5), row.integer(6)};
}

std::string evidence_text(const std::vector<Evidence>& evidence) {
  json::Value object = json::Value::object();
  for (const Evidence& item : evidence) {
    std::visit([&](const auto& value) { object[item.key] = as_json(value); }, item.value);
  }
  return json::dump(object);
}

Result<void> write_row(Database& database, const JobMap& jobs, const StoreRow& row) {
  return std::visit(Writer(database, jobs), row);
}

Result<void> trim_history(Database& database) {
  return database.script(
      "DELETE FROM plan WHERE status IN ('superseded', 'aborted')"
      " AND epoch <= (SELECT max(epoch) FROM plan AS all_plans WHERE job = plan.job) - 500"
      " AND NOT EXISTS (SELECT 1 FROM plan AS child WHERE child.job = plan.job"
      "   AND child.parent = plan.epoch AND child.status IN ('active', 'proposed'));"
      "DELETE FROM switch WHERE state IN ('done', 'aborted') AND to_epoch <="
      " (SELECT max(to_epoch) FROM switch AS all_switches WHERE job = switch.job) - 500;"
      "DELETE FROM decision WHERE decision <="
      " (SELECT max(decision) FROM decision AS all_decisions WHERE job = decision.job) - 10000;"
      "DELETE FROM operator_action WHERE id <= (SELECT max(id) FROM operator_action) - 10000"
      " AND id <> (SELECT coalesce(max(id), 0) FROM operator_action"
      "   WHERE action IN ('auto on', 'auto off'));"
      "DELETE FROM automatic_switch WHERE epoch <="
      " (SELECT max(epoch) FROM automatic_switch AS all_of_them"
      "   WHERE job = automatic_switch.job) - 10000;"
      "DELETE FROM slow_link WHERE slowdown = 1 AND planned = 0;"
      "DELETE FROM late_loader WHERE slowdown = 1;");
}

Result<Restored> restore(Database& database, const JobMap& jobs) {
  Restored out;
  for (const auto& [name, job] : jobs) {
    auto restored = restore_job(database, *job);
    if (!restored) {
      return tl::unexpected(restored.error());
    }
    out.jobs.emplace(name, std::move(*restored));
  }
  Result<void> ok = database.each(
      "SELECT node, drained, reason, wall_ns, pinned, pin_reason FROM node_state ORDER BY node",
      [&](const Row& row) {
        out.nodes.push_back({row.text(0), row.integer(1) != 0, row.text(2), row.integer(3),
                             row.integer(4) != 0, row.text(5)});
      });
  if (ok) {
    ok = database.each(
        "SELECT who, action, reason FROM operator_action WHERE action IN ('auto on', 'auto off')"
        " ORDER BY id DESC LIMIT 1",
        [&](const Row& row) {
          if (row.text(1) == "auto off") {
            out.paused = auto_reason(false, row.text(0), row.text(2));
          }
        });
  }
  if (!ok) {
    return tl::unexpected(ok.error());
  }
  return out;
}

}  // namespace tapas::daemon
