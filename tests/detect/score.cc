#include "tests/detect/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

namespace tapas::daemon::testing {
namespace {

bool right_cause(const Call& call, const Trace& trace) {
  switch (trace.spec().fault) {
    case Fault::kNone:
      return false;
    case Fault::kDevice:
    case Fault::kHost:
    case Fault::kTwoDevices:
    case Fault::kFlapping:
    case Fault::kThermal:
      return !call.ranks.empty();
    case Fault::kHeavyStage:
      return call.cause == Cause::kHeavyStage &&
             call.stages == std::vector<std::uint32_t>{trace.heavy_stage()};
    case Fault::kData:
    case Fault::kPauses:
      return call.cause == Cause::kData;
    case Fault::kJobWide:
      return call.cause == Cause::kJobWide;
    case Fault::kInput:
      return call.cause == Cause::kInput;
  }
  return false;
}

/// One rule's calls against the trace's answer.
class Judge {
 public:
  explicit Judge(const Trace& trace) : trace_(trace) {}

  void hear(std::uint64_t step, const Call& call) {
    const auto note = [&] {
      if (out_.first_wrong.empty()) {
        out_.first_wrong =
            fmt::format("step {}: {}: {}", step, to_string(call.cause), call.sentence);
      }
    };
    if (trace_.spec().fault == Fault::kNone || step < trace_.fault_step()) {
      ++out_.false_calls;
      out_.false_names |= !call.ranks.empty();
      early_.insert(call.ranks.begin(), call.ranks.end());
      note();
      return;
    }
    if (!out_.spoke) {
      out_.spoke = true;
      out_.delay = step - trace_.fault_step() + 1;
      first_right_ = right_cause(call, trace_);
      if (!first_right_) {
        note();
      }
    }
    const std::vector<RankId>& culprits = trace_.culprits();
    for (const RankId rank : call.ranks) {
      named_.insert(rank);
      if (!std::binary_search(culprits.begin(), culprits.end(), rank) && early_.count(rank) == 0) {
        out_.victim = true;
        note();
      }
    }
  }

  Outcome outcome() {
    const bool all = std::all_of(trace_.culprits().begin(), trace_.culprits().end(),
                                 [&](RankId rank) { return named_.count(rank) > 0; });
    out_.right = first_right_ && all && !out_.victim;
    out_.quiet_steps =
        trace_.spec().fault == Fault::kNone ? trace_.steps() : trace_.spec().healthy_steps;
    return out_;
  }

 private:
  const Trace& trace_;
  Outcome out_;
  bool first_right_ = false;
  std::set<RankId> named_;
  std::set<RankId> early_;  ///< counted as false already
};

}  // namespace

std::vector<Outcome> judge(const TraceSpec& spec, const Rules& rules) {
  Trace trace(spec);
  std::vector<std::unique_ptr<Rule>> asked;
  std::vector<Judge> judges;
  for (const auto& make : rules) {
    asked.push_back(make(trace));
    judges.emplace_back(trace);
  }
  for (std::uint64_t step = 1; step <= trace.steps(); ++step) {
    const WholeStep& whole = trace.next();
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (trace.new_session()) {
        asked[i]->new_session();
      }
      if (const auto call = asked[i]->observe(whole)) {
        judges[i].hear(step, *call);
      }
    }
  }
  std::vector<Outcome> outcomes;
  for (Judge& one : judges) {
    outcomes.push_back(one.outcome());
  }
  return outcomes;
}

void Tally::add(const Outcome& outcome) {
  ++traces_;
  spoke_ += outcome.spoke ? 1 : 0;
  right_ += outcome.right ? 1 : 0;
  victims_ += outcome.victim ? 1 : 0;
  quiet_steps_ += outcome.quiet_steps;
  false_calls_ += outcome.false_calls;
  false_names_ += outcome.false_names ? 1 : 0;
  if (outcome.right) {
    delays_.push_back(outcome.delay);
  }
}

double Tally::percent(std::size_t count) const {
  return traces_ == 0 ? 0 : 100.0 * static_cast<double>(count) / static_cast<double>(traces_);
}

double Tally::delay(double quantile) const {
  if (delays_.empty()) {
    return 0;
  }
  std::vector<std::uint64_t> sorted = delays_;
  std::sort(sorted.begin(), sorted.end());
  const auto at = static_cast<std::size_t>(quantile * static_cast<double>(sorted.size()));
  return static_cast<double>(sorted[std::min(at, sorted.size() - 1)]);
}

double Tally::false_per_million() const {
  return quiet_steps_ == 0
             ? 0
             : 1e6 * static_cast<double>(false_calls_) / static_cast<double>(quiet_steps_);
}

void for_each_of(std::size_t count, const std::function<void(std::size_t)>& work,
                 const std::function<void(std::size_t)>& done) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  const auto run = [&] {
    for (std::size_t at = next++; at < count; at = next++) {
      work(at);
      const std::lock_guard lock(mutex);
      done(at);
    }
  };
  std::thread other(run);
  run();
  other.join();
}

}  // namespace tapas::daemon::testing
