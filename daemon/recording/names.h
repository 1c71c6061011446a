#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "daemon/core/event.h"
#include "solver/model/comm.h"
#include "solver/model/graph.h"
#include "solver/model/job.h"

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <variant>

/// How kinds of things are called in a recording.
namespace tapas::daemon::recording {

/// 64 random bits or a hash, 16 hexadecimal digits: readers of JSON may keep only 53 bits.
template <typename Int>
struct Hex {
  Int& value;
};
/// Seconds. A whole number stands for the microseconds that records hold, one with a decimal point
/// for seconds.
template <typename Real>
struct Micros {
  Real& value;
};

/// fields() serves a struct that is written and one that is read.
template <typename T, typename Struct>
concept Is = std::same_as<std::remove_const_t<T>, Struct>;

/// Word for the values of an enumeration and the alternatives of a variant, in their order.
template <typename T>
struct Names;

template <typename Enum>
[[nodiscard]] constexpr std::string_view word_of(Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < Names<Enum>::kList.size() ? Names<Enum>::kList[index] : "?";
}

using Word = std::string_view;

template <>
struct Names<Event> {
  static constexpr auto kList = std::to_array<Word>(
      {"agent_hello", "agent_heartbeat", "agent_findings", "step_batch", "agent_vote",
       "plan_solved", "replan_solved", "store_done", "operator_command", "reconfigured", "tick"});
};
template <>
struct Names<decltype(OperatorCommand::verb)> {
  static constexpr auto kList =
      std::to_array<Word>({"drain", "undrain", "pin", "unpin", "replan", "set_auto"});
};
template <>
struct Names<Action> {
  static constexpr auto kList =
      std::to_array<Word>({"send", "request_plan", "request_replan", "store", "reply", "refused"});
};
template <>
struct Names<decltype(SendToAgent::message)> {
  static constexpr auto kList =
      std::to_array<Word>({"welcome", "reject", "heartbeat_ack", "plan", "switch"});
};
template <>
struct Names<StoreRow> {
  static constexpr auto kList = std::to_array<Word>(
      {"plan", "decision", "amendment", "switch", "event", "operator", "node_state", "device",
       "learnt", "automatic_switch", "trial", "loss", "slow_link", "late_loader"});
};
static_assert(Names<Event>::kList.size() == std::variant_size_v<Event>);
static_assert(Names<decltype(OperatorCommand::verb)>::kList.size() ==
              std::variant_size_v<decltype(OperatorCommand::verb)>);
static_assert(Names<Action>::kList.size() == std::variant_size_v<Action>);
static_assert(Names<decltype(SendToAgent::message)>::kList.size() ==
              std::variant_size_v<decltype(SendToAgent::message)>);
static_assert(Names<StoreRow>::kList.size() == std::variant_size_v<StoreRow>);

template <>
struct Names<SwitchPhase> {
  static constexpr auto kList =
      std::to_array<Word>({"prepared", "armed", "transferred", "committed", "aborted"});
};
template <>
struct Names<SwitchOrder> {
  static constexpr auto kList =
      std::to_array<Word>({"prepare", "arm", "transfer", "commit", "abort"});
};
template <>
struct Names<SwitchState> {
  static constexpr auto kList =
      std::to_array<Word>({"running", "commit_decided", "done", "aborted"});
};
template <>
struct Names<PlanStatus> {
  static constexpr auto kList =
      std::to_array<Word>({"proposed", "active", "superseded", "aborted"});
};
template <>
struct Names<ErrorCode> {
  static constexpr auto kList = std::to_array<Word>(
      {"invalid", "infeasible", "not_found", "conflict", "denied", "unavailable", "timeout", "io"});
};
template <>
struct Names<solver::Schedule> {
  static constexpr auto kList = std::to_array<Word>({"gpipe", "1f1b", "interleaved"});
};
template <>
struct Names<solver::CostModelKind> {
  static constexpr auto kList = std::to_array<Word>({"physical", "document"});
};
template <>
struct Names<solver::OpKind> {
  static constexpr auto kList =
      std::to_array<Word>({"embedding", "moe", "column_parallel_linear", "row_parallel_linear",
                           "attention", "norm", "head", "other"});
};
template <>
struct Names<solver::PathType> {
  static constexpr auto kList = std::to_array<Word>(
      {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"});
};
template <>
struct Names<solver::Generation> {
  static constexpr auto kList =
      std::to_array<Word>({"unknown", "volta", "ampere", "hopper", "blackwell"});
};
template <>
struct Names<solver::Collective> {
  static constexpr auto kList = std::to_array<Word>({"all_reduce", "all_gather", "reduce_scatter"});
};

}  // namespace tapas::daemon::recording
