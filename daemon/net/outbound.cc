#include "daemon/net/outbound.h"

#include "base/json/json.h"
#include "solver/model/io/load.h"

#include <algorithm>
#include <variant>

namespace tapas::daemon {
namespace {

constexpr std::size_t kRecentPlans = 8;

wire::SwitchOrder to_wire(SwitchOrder order) {
  switch (order) {
    case SwitchOrder::kPrepare:
      return wire::SwitchOrder::kPrepare;
    case SwitchOrder::kArm:
      return wire::SwitchOrder::kArm;
    case SwitchOrder::kTransfer:
      return wire::SwitchOrder::kTransfer;
    case SwitchOrder::kCommit:
      return wire::SwitchOrder::kCommit;
    case SwitchOrder::kAbort:
      return wire::SwitchOrder::kAbort;
  }
  return wire::SwitchOrder::kAbort;
}

wire::ToAgent to_wire(const RejectMessage& message) {
  return wire::Reject{message.reason, message.retry_after_s};
}
wire::ToAgent to_wire(const HeartbeatAckMessage& message) {
  return wire::HeartbeatAck{message.term.value()};
}
wire::ToAgent to_wire(const SwitchMessage& message) {
  return wire::SwitchCommand{to_wire(message.order), message.job,        message.term.value(),
                             message.from.value(),   message.to.value(), message.at_step,
                             message.reason};
}

}  // namespace

Result<void> Outbound::encode(const SendToAgent& send,
                              const std::function<void(const wire::ToAgent&)>& emit) {
  const auto* plan = std::get_if<PlanMessage>(&send.message);
  if (plan == nullptr) {
    std::visit(
        [&](const auto& message) {
          using Message = std::decay_t<decltype(message)>;
          if constexpr (std::is_same_v<Message, WelcomeMessage>) {
            emit(wire::Welcome{message.term.value(), message.heartbeat_s, reconnect_spread_s_});
          } else if constexpr (!std::is_same_v<Message, PlanMessage>) {
            emit(to_wire(message));
          }
        },
        send.message);
    return {};
  }
  const auto cut_plan = cut(*plan);
  if (!cut_plan) {
    return tl::unexpected(cut_plan.error());
  }
  const std::vector<std::string>& pieces = (*cut_plan)->pieces;
  wire::PlanChunk chunk{plan->job,
                        plan->term.value(),
                        plan->plan->epoch.value(),
                        plan->active,
                        0,
                        static_cast<std::uint32_t>(pieces.size()),
                        {}};
  for (const std::string& piece : pieces) {
    chunk.text = piece;
    emit(chunk);
    ++chunk.index;
  }
  return {};
}

Result<const Outbound::CutPlan*> Outbound::cut(const PlanMessage& message) {
  const auto job = jobs_.find(message.job);
  if (job == jobs_.end() || message.plan == nullptr) {
    return fail(ErrorCode::kInvalid, "no plan of job \"{}\" to send", message.job);
  }
  const Epoch epoch = message.plan->epoch;
  const auto found = std::find_if(recent_.begin(), recent_.end(), [&](const CutPlan& plan) {
    return plan.job == message.job && plan.epoch == epoch;
  });
  if (found != recent_.end()) {
    return &*found;
  }
  const std::string text = json::dump(solver::plan_to_json(*message.plan, *job->second));
  if (text.size() > wire::kMaxPlanChunks * wire::kMaxPlanChunkBytes) {
    return fail(ErrorCode::kInvalid, "plan {} of job \"{}\" has {} bytes; at most {} can be sent",
                epoch, message.job, text.size(), wire::kMaxPlanChunks * wire::kMaxPlanChunkBytes);
  }
  CutPlan plan{message.job, epoch, {}};
  for (std::size_t at = 0; at < text.size(); at += wire::kMaxPlanChunkBytes) {
    plan.pieces.push_back(text.substr(at, wire::kMaxPlanChunkBytes));
  }
  if (recent_.size() == kRecentPlans) {
    recent_.pop_front();
  }
  recent_.push_back(std::move(plan));
  return &recent_.back();
}

}  // namespace tapas::daemon
