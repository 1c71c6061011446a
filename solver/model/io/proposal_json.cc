#include "solver/model/io/proposal_json.h"

#include "solver/model/io/load.h"

#include <cstddef>
#include <utility>

namespace tapas::solver {

json::Value proposal_to_json(const Proposal& proposal, const Job& job) {
  json::Value tried = json::Value::array();
  for (const Tried& step : proposal.tried) {
    tried.push_back(
        {{"what", step.what}, {"step_s", step.step_s}, {"evaluations", step.evaluations}});
  }
  json::Value moves = moves_to_json(proposal.moves, job);
  for (std::size_t k = 0; k < proposal.transfers.size(); ++k) {
    moves[k]["start_s"] = proposal.transfers[k].start_s;
    moves[k]["end_s"] = proposal.transfers[k].end_s;
  }
  return {{"schema", "tapas.proposal/1"},
          {"improves", proposal.improves},
          {"reason", proposal.reason},
          {"step_before_s", proposal.step_before_s},
          {"step_after_s", proposal.step_after_s},
          {"lower_bound_s", proposal.lower_bound_s},
          {"switch_s", proposal.switch_s},
          {"net_gain_s", proposal.net_gain_s},
          {"plans_evaluated", proposal.plans_evaluated},
          {"tried", std::move(tried)},
          {"stopped", proposal.stopped},
          {"stages_touched", proposal.stages_touched},
          {"moves", std::move(moves)},
          {"plan", plan_to_json(proposal.plan, job)}};
}

}  // namespace tapas::solver
