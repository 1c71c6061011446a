#include "daemon/core/answers.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tapas::daemon {
namespace {

std::set<NodeId> nodes_of(const solver::Plan& plan) {
  std::set<NodeId> nodes;
  for (const auto& replica : plan.placement) {
    for (const solver::Position& position : replica) {
      nodes.insert(position.node);
    }
  }
  return nodes;
}

bool same_nodes(const solver::Plan& a, const solver::Plan& b) {
  for (std::uint32_t r = 0; r < a.replicas(); ++r) {
    for (std::uint32_t s = 0; s < a.stages(); ++s) {
      if (a.placement[r][s].node != b.placement[r][s].node) {
        return false;
      }
    }
  }
  return true;
}

/// Each stage has the same layers, run the same way by the same devices.
bool same_work(const solver::Plan& a, const solver::Plan& b) {
  for (std::uint32_t r = 0; r < a.replicas(); ++r) {
    if (a.splits_of(r) != b.splits_of(r) || a.checkpoint_of(r) != b.checkpoint_of(r)) {
      return false;
    }
  }
  return a.placement == b.placement;
}

bool uses_drained(const solver::ReplanRequest& request) {
  const std::set<NodeId> nodes = nodes_of(request.current);
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](NodeId node) { return request.state.is_drained(node); });
}

}  // namespace

std::string_view to_string(Answer answer) {
  switch (answer) {
    case Answer::kWait:
      return "wait";
    case Answer::kMicrobatches:
      return "microbatches";
    case Answer::kLayers:
      return "layers";
    case Answer::kNodes:
      return "nodes";
    case Answer::kSpare:
      return "spare";
  }
  return "";
}

std::string_view in_words(Answer answer) {
  switch (answer) {
    case Answer::kWait:
      return "wait";
    case Answer::kMicrobatches:
      return "move microbatches only";
    case Answer::kLayers:
      return "move layers";
    case Answer::kNodes:
      return "exchange nodes";
    case Answer::kSpare:
      return "take a spare";
  }
  return "";
}

Answer answer_of(const solver::Plan& from, const solver::Plan& to) {
  if (!same_nodes(from, to)) {
    const std::set<NodeId> before = nodes_of(from);
    for (const NodeId node : nodes_of(to)) {
      if (!before.contains(node)) {
        return Answer::kSpare;
      }
    }
    return Answer::kNodes;
  }
  if (!same_work(from, to)) {
    return Answer::kLayers;
  }
  return from.microbatches == to.microbatches ? Answer::kWait : Answer::kMicrobatches;
}

std::vector<solver::Proposal> lesser_answers(const solver::Job& job,
                                             const solver::ReplanRequest& request,
                                             const solver::Proposal& proposal,
                                             const solver::ReplanLimits& limits) {
  std::vector<solver::Proposal> out;
  // To get off a drained node counts more than any price.
  if (!proposal.improves || uses_drained(request)) {
    return out;
  }
  const auto consider = [&](Result<solver::Proposal> lesser) {
    if (lesser && lesser->improves) {
      out.push_back(*std::move(lesser));
    }
  };
  const Answer answer = answer_of(request.current, proposal.plan);
  if (answer > Answer::kMicrobatches && job.capabilities.microbatch_counts) {
    // Pinned nodes keep all but the number of their microbatches.
    solver::ReplanRequest pinned = request;
    pinned.pinned.assign(job.cluster.nodes.size(), true);
    consider(solver::micro_replan(job, pinned, limits));
  }
  if (answer > Answer::kLayers) {
    solver::Job in_place = job;
    in_place.capabilities.placement = false;
    auto lesser = solver::micro_replan(in_place, request, limits);
    if (lesser && answer_of(request.current, lesser->plan) == Answer::kLayers) {
      consider(std::move(lesser));
    }
  }
  return out;
}

}  // namespace tapas::daemon
