#include "daemon/core/core.h"
#include "tests/scenario/sim_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

/// The store's thread: one write after the other, durable before it is acknowledged.
namespace tapas::daemon::sim {

Restored Sim::restored() const {
  Restored out;
  out.term = Term(disk_.term);
  RestoredJob& job = out.jobs[job_->name];
  for (const auto& [epoch, row] : disk_.plans) {
    job.highest_epoch = epoch;
    if (row.status == PlanStatus::kActive) {
      if (job.active) {
        broken(
            fmt::format("plans {} and {} are both active in the store", job.active->epoch, epoch));
      }
      job.active = row.plan;
    }
  }
  for (const auto& [epoch, row] : disk_.switches) {
    if (row.state == SwitchState::kRunning || row.state == SwitchState::kCommitDecided) {
      job.open_switches.push_back(row);
      job.pending = disk_.plans.at(epoch).plan;
    }
  }
  job.last_decision = disk_.decisions.empty() ? 0 : disk_.decisions.rbegin()->first;
  for (const auto& [node, row] : disk_.nodes) {
    out.nodes.push_back(row);
  }
  for (const auto& [device, row] : disk_.devices) {
    job.devices.push_back(row);
  }
  job.learnt = disk_.learnt;
  for (const auto& [epoch, row] : disk_.automatic_switches) {
    job.switches.push_back(row);
  }
  job.trial = disk_.trial;
  if (const auto tried = disk_.plans.find(disk_.trial.epoch); tried != disk_.plans.end()) {
    job.before_trial = disk_.plans.at(tried->second.plan->parent).plan;
  }
  job.loss = disk_.loss;
  for (const auto& [ends, row] : disk_.slow_links) {
    job.slow_links.push_back(row);
  }
  for (const auto& [place, row] : disk_.late_loaders) {
    job.late_loaders.push_back(row);
  }
  out.paused = disk_.paused;
  return out;
}

void Sim::queue_write(StoreWrite write) {
  writes_.push_back(std::move(write));
  if (!writing_) {
    write_next();
  }
}

void Sim::write_next() {
  writing_ = !writes_.empty();
  if (!writing_) {
    return;
  }
  const double takes_s = chance(options_.faults.slow_writes) ? draw(1, 6) : draw(0.001, 0.02);
  at(takes_s, [this, life = life_] {
    if (life != life_) {
      return;
    }
    const StoreWrite write = std::move(writes_.front());
    writes_.pop_front();
    const bool fails =
        now_s_ < disk_full_until_s_ || (write.write != 0 && chance(options_.faults.store_failures));
    if (!fails) {
      keep_no_longer();
      for (const StoreRow& row : write.rows) {
        make_durable(row);
      }
    }
    if (fails) {
      trace(fmt::format("write {} of {} rows fails", write.write, write.rows.size()));
      if (write.write == 0) {
        kept_.push_back(write);
      }
    }
    if (write.write != 0 && !fails) {
      untold_[write.write] = write.rows;
    }
    if (write.write != 0) {
      // Durable is one thing, that the core hears of it another.
      StoreDone done{write.write, {}};
      if (fails) {
        done.outcome = fail(ErrorCode::kIo, "the disk is full");
      }
      at(draw(0.0, 0.005), [this, life, done] {
        if (life == life_) {
          tell_core(done);
        }
      });
    }
    write_next();
  });
}

/// What could not be written comes before what is written next, and is tried again by itself.
void Sim::keep_no_longer() {
  for (; core_ && now_s_ >= disk_full_until_s_ && !kept_.empty(); kept_.pop_front()) {
    for (const StoreRow& row : kept_.front().rows) {
      make_durable(row);
    }
  }
}

/// The process dies: what it wanted written is, up to some point.
void Sim::lose_writes() {
  for (; !writes_.empty() && now_s_ >= disk_full_until_s_ && chance(0.5); writes_.pop_front()) {
    if (writes_.front().write != 0 && chance(options_.faults.store_failures)) {
      continue;
    }
    keep_no_longer();
    for (const StoreRow& row : writes_.front().rows) {
      make_durable(row);
    }
  }
  writes_.clear();
  kept_.clear();
  writing_ = false;
}

void Sim::make_durable(const StoreRow& row) {
  if (const auto* plan = std::get_if<PlanRow>(&row)) {
    const auto [found, fresh] = disk_.plans.try_emplace(plan->plan->epoch, *plan);
    if (!fresh && !same_content(*found->second.plan, *plan->plan)) {
      broken(fmt::format("epoch {} was given to two plans", plan->plan->epoch));
    }
    found->second.status = plan->status;
  } else if (const auto* change = std::get_if<SwitchRow>(&row)) {
    trace(fmt::format("  switch to {} is {}", change->to, static_cast<int>(change->state)));
    disk_.switches[change->to] = *change;
    if (change->state == SwitchState::kCommitDecided && is_automatic(change->reason) &&
        change->reason != "rollback") {
      automatic_.push_back(last_end_s_);
    }
  } else if (const auto* decision = std::get_if<DecisionRow>(&row)) {
    disk_.decisions[decision->decision] = *decision;
  } else if (const auto* node = std::get_if<NodeStateRow>(&row)) {
    disk_.nodes[node->node] = *node;
  } else if (const auto* device = std::get_if<DeviceRow>(&row)) {
    disk_.devices[device->device] = *device;
  } else if (const auto* learnt = std::get_if<LearntRow>(&row)) {
    disk_.learnt = *learnt;
  } else if (const auto* automatic = std::get_if<AutomaticSwitchRow>(&row)) {
    disk_.automatic_switches[automatic->epoch] = *automatic;
  } else if (const auto* trial = std::get_if<TrialRow>(&row)) {
    disk_.trial = *trial;
  } else if (const auto* loss = std::get_if<LossRow>(&row)) {
    disk_.loss = *loss;
  } else if (const auto* link = std::get_if<SlowLinkRow>(&row)) {
    disk_.slow_links[{link->from, link->to}] = *link;
  } else if (const auto* late = std::get_if<LateLoaderRow>(&row)) {
    disk_.late_loaders[{late->node, late->index}] = *late;
  } else if (const auto* more = std::get_if<DecisionAmendment>(&row)) {
    if (const auto found = disk_.decisions.find(more->decision); found != disk_.decisions.end()) {
      std::vector<Evidence>& evidence = found->second.evidence;
      for (const Evidence& entry : more->evidence) {
        std::erase_if(evidence, [&](const Evidence& old) { return old.key == entry.key; });
        evidence.push_back(entry);
      }
    }
  } else if (const auto* action = std::get_if<OperatorRow>(&row)) {
    disk_.operators.push_back(*action);
    if (action->action == "auto off") {
      disk_.paused = auto_reason(false, action->who, action->reason);
    } else if (action->action == "auto on") {
      disk_.paused.reset();
    }
  } else if (const auto* event = std::get_if<EventRow>(&row)) {
    trace("  " + event->kind + ": " + event->sentence);
    disk_.events.push_back(*event);
  }
}

}  // namespace tapas::daemon::sim
