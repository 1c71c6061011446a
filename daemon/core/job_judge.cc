#include "daemon/core/job_loop.h"
#include "solver/check/check_plan.h"
#include "solver/cost/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace tapas::daemon {
namespace {

/// The first of them, for people.
std::string some_ranks(const std::vector<RankId>& ranks) {
  constexpr std::size_t kMost = 16;
  const std::vector<RankId> some(
      ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, ranks.size())));
  return fmt::format("{}{}", fmt::join(some, ", "), ranks.size() > kMost ? ", ..." : "");
}

}  // namespace

void JobLoop::on_step(LoopContext& context, const JobStep& step) {
  job_time_s_ = step.end_s;
  ++steps_since_told_;
  learn_healthy(context);
  count_loss(step);
  remember_loss(context);
  if (trial_) {
    on_trial_step(context, step);
  }
  if (const auto back = watch_.take_recovered(); !back.empty()) {
    on_recovery(context, back);
  }
  for (const std::uint32_t stage : watch_.take_recovered_stages()) {
    accepted_step_s_ = 0;
    context.out.event(
        job_->name, "recovery", "", fmt::format("stage {} computes as it used to again", stage),
        {{"cause", std::string(to_string(Cause::kHeavyStage))}, {"stages", std::to_string(stage)}});
  }
  if (watch_.take_rotating_recovered()) {
    accepted_step_s_ = 0;
    context.out.event(job_->name, "recovery", "",
                      "no other rank is slow in each step any more: the work is even again",
                      {{"cause", std::string(to_string(Cause::kData))}});
  }
  if (const auto in_time = watch_.take_input_recovered(); !in_time.empty()) {
    on_input_recovery(context, in_time);
  }
  if (watch_.take_job_recovered()) {
    accepted_step_s_ = 0;
    verdict_ = "the step takes as long as it used to again";
    context.out.event(job_->name, "recovery", "", verdict_,
                      {{"cause", std::string(to_string(Cause::kJobWide))}});
  }
  if (const auto moved = watch_.take_moved(); !moved.empty()) {
    on_moved(context, moved);
  }
  on_link_recovery(context, links_.take_recovered());
  if (links_.verdict_due()) {
    on_link_faults(context, links_.take_faults());
  }
  if (watch_.verdict_due()) {
    on_verdict(context);
  }
  if (review_wanted_ || (review_at_s_ != 0 && job_time_s_ >= review_at_s_)) {
    review(context);
  }
}

void JobLoop::learn_healthy(LoopContext& context) {
  const bool known = healthy_epoch_ == active_->epoch && healthy_learnt_ == watch_.times_learnt();
  if (known || watch_.learnt_step_s() == 0 || watch_.any_blamed() || watch_.any_late() ||
      watch_.any_suspect() || links_.any_suspect() || !links_.faults().empty()) {
    return;
  }
  healthy_epoch_ = active_->epoch;
  healthy_learnt_ = watch_.times_learnt();
  healthy_step_s_ = watch_.learnt_step_s();
  const double predicted = solver::predict(*job_, *active_).step_time_s;
  calibration_ = predicted > 0 ? healthy_step_s_ / predicted : 1.0;
  context.out.journal(LearntRow{job_->name, healthy_step_s_, healthy_epoch_, calibration_, 0});
  refresh_prediction(context);
  verdict_ = "healthy: no rank deviates from its equals";
  context.out.event(
      job_->name, "healthy", "",
      fmt::format("healthy step time under plan {}: {:.3f} s, {:.2f} times the prediction",
                  active_->epoch, healthy_step_s_, calibration_),
      {{"healthy_step_s", healthy_step_s_}, {"calibration", calibration_}});
}

std::vector<Evidence> JobLoop::verdict_evidence(const Verdict& verdict) const {
  std::vector<Evidence> evidence;
  const std::vector<Culprit>& named =
      verdict.cause == Cause::kInput ? verdict.late : verdict.culprits;
  if (!named.empty()) {
    const Culprit& worst = named.front();
    std::vector<std::string> devices;
    for (const RankId rank : worst.ranks) {
      devices.push_back(memory_.device(rank));
    }
    put(evidence, "node", worst.node);
    put(evidence, "ranks", some_ranks(worst.ranks));
    put(evidence, "devices", fmt::format("{}", fmt::join(devices, ", ")));
    put(evidence, "ranks_compared", static_cast<std::int64_t>(verdict.equals.size()));
    put(evidence, "compared_with", some_ranks(verdict.equals));
  }
  put(evidence, "cause", std::string(to_string(verdict.cause)));
  if (!verdict.stages.empty()) {
    put(evidence, "stages", fmt::format("{}", fmt::join(verdict.stages, ", ")));
  }
  put(evidence, "slowdown", verdict.slowdown);
  put(evidence, verdict.in_seconds ? "level_before_s" : "level_before", verdict.before);
  put(evidence, verdict.in_seconds ? "level_after_s" : "level_after", verdict.after);
  put(evidence, "confidence_sigma", verdict.confidence);
  if (healthy_step_s_ > 0) {
    put(evidence, "healthy_step_s", healthy_step_s_);
  }
  put(evidence, "slow_step_s", watch_.recent_step_s());
  put(evidence, "since_step", static_cast<std::int64_t>(verdict.since.step));
  put(evidence, "detect_steps", static_cast<std::int64_t>(verdict.steps));
  put(evidence, "detect_s", job_time_s_ - verdict.since.begin_s);
  return evidence;
}

void JobLoop::on_verdict(LoopContext& context) {
  const Verdict verdict = attribute(watch_.findings(), roles_, job_->cluster);
  if (verdict.cause == Cause::kNothing) {
    return;
  }
  if (verdict.cause == Cause::kJobWide && (links_.any_suspect() || !links_.faults().empty())) {
    take_note(watch_, verdict);  // It is the links that make all steps longer.
    return;
  }
  const std::string node = !verdict.culprits.empty() ? verdict.culprits.front().node
                           : !verdict.late.empty()   ? verdict.late.front().node
                                                     : "";
  std::vector<Evidence> evidence = verdict_evidence(verdict);
  verdict_ = verdict.sentence;
  if (const std::string found = context.registry.findings_of(node); !found.empty()) {
    put(evidence, "node_finds", found);
    verdict_ += fmt::format("; {} itself finds: {}", node, found);
  }
  take_note(watch_, verdict);
  context.out.event(job_->name, "verdict", node, verdict_, evidence);
  if (verdict.culprits.empty()) {
    on_no_culprit(context, verdict);
    return;
  }
  verdict_evidence_ = evidence;
  on_culprits(context, verdict);
}

void JobLoop::begin_loss(double begin_s) {
  if (healthy_step_s_ > 0 && slow_.empty()) {
    const double slow_share = 1 - healthy_step_s_ / watch_.recent_step_s();
    lost_s_ += std::max(0.0, slow_share) * (job_time_s_ - begin_s);
    lost_until_s_ = job_time_s_;
  }
}

void JobLoop::on_culprits(LoopContext& context, const Verdict& verdict) {
  const double begin_s = verdict.since.begin_s;
  begin_loss(begin_s);
  for (const Culprit& culprit : verdict.culprits) {
    const Cause cause = culprit.host ? Cause::kHost : Cause::kDevice;
    slow_.try_emplace(culprit.node, Slow{cause, begin_s, begin_s, 0, 0, 0});
    recovered_nodes_.erase(culprit.node);
    for (const RankId rank : culprit.ranks) {
      if (watch_.slowdown(rank) > 1) {
        memory_.slow(context.config, rank, watch_.slowdown(rank), begin_s);
      }
    }
  }
  remember(context);
  refresh_prediction(context);
  want_review();
}

void JobLoop::on_moved(LoopContext& context, const std::vector<RankId>& ranks) {
  std::map<std::string, double> nodes;
  for (const RankId rank : ranks) {
    const std::string& node = job_->cluster.nodes[job_->cluster.node_of(rank).value()].name;
    nodes[node] = slowdown(node);
    memory_.slow(context.config, rank, watch_.slowdown(rank), job_time_s_);
  }
  remember(context);
  for (const auto& [node, now] : nodes) {
    Slow& slow = slow_[node];
    // Who wanders about must go farther to be followed.
    const double band = context.config.dead_band_ratio * (1 + slow.moves);
    const bool follow = slow.asked_at == 0 || std::abs(now / slow.asked_at - 1) >= band;
    ++slow.moves;
    slow.level_since_s = job_time_s_;
    std::string sentence =
        fmt::format("node {} now computes {:.2f} times as long as its equals", node, now);
    if (!follow) {
      sentence += fmt::format("; within {:.0f} % of the {:.2f} times that were planned with",
                              100 * band, slow.asked_at);
    }
    context.out.event(job_->name, "verdict", node, sentence,
                      {{"node", node}, {"slowdown", now}, {"dead_band_ratio", band}});
    put(verdict_evidence_, "slowdown", now);
    if (slow.planned_at > 0) {
      lost_s_ = 0;  // What another level lost says nothing about this one.
    }
    if (follow) {
      want_review();
    }
  }
  refresh_prediction(context);
}

void JobLoop::on_no_culprit(LoopContext& context, const Verdict& verdict) {
  remember_late(context);
  accepted_step_s_ = watch_.recent_step_s();
  if (trial_ && verdict.cause != Cause::kHeavyStage) {  // that one the plan has made itself
    trial_->disturbed = true;
  }
  DecisionRow row =
      new_decision(std::string(to_string(verdict.cause)), verdict.sentence + "; the plan stays",
                   no_culprit_evidence(context, verdict));
  record(context, row, false);
}

void JobLoop::on_input_recovery(LoopContext& context, const std::vector<RankId>& ranks) {
  accepted_step_s_ = 0;
  remember_late(context);
  std::set<std::string> nodes;
  for (const RankId rank : ranks) {
    nodes.insert(job_->cluster.nodes[job_->cluster.node_of(rank).value()].name);
  }
  for (const std::string& node : nodes) {
    verdict_ = fmt::format("node {} has its next batch in time again", node);
    context.out.event(job_->name, "recovery", node, verdict_,
                      {{"cause", std::string(to_string(Cause::kInput))}, {"node", node}});
  }
}

void JobLoop::end_compute_episode(LoopContext& context, const std::string& node,
                                  std::string_view why) {
  const bool links = is_slow(node);
  if (links) {
    slow_.at(node).cause = Cause::kLink;
  } else {
    slow_.erase(node);
    recovered_nodes_.insert(node);
  }
  verdict_ = fmt::format("node {} {}{}", node, why, links ? "; its links are still slow" : "");
  context.out.event(job_->name, "recovery", node, verdict_,
                    {{"cause", std::string(to_string(Cause::kDevice))}, {"node", node}});
}

void JobLoop::on_recovery(LoopContext& context, const std::vector<RankId>& ranks) {
  std::set<std::string> nodes;
  for (const RankId rank : ranks) {
    nodes.insert(job_->cluster.nodes[job_->cluster.node_of(rank).value()].name);
    memory_.well(rank, job_time_s_);
  }
  remember(context);
  for (const std::string& node : nodes) {
    if (slowdown(node) > 1.0) {
      continue;  // Others of its devices are still slow.
    }
    end_compute_episode(context, node, "computes as fast as its equals again");
  }
  verdict_evidence_.clear();
  put(verdict_evidence_, "node", *nodes.begin());
  put(verdict_evidence_, "slowdown", slowdown(*nodes.begin()));
  if (healthy_step_s_ > 0) {
    put(verdict_evidence_, "healthy_step_s", healthy_step_s_);
  }
  refresh_prediction(context);
  want_review();
}

}  // namespace tapas::daemon
