#include "tests/replan/exact.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tapas::solver::testing {
namespace {

/// Every plan, one by one.
class Enumeration {
 public:
  Enumeration(const Job& job, const ReplanRequest& request)
      : job_(job), request_(request), judge_(job, request), plan_(request.current) {
    best_.plan = request.current;
    best_.value = judge_.value(request.current);
    layers_ = job.graph.layer_count();
    splits_.resize(plan_.replicas());
  }

  Exact run() {
    place(0);
    return std::move(best_);
  }

 private:
  [[nodiscard]] bool in_use(NodeId node) const {
    const auto& rows = request_.current.placement;
    return std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
      return std::any_of(row.begin(), row.end(),
                         [&](const Position& position) { return position.node == node; });
    });
  }
  [[nodiscard]] bool pinned(NodeId node) const {
    return node.value() < request_.pinned.size() && request_.pinned[node.value()];
  }

  void place(std::uint32_t at) {
    const std::uint32_t stages = plan_.stages();
    if (at == plan_.replicas() * stages) {
      cut(0);
      return;
    }
    const Position home = request_.current.placement[at / stages][at % stages];
    for (std::uint32_t n = 0; n < job_.cluster.nodes.size(); ++n) {
      if (taken_[n] || (request_.state.is_drained(NodeId(n)) && !in_use(NodeId(n))) ||
          (NodeId(n) != home.node &&
           (!job_.capabilities.placement || pinned(home.node) || pinned(NodeId(n))))) {
        continue;
      }
      taken_[n] = true;
      plan_.placement[at / stages][at % stages] = {NodeId(n), home.devices};
      place(at + 1);
      taken_[n] = false;
    }
  }

  void cut(std::uint32_t r) {
    if (r == plan_.replicas()) {
      plan_.pp_splits = splits_[0];
      plan_.replica_splits = splits_;
      plan_.microbatches.clear();
      count(job_.total_microbatches());
      return;
    }
    if (r > 0 && !job_.capabilities.replica_splits) {
      splits_[r] = splits_[0];
      cut_if_pins_hold(r);
      return;
    }
    std::vector<std::uint32_t> cuts{0};
    each_cut(r, cuts);
  }

  void each_cut(std::uint32_t r, std::vector<std::uint32_t>& cuts) {
    if (cuts.size() == plan_.stages()) {
      splits_[r] = cuts;
      cut_if_pins_hold(r);
      return;
    }
    for (std::uint32_t next = cuts.back() + 1; next < layers_; ++next) {
      cuts.push_back(next);
      each_cut(r, cuts);
      cuts.pop_back();
    }
  }

  void cut_if_pins_hold(std::uint32_t r) {
    const auto& now = request_.current.splits_of(r);
    for (std::uint32_t s = 0; s < plan_.stages(); ++s) {
      const bool last = s + 1 == plan_.stages();
      if (pinned(request_.current.placement[r][s].node) &&
          (splits_[r][s] != now[s] || (!last && splits_[r][s + 1] != now[s + 1]))) {
        return;
      }
    }
    cut(r + 1);
  }

  void count(std::uint32_t left) {
    if (!job_.capabilities.microbatch_counts) {
      plan_.microbatches = request_.current.microbatches;
      judge();
      return;
    }
    const auto rows = static_cast<std::uint32_t>(plan_.replicas() - plan_.microbatches.size());
    for (std::uint32_t m = rows == 1 ? left : 1; m + rows - 1 <= left; ++m) {
      plan_.microbatches.push_back(m);
      if (rows == 1) {
        judge();
      } else {
        count(left - m);
      }
      plan_.microbatches.pop_back();
    }
  }

  void judge() {
    PlanEvaluator& evaluator = judge_.evaluator();
    if (job_.capabilities.recompute) {
      plan_.replica_checkpoint.assign(plan_.replicas(), std::vector<bool>(layers_, false));
      for (std::uint32_t r = 0; r < plan_.replicas(); ++r) {
        for (std::uint32_t s = 0; s < plan_.stages(); ++s) {
          const LayerTable& table = evaluator.table(evaluator.sharding_of(plan_, r, s));
          const LayerRange range = stage_layers(plan_, r, s, layers_);
          const auto fit =
              fit_stage(table, evaluator.rule_of(plan_, r, s), range,
                        in_flight(plan_.schedule, plan_.stages(), s, plan_.microbatches[r]),
                        {evaluator.slowdown(request_.state, plan_.placement[r][s]),
                         request_.state.links(plan_.placement[r][s].node).inside});
          if (!fit) {
            return;
          }
          mark_recomputed(table, range, *fit, plan_.replica_checkpoint[r]);
        }
      }
      plan_.checkpoint = plan_.replica_checkpoint[0];
    }
    ++best_.looked_at;
    const Value value = judge_.value(plan_);
    if (better(value, best_.value) && judge_.allows(plan_)) {
      best_.plan = plan_;
      best_.value = value;
    }
  }

  const Job& job_;
  const ReplanRequest& request_;
  Judge judge_;
  Plan plan_;
  std::uint32_t layers_ = 0;
  std::vector<std::vector<std::uint32_t>> splits_;
  std::array<bool, 16> taken_{};
  Exact best_;
};

}  // namespace

Exact enumerate(const Job& job, const ReplanRequest& request) {
  return Enumeration(job, request).run();
}

}  // namespace tapas::solver::testing
