#pragma once

#include "daemon/core/core.h"
#include "daemon/recording/names.h"

/// What the store keeps of a job, and with that all a core begins with beside its jobs.
namespace tapas::daemon::recording {

template <typename V, Is<CoreConfig> T>
void fields(V& visit, T& of) {
  auto& [heartbeat_s, agent_lost_s, auto_replan, prepare_deadline_s, arm_deadline_s,
         transfer_deadline_s, commit_deadline_s, episode_prior_s, min_gain_ratio, dead_band_ratio,
         cooldown_s, flap_quarantine_s, replans_per_hour] = of;
  visit({"heartbeat_s", "agent_lost_s", "auto_replan", "prepare_deadline_s", "arm_deadline_s",
         "transfer_deadline_s", "commit_deadline_s", "episode_prior_s", "min_gain_ratio",
         "dead_band_ratio", "cooldown_s", "flap_quarantine_s", "replans_per_hour"},
        heartbeat_s, agent_lost_s, auto_replan, prepare_deadline_s, arm_deadline_s,
        transfer_deadline_s, commit_deadline_s, episode_prior_s, min_gain_ratio, dead_band_ratio,
        cooldown_s, flap_quarantine_s, replans_per_hour);
}

template <typename V, Is<SwitchRow> T>
void fields(V& visit, T& of) {
  auto& [job, from, to, state, reason, wall_ns] = of;
  visit({"job", "from", "to", "state", "reason", "wall_ns"}, job, from, to, state, reason, wall_ns);
}

template <typename V, Is<NodeStateRow> T>
void fields(V& visit, T& of) {
  auto& [node, drained, reason, wall_ns, pinned, pin_reason] = of;
  visit({"node", "drained", "reason", "wall_ns", "pinned", "pin_reason"}, node, drained, reason,
        wall_ns, pinned, pin_reason);
}

template <typename V, Is<DeviceRow> T>
void fields(V& visit, T& of) {
  auto& [job, device, node, index, slow, slowdown, since_s, until_s, episodes, slow_s, planned_at,
         wall_ns] = of;
  visit({"job", "device", "node", "index", "slow", "slowdown", "since_s", "until_s", "episodes",
         "slow_s", "planned_at", "wall_ns"},
        job, device, node, index, slow, slowdown, since_s, until_s, episodes, slow_s, planned_at,
        wall_ns);
}

template <typename V, Is<LearntRow> T>
void fields(V& visit, T& of) {
  auto& [job, healthy_step_s, healthy_epoch, calibration, wall_ns] = of;
  visit({"job", "healthy_step_s", "healthy_epoch", "calibration", "wall_ns"}, job, healthy_step_s,
        healthy_epoch, calibration, wall_ns);
}

template <typename V, Is<AutomaticSwitchRow> T>
void fields(V& visit, T& of) {
  auto& [job, epoch, time_s, nodes, rests_until_s, wall_ns] = of;
  visit({"job", "epoch", "time_s", "nodes", "rests_until_s", "wall_ns"}, job, epoch, time_s, nodes,
        rests_until_s, wall_ns);
}

template <typename V, Is<TrialRow> T>
void fields(V& visit, T& of) {
  auto& [job, epoch, decision, nodes, before_s, before_model_s, may_roll_back, open, wall_ns] = of;
  visit({"job", "epoch", "decision", "nodes", "before_s", "before_model_s", "may_roll_back", "open",
         "wall_ns"},
        job, epoch, decision, nodes, before_s, before_model_s, may_roll_back, open, wall_ns);
}

template <typename V, Is<LossRow> T>
void fields(V& visit, T& of) {
  auto& [job, lost_s, until_s, wall_ns] = of;
  visit({"job", "lost_s", "until_s", "wall_ns"}, job, lost_s, until_s, wall_ns);
}

template <typename V, Is<SlowLinkRow> T>
void fields(V& visit, T& of) {
  auto& [job, from, to, part, slowdown, before_s, since_s, planned, wall_ns] = of;
  visit({"job", "from", "to", "part", "slowdown", "before_s", "since_s", "planned", "wall_ns"}, job,
        from, to, part, slowdown, before_s, since_s, planned, wall_ns);
}

template <typename V, Is<LateLoaderRow> T>
void fields(V& visit, T& of) {
  auto& [job, node, index, session, before, slowdown, wall_ns] = of;
  visit({"job", "node", "index", "session", "before", "slowdown", "wall_ns"}, job, node, index,
        Hex{session}, before, slowdown, wall_ns);
}

template <typename V, Is<RestoredJob> T>
void fields(V& visit, T& of) {
  auto& [active, open_switches, pending, last_decision, highest_epoch, learnt, devices, switches,
         trial, before_trial, loss, slow_links, late_loaders] = of;
  visit({"active", "open_switches", "pending", "last_decision", "highest_epoch", "learnt",
         "devices", "switches", "trial", "before_trial", "loss", "slow_links", "late_loaders"},
        active, open_switches, pending, last_decision, highest_epoch, learnt, devices, switches,
        trial, before_trial, loss, slow_links, late_loaders);
}

template <typename V, Is<Restored> T>
void fields(V& visit, T& of) {
  auto& [term, jobs, nodes, paused] = of;
  visit({"term", "jobs", "nodes", "paused"}, term, jobs, nodes, paused);
}

}  // namespace tapas::daemon::recording
