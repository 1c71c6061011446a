#include "daemon/core/job_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

namespace tapas::daemon {
namespace {

// A loss that nothing was added to for so long is over.
constexpr double kForgetS = 3600.0;
// So much job time of it a restart of the daemon may forget.
constexpr double kRememberS = 10.0;
// What recovered is expected to stay well for so long.
constexpr double kHealthS = 3600.0;

}  // namespace

void JobLoop::count_loss(const JobStep& step) {
  if (slow_.empty() && recovered_nodes_.empty()) {
    return;
  }
  if (job_time_s_ - lost_until_s_ > kForgetS) {
    lost_s_ = 0;
  }
  lost_until_s_ = job_time_s_;
  if (healthy_step_s_ > 0) {
    lost_s_ = std::max(0.0, lost_s_ + step.wall_s - healthy_step_s_);
  }
}

void JobLoop::remember_loss(LoopContext& context) {
  const bool over = lost_s_ == 0;
  if (lost_s_ == written_loss_.lost_s ||
      (!over && lost_until_s_ - written_loss_.until_s < kRememberS)) {
    return;
  }
  written_loss_ = {job_->name, lost_s_, lost_until_s_, 0};
  context.out.journal(written_loss_);
}

JobLoop::Rest JobLoop::rest_of(const LoopContext& context, const std::string& node,
                               const Slow& slow) const {
  const double age_s = job_time_s_ - slow.since_s;
  const DeviceRow* record = worst_record(node);
  if (record != nullptr && record->episodes > 2) {
    return {std::max(age_s, record->slow_s / (record->episodes - 1)),
            fmt::format("as long as its last {} episodes in the mean", record->episodes - 1)};
  }
  const double prior_s = episode_prior_s(context.config, slow.cause, job_->cluster.device_count());
  if (age_s > prior_s) {
    return {expected_rest_s(prior_s, age_s), "as long again as it has lasted"};
  }
  return {prior_s, context.config.episode_prior_s > 0
                       ? fmt::format("episode_prior_s {}", context.config.episode_prior_s)
                       : fmt::format("as faults of a {} last in the mean", to_string(slow.cause))};
}

JobLoop::Rest JobLoop::expected_rest(const LoopContext& context) const {
  if (slow_.empty()) {
    std::uint32_t episodes = 1;
    for (const std::string& node : recovered_nodes_) {
      if (const DeviceRow* record = worst_record(node)) {
        episodes = std::max(episodes, record->episodes);
      }
    }
    return {kHealthS / episodes,
            episodes == 1 ? std::string("health is expected to last an hour")
                          : fmt::format("an hour over its {} episodes in a row", episodes)};
  }
  // What no plan was made for yet is what is asked about, else what moved since: it takes all
  // levels as they are, so it lasts no longer than the one that moved last.
  Rest longest;
  double youngest_s = std::numeric_limits<double>::infinity();
  const bool new_ones = std::any_of(slow_.begin(), slow_.end(),
                                    [](const auto& entry) { return entry.second.planned_at == 0; });
  for (const auto& [node, slow] : slow_) {
    if (new_ones && slow.planned_at > 0) {
      continue;
    }
    if (Rest rest = rest_of(context, node, slow); rest.seconds > longest.seconds) {
      longest = std::move(rest);
    }
    if (slow.planned_at > 0 && slow.moves > 0) {
      youngest_s = std::min(youngest_s, job_time_s_ - slow.level_since_s);
    }
  }
  if (youngest_s < longest.seconds) {
    return {youngest_s, "as long again as the level has held that moved last", true};
  }
  return longest;
}

Outlook JobLoop::outlook(const Ask& ask, const ReplanSolved& solved) const {
  Outlook out;
  out.rest_s = ask.rest.seconds;
  out.rest_basis = ask.rest.basis;
  out.wanders = ask.rest.wanders;
  out.lost_s = lost_s_;
  // The best pace known: a repaired plan may be faster than the one that health was learnt under.
  out.healthy_step_s = healthy_step_s_;
  const auto as_fast_as = [&](double step_s) {
    out.healthy_step_s = out.healthy_step_s > 0 ? std::min(out.healthy_step_s, step_s) : step_s;
  };
  if (solved.proposal) {
    as_fast_as(solved.proposal->step_before_s);
    as_fast_as(solved.proposal->step_after_s);
    for (const solver::Proposal& change : solved.lesser) {
      as_fast_as(change.step_after_s);
    }
  }
  return out;
}

std::vector<Evidence> JobLoop::no_culprit_evidence(const LoopContext& context,
                                                   const Verdict& verdict) const {
  std::vector<Evidence> evidence = verdict_evidence(verdict);
  const bool of_step = verdict.in_seconds && verdict.cause != Cause::kInput;
  const double before_s = of_step ? verdict.before : healthy_step_s_;
  const double after_s = of_step ? verdict.after : watch_.recent_step_s();
  AnswerPrice telling{"tell_operator", after_s, 0, 0, true, std::string(advice(verdict.cause))};
  if (before_s > 0 && after_s > before_s) {
    Outlook ahead;
    ahead.healthy_step_s = before_s;
    ahead.rest_s = episode_prior_s(context.config, verdict.cause, job_->cluster.device_count());
    telling.loss_s = loss_s(ahead, after_s, 0);
    put(evidence, "expected_episode_s", ahead.rest_s);
    put(evidence, "expected_loss_s", telling.loss_s);
  }
  put(evidence, "answers", std::vector<AnswerPrice>{std::move(telling)});
  put(evidence, "decided_by", "cause " + std::string(to_string(verdict.cause)));
  return evidence;
}

}  // namespace tapas::daemon
