#include "solver/cost/predict.h"
#include "tests/scenario/sim_parts.h"

#include <algorithm>
#include <utility>

namespace tapas::daemon::sim {
namespace {

constexpr double kLinkJitter = 0.03;
constexpr double kJobStartS = 1.7e9;

}  // namespace

const solver::Plan& Sim::plan_of(Epoch epoch) const { return *plans_.at(epoch); }

/// A step starts when nobody holds and all ranks with a position run one epoch.
void Sim::start_step() {
  const auto wait = [this] { at(0.05, [this] { start_step(); }); };
  stepping_ = false;
  Epoch epoch;
  bool held = ranks_down_;
  for (const auto& agent : agents_) {
    for (const Rank& rank : agent->ranks) {
      held = held || rank.holding;
      epoch = std::max(epoch, rank.epoch);
    }
  }
  if (held || epoch == Epoch{}) {
    wait();
    return;
  }
  for (const auto& replica : plan_of(epoch).placement) {
    for (const solver::Position& position : replica) {
      for (const std::uint16_t device : position.devices) {
        if (agents_[position.node.value()]->ranks[device].epoch != epoch) {
          wait();
          return;
        }
      }
    }
  }
  running_epoch_ = epoch;
  stepping_ = true;
  const OddStep odd = odd_ ? odd_(last_step_ + 1) : OddStep{};
  const double step_s = solver::predict(*job_, plan_of(epoch), truth_).step_time_s * scale_ *
                            extra_ratio_ * odd.job_factor +
                        odd.extra_s;
  at(step_s, [this, epoch, odd, session = session_, begin_s = now_s_] {
    end_step(epoch, session, begin_s, odd);
  });
}

void Sim::end_step(Epoch epoch, std::uint64_t session, double begin_s, const OddStep& odd) {
  if (session != session_ || ranks_down_) {
    start_step();  // Nobody finished it.
    return;
  }
  const solver::Plan& plan = plan_of(epoch);
  const auto compute = solver::stage_compute(*job_, plan);
  ++last_step_;
  last_step_s_ = now_s_ - begin_s;
  last_end_s_ = now_s_;
  std::map<NodeId, StepBatch> batches;
  std::normal_distribution<double> noise(1.0, options_.jitter);
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    for (std::uint32_t s = 0; s < plan.stages(); ++s) {
      const solver::Position& position = plan.placement[r][s];
      for (const std::uint16_t device : position.devices) {
        const RankId rank = job_->cluster.rank_of(position.node, device);
        agents_[position.node.value()]->ranks[device].trained = true;
        double factor = truth_.slowdown(rank) * std::max(0.2, noise(random_)) * scale_ *
                        plan.microbatches[r] * odd.job_factor;
        if (odd.lost.contains(rank)) {
          continue;
        }
        StepSample sample;
        sample.job = name_hash(job_->name);
        sample.session = session_;
        sample.node = name_hash(job_->cluster.nodes[position.node.value()].name);
        sample.rank = rank;
        sample.epoch = epoch;
        sample.step = last_step_;
        const auto off = clock_off_s_.find(agents_[position.node.value()]->node);
        sample.end_time_s = kJobStartS + now_s_ + (off == clock_off_s_.end() ? 0 : off->second);
        sample.flags = flags_ | odd.flags;
        sample.microbatches = plan.microbatches[r];
        if (const auto waits = odd.input_s.find(rank); waits != odd.input_s.end()) {
          sample.input_wait_s = waits->second;
        }
        if (const auto work = odd.work.find(rank); work != odd.work.end()) {
          factor *= work->second;
          sample.work_tokens = static_cast<std::uint32_t>(4096 * work->second);
        }
        sample.wall_s = last_step_s_;
        sample.forward_s = std::min(compute[r][s].forward_s * factor, last_step_s_ / 3);
        sample.backward_s = std::min(compute[r][s].backward_s * factor, last_step_s_ * 2 / 3);
        if (odd.in_ms.contains(rank)) {
          for (double* time_s : {&sample.wall_s, &sample.forward_s, &sample.backward_s}) {
            *time_s *= 1000;
          }
        }
        batches[position.node].samples.push_back(sample);
      }
    }
  }
  send_links(plan, batches);
  for (auto& [node, batch] : batches) {
    Agent& agent = *agents_[node.value()];
    batch.node = agent.node;
    agent.records += batch.samples.size();
    if (agent.protocol && agent.protocol->state() == agent::AgentProtocol::State::kWelcome) {
      to_core(agent, std::move(batch));
    }
  }
  for (const auto& agent : agents_) {
    for (Rank& rank : agent->ranks) {
      if (rank.armed_for && last_step_ >= *rank.armed_for) {
        rank.armed_for.reset();
        rank.holding = true;
        rank.done = agent::RankOrder::kArm;
        reply(*agent, {rank.id.value(), agent::RankOrder::kArm, rank.pending.value(), true, "",
                       last_step_, 0, 0.01});
      }
    }
  }
  start_step();
}

void Sim::send_links(const solver::Plan& plan, std::map<NodeId, StepBatch>& batches) {
  constexpr double kBytes = 1e8;
  std::normal_distribution<double> noise(1.0, kLinkJitter);
  for (std::uint32_t r = 0; r < plan.replicas(); ++r) {
    for (std::uint32_t s = 0; s + 1 < plan.stages(); ++s) {
      for (const bool forward : {true, false}) {
        const solver::Position& from = plan.placement[r][forward ? s : s + 1];
        const solver::Position& to = plan.placement[r][forward ? s + 1 : s];
        if (from.node == to.node || !batches.contains(from.node)) {
          continue;
        }
        const double slow = std::max(truth_.links(from.node).send, truth_.links(to.node).receive) *
                            truth_.path(from.node, to.node);
        batches[from.node].links.push_back(
            {.job = name_hash(job_->name),
             .session = session_,
             .destination = name_hash(job_->cluster.nodes[to.node.value()].name),
             .rank = job_->cluster.rank_of(from.node, from.devices.front()),
             .peer = job_->cluster.rank_of(to.node, to.devices.front()),
             .end_time_s = kJobStartS + now_s_,
             .bytes = kBytes,
             .transfer_s = kBytes / 2e10 * slow * std::max(0.5, noise(link_random_))});
      }
    }
  }
}

}  // namespace tapas::daemon::sim
