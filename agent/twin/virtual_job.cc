#include "agent/twin/virtual_job.h"

#include "agent/twin/noise.h"
#include "base/check.h"
#include "base/json/json.h"
#include "solver/model/io/load.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace tapas::twin {

namespace {

using agent::RankOrder;

constexpr std::uint64_t kWarmUpSteps = 2;
// The first step after a start compiles and allocates; after a switch only caches are cold.
constexpr double kStartOverhead = 1.35;
constexpr double kSwitchOverhead = 1.06;

// A launcher notices a death, and starts processes, in seconds; no need to wait as long here.
constexpr double kStopS = 0.5;
constexpr double kStartS = 1.0;

constexpr double kNever = std::numeric_limits<double>::infinity();

void leave_switch(auto& rank) {
  rank.pending_epoch = 0;
  rank.armed_for.reset();
  rank.transfer_end_s.reset();
}

template <typename Visit>
void for_each_position(const solver::Plan& plan, const Visit& visit) {
  for (const auto& stages : plan.placement) {
    for (const solver::Position& position : stages) {
      visit(position);
    }
  }
}

}  // namespace

VirtualJob::VirtualJob(const solver::Job& job, Options options)
    : job_(job),
      options_(options),
      truth_(job, options.seed),
      faults_(job.cluster),
      ranks_(job.cluster.device_count()) {}

// ---- plans and orders

Result<Layout> VirtualJob::read_plan(std::uint64_t epoch, std::string_view text) const {
  const auto value = json::parse(text);
  if (!value) {
    return tl::unexpected<Error>(value.error());
  }
  const auto plan = solver::plan_from_json(*value, job_);
  if (!plan) {
    return tl::unexpected<Error>(plan.error());
  }
  if (plan->epoch.value() != epoch) {
    return fail(ErrorCode::kInvalid, "the plan says epoch {}", plan->epoch);
  }
  return truth_.lay_out(*plan);
}

Result<void> VirtualJob::store_plan(std::uint64_t epoch, std::string_view text) {
  const auto found = plans_.find(epoch);
  if (found == plans_.end()) {
    const auto where = fmt::format("plan of epoch {}", epoch);
    auto layout = read_plan(epoch, text);
    if (!layout) {
      layout = fail_in(where, layout.error());
    }
    const auto [at, added] = plans_.emplace(epoch, StoredPlan{std::string(text), layout});
    return at->second.layout.map([](const Layout&) {});
  }
  if (found->second.text != text) {
    const auto conflict =
        fail(ErrorCode::kConflict, "epoch {} came with two different plans", epoch);
    if (epoch != epoch_) {
      found->second.layout = conflict;
    }
    return conflict;
  }
  return found->second.layout.map([](const Layout&) {});
}

std::string VirtualJob::plan_objection(std::uint64_t epoch) const {
  const auto plan = plans_.find(epoch);
  if (plan == plans_.end()) {
    return fmt::format("the plan of epoch {} did not arrive", epoch);
  }
  return plan->second.layout ? std::string{} : plan->second.layout.error().message;
}

std::string VirtualJob::carry_out(Rank& rank, const agent::RankCommand& command) {
  if (command.term < rank.term) {
    return fmt::format("an order of term {}, term {} leads", command.term, rank.term);
  }
  rank.term = command.term;
  const bool pending = rank.pending_epoch == command.epoch;
  const auto out_of_order = [&](std::string_view what) {
    return fmt::format("{} of epoch {} does not follow on what the rank did before", what,
                       command.epoch);
  };
  switch (command.order) {
    case RankOrder::kAdopt:
    case RankOrder::kPrepare:
      if (std::string objection = plan_objection(command.epoch); !objection.empty()) {
        return objection;
      }
      leave_switch(rank);
      if (command.order == RankOrder::kAdopt) {
        rank.epoch = command.epoch;
      } else {
        rank.pending_epoch = command.epoch;
      }
      return {};
    case RankOrder::kArm:
      if (!pending) {
        return out_of_order("arm");
      }
      rank.armed_for = command.at_step;
      return {};
    case RankOrder::kTransfer:
      if (!pending || rank.done != RankOrder::kArm || epoch_ == 0) {
        return out_of_order("transfer");
      }
      rank.transfer_end_s =
          time_s_ +
          transfer_to(command.epoch).node_s[job_.cluster.node_of(RankId{command.rank}).value()];
      return {};
    case RankOrder::kCommit:
      if (!pending || rank.done != RankOrder::kTransfer) {
        return out_of_order("commit");
      }
      leave_switch(rank);
      rank.epoch = command.epoch;
      return {};
    case RankOrder::kAbort:
      leave_switch(rank);
      return {};
  }
  return {};
}

void VirtualJob::order(const agent::RankCommand& command) {
  TAPAS_CHECK(command.rank < ranks_.size(), "order for rank {} of {}", command.rank, ranks_.size());
  Rank& rank = ranks_[command.rank];
  if (phase_ == Phase::kBroken) {
    return;
  }
  rank.ordered_s = time_s_;
  const std::string refusal = carry_out(rank, command);
  if (!refusal.empty()) {
    replies_.push_back(
        {command.rank, command.order, command.epoch, false, refusal, last_step_, 0, 0});
  } else if (command.order != RankOrder::kArm && command.order != RankOrder::kTransfer) {
    rank.done = command.order;
    replies_.push_back({command.rank, command.order, command.epoch, true, {}, last_step_, 0, 0});
  }
}

std::vector<agent::RankReply> VirtualJob::take_replies() { return std::exchange(replies_, {}); }

void VirtualJob::answer(std::uint32_t number, RankOrder order, double bytes) {
  Rank& rank = ranks_[number];
  rank.done = order;
  replies_.push_back({number,
                      order,
                      rank.pending_epoch,
                      true,
                      {},
                      last_step_,
                      static_cast<std::uint64_t>(bytes),
                      time_s_ - rank.ordered_s});
}

const Transfer& VirtualJob::transfer_to(std::uint64_t epoch) {
  if (!transfer_ || transfer_->first != epoch) {
    transfer_.emplace(epoch,
                      truth_.transfer(plans_.at(epoch_).layout->plan, plans_.at(epoch).layout->plan,
                                      faults_.state(faults_.acting(last_step_ + 1, time_s_))));
  }
  return transfer_->second;
}

// ---- time

bool VirtualJob::stopped_by(const Rank& rank) const {
  return rank.pending_epoch != 0 &&
         ((rank.armed_for && *rank.armed_for <= last_step_) || rank.done >= RankOrder::kArm);
}

std::optional<std::uint64_t> VirtualJob::agreed_epoch() const {
  std::uint64_t newest = 0;
  for (const Rank& rank : ranks_) {
    newest = std::max(newest, rank.epoch);
  }
  bool agreed = newest > 0;
  for (const std::uint64_t epoch : {epoch_, newest}) {
    const auto plan = plans_.find(epoch);
    if (plan == plans_.end()) {
      continue;
    }
    for_each_position(plan->second.layout->plan, [&](const solver::Position& position) {
      for (const std::uint16_t device : position.devices) {
        const Rank& rank = ranks_[job_.cluster.rank_of(position.node, device).value()];
        agreed = agreed && rank.epoch == newest && !stopped_by(rank);
      }
    });
  }
  return agreed ? std::optional(newest) : std::nullopt;
}

std::uint64_t VirtualJob::pending_epoch() const {
  std::uint64_t pending = 0;
  for (const Rank& rank : ranks_) {
    pending = std::max(pending, rank.pending_epoch);
  }
  return pending;
}

void VirtualJob::hold() {
  if (epoch_ > 0 && !pause_) {
    pause_ = FinishedSwitch{epoch_, pending_epoch(), false, last_step_, 0, 0};
    hold_begin_s_ = time_s_;
  }
  phase_ = epoch_ > 0 ? Phase::kHolding : Phase::kWaitingForPlan;
  for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
    if (ranks_[number].armed_for) {
      ranks_[number].armed_for.reset();
      answer(number, RankOrder::kArm, 0);
    }
  }
}

void VirtualJob::resume(std::uint64_t epoch) {
  if (pause_) {
    pause_->committed = epoch != epoch_;
    pause_->epoch = pause_->committed ? epoch : pause_->epoch;
    pause_->pause_s = time_s_ - hold_begin_s_;
    pause_->bytes = pause_->committed && transfer_ ? transfer_->second.bytes : 0;
    finished_switch_ = std::exchange(pause_, std::nullopt);
    transfer_.reset();
  }
  if (epoch != epoch_) {
    warm_up_flag_ = epoch_ == 0 ? wire::kFirstStep : wire::kAfterSwitch;
    epoch_ = epoch;
    steps_under_epoch_ = 0;
    plans_.erase(plans_.begin(), plans_.find(epoch));
  }
}

void VirtualJob::start_step() {
  const bool warm_up = steps_under_epoch_ < kWarmUpSteps;
  const bool first = steps_under_epoch_ == 0;
  const double overhead = !first                                ? 1.0
                          : warm_up_flag_ == wire::kAfterSwitch ? kSwitchOverhead
                                                                : kStartOverhead;
  running_ = {};
  running_.step = last_step_ + 1;
  running_.epoch = epoch_;
  running_.flags = warm_up ? warm_up_flag_ : 0;
  running_.faults = faults_.acting(running_.step, time_s_);
  running_.truth =
      truth_.step(*plans_.at(epoch_).layout, running_.step, faults_.state(running_.faults),
                  overhead, faults_.input_s(running_.faults));
  running_.end_s = time_s_ + running_.truth.wall_s;
  step_speed_ = options_.speed;
  if (options_.records_per_s > 0) {
    const auto records = static_cast<double>(running_.truth.ranks.size());
    step_speed_ = running_.truth.wall_s * options_.records_per_s / records;
  }
  phase_ = Phase::kStepping;
}

void VirtualJob::finish_step() {
  time_s_ = running_.end_s;
  last_step_ = running_.step;
  ++steps_under_epoch_;
  finished_step_ = std::move(running_);
  const bool over = options_.max_steps > 0 && last_step_ >= options_.max_steps;
  phase_ = over ? Phase::kDone : Phase::kBetweenSteps;
}

double VirtualJob::next_transfer_end_s() const {
  double next = kNever;
  for (const Rank& rank : ranks_) {
    next = std::min(next, rank.transfer_end_s.value_or(kNever));
  }
  return next;
}

void VirtualJob::finish_transfers() {
  for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
    Rank& rank = ranks_[number];
    if (rank.transfer_end_s && *rank.transfer_end_s <= time_s_) {
      rank.transfer_end_s.reset();
      answer(number, RankOrder::kTransfer, transfer_to(rank.pending_epoch).device_bytes[number]);
    }
  }
}

bool VirtualJob::kill(RankId rank) {
  if (!alive(rank) || phase_ == Phase::kDone) {
    return false;
  }
  ranks_[rank.value()].alive = false;
  ++changes_;
  if (phase_ != Phase::kBroken) {
    phase_ = Phase::kBroken;
    relaunch_s_ = time_s_ + kStopS;
  }
  return true;
}

void VirtualJob::relaunch() {
  ++changes_;
  const bool others =
      std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.alive; });
  for (Rank& rank : ranks_) {
    rank = {};
    rank.alive = !others;
  }
  if (others) {
    relaunch_s_ = time_s_ + kStartS;
    return;
  }
  ++starts_;
  epoch_ = 0;
  pause_.reset();
  transfer_.reset();
  phase_ = Phase::kWaitingForPlan;
}

double VirtualJob::advance(double wall_s) {
  while (phase_ != Phase::kDone) {
    if (phase_ == Phase::kBroken) {
      const double needed = relaunch_s_ - time_s_;
      if (needed > wall_s) {
        time_s_ += wall_s;
        return 0;
      }
      time_s_ = relaunch_s_;
      relaunch();
      return wall_s - needed;
    }
    if (phase_ == Phase::kStepping) {
      const double needed = rest_of_step_s();
      if (needed > wall_s) {
        time_s_ += wall_s * step_speed_;
        return 0;
      }
      finish_step();
      return wall_s - needed;
    }
    if (const auto epoch = agreed_epoch()) {
      resume(*epoch);
      start_step();
      continue;
    }
    hold();
    const double end_s = next_transfer_end_s();
    if (end_s == kNever) {
      time_s_ += wall_s;
      return 0;
    }
    const double needed = (end_s - time_s_) / options_.speed;
    if (needed > wall_s) {
      time_s_ += wall_s * options_.speed;
      return 0;
    }
    time_s_ = std::max(time_s_, end_s);
    finish_transfers();
    wall_s -= std::max(0.0, needed);
  }
  time_s_ += wall_s;
  return 0;
}

double VirtualJob::next_event_s() const {
  switch (phase_) {
    case Phase::kStepping:
      return rest_of_step_s();
    case Phase::kBetweenSteps:
      return 0;
    case Phase::kBroken:
      return std::max(0.0, relaunch_s_ - time_s_);
    case Phase::kHolding:
      return std::max(0.0, next_transfer_end_s() - time_s_) / options_.speed;
    case Phase::kWaitingForPlan:
    case Phase::kDone:
      break;
  }
  return kNever;
}

std::optional<FinishedStep> VirtualJob::take_step() {
  return std::exchange(finished_step_, std::nullopt);
}

std::optional<FinishedSwitch> VirtualJob::take_switch() {
  return std::exchange(finished_switch_, std::nullopt);
}

// ---- ranks

wire::DeviceUuid VirtualJob::device_uuid(RankId rank) const {
  wire::DeviceUuid uuid = {};
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    const std::uint64_t word = draw(options_.seed, Noise::kDevice, rank.value(), 1 + i / 8);
    uuid[i] = static_cast<std::uint8_t>(word >> (8 * (i % 8)));
  }
  return uuid;
}

agent::LocalRank VirtualJob::local_rank(RankId rank) const {
  const Rank& state = ranks_[rank.value()];
  agent::LocalRank local;
  local.info.rank = rank.value();
  for (const std::uint8_t byte : device_uuid(rank)) {
    local.info.device_uuid += fmt::format("{:02x}", byte);
  }
  local.info.pid = static_cast<std::uint32_t>((starts_ - 1) * ranks_.size()) + rank.value() + 1;
  local.epoch = state.epoch;
  local.pending_epoch = state.pending_epoch;
  local.done = state.done;
  local.term = state.term;
  return local;
}

}  // namespace tapas::twin
