#include "solver/cost/pipeline.h"

#include "base/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tapas::solver {
namespace {

constexpr double kNotYet = -1;

/// What a device group of an interleaved pipeline does, as Megatron orders it: rounds of one
/// microbatch per group, chunk by chunk; forwards first, then forward and backward in turn.
class InterleavedOrder {
 public:
  struct Step {
    bool forward = true;
    std::uint32_t chunk = 0;
    std::uint32_t microbatch = 0;
  };

  InterleavedOrder(std::uint32_t groups, std::uint32_t chunks, std::uint32_t group,
                   std::uint32_t microbatches)
      : groups_(groups),
        chunks_(chunks),
        total_(microbatches * chunks),
        warm_(std::min(total_, 2 * (groups - 1 - group) + (chunks - 1) * groups)) {}

  [[nodiscard]] std::uint32_t size() const { return 2 * total_; }
  [[nodiscard]] Step operator[](std::uint32_t index) const {
    const std::uint32_t alternating = 2 * (total_ - warm_);
    if (index < warm_) {
      return forward(index);
    }
    if (index < warm_ + alternating) {
      const std::uint32_t pair = (index - warm_) / 2;
      return (index - warm_) % 2 == 0 ? forward(warm_ + pair) : backward(pair);
    }
    return backward(index - total_);
  }

 private:
  [[nodiscard]] Step forward(std::uint32_t k) const {
    const std::uint32_t round = groups_ * chunks_;
    return {true, k % round / groups_, k / round * groups_ + k % groups_};
  }
  [[nodiscard]] Step backward(std::uint32_t k) const {
    Step step = forward(k);
    return {false, chunks_ - 1 - step.chunk, step.microbatch};
  }

  std::uint32_t groups_;
  std::uint32_t chunks_;
  std::uint32_t total_;
  std::uint32_t warm_;
};

}  // namespace

std::uint32_t warm_up(Schedule schedule, std::uint32_t stages, std::uint32_t stage,
                      std::uint32_t microbatches) {
  return schedule == Schedule::kGpipe ? microbatches : std::min(stages - 1 - stage, microbatches);
}

std::uint32_t in_flight(Schedule schedule, std::uint32_t stages, std::uint32_t stage,
                        std::uint32_t microbatches) {
  return schedule == Schedule::kGpipe ? microbatches : std::min(stages - stage, microbatches);
}

std::vector<std::vector<std::uint32_t>> held_chunks(Schedule schedule, std::uint32_t groups,
                                                    std::uint32_t chunks, std::uint32_t group,
                                                    std::uint32_t microbatches) {
  if (chunks == 1) {
    return {{in_flight(schedule, groups, group, microbatches)}};
  }
  // Warming up takes less than two rounds, and the third is like all that follow.
  const InterleavedOrder order(groups, chunks, group, std::min(microbatches, 3 * groups));
  std::vector<std::vector<std::uint32_t>> moments;
  std::vector<std::uint32_t> held(chunks, 0);
  const auto covers = [&](const std::vector<std::uint32_t>& a,
                          const std::vector<std::uint32_t>& b) {
    return std::equal(a.begin(), a.end(), b.begin(),
                      [](std::uint32_t x, std::uint32_t y) { return x >= y; });
  };
  for (std::uint32_t k = 0; k < order.size(); ++k) {
    const InterleavedOrder::Step step = order[k];
    if (!step.forward) {
      --held[step.chunk];
      continue;
    }
    ++held[step.chunk];
    if (std::none_of(moments.begin(), moments.end(),
                     [&](const auto& moment) { return covers(moment, held); })) {
      std::erase_if(moments, [&](const auto& moment) { return covers(held, moment); });
      moments.push_back(held);
    }
  }
  return moments;
}

bool runs_microbatches(std::uint32_t groups, std::uint32_t chunks, std::uint32_t microbatches) {
  return microbatches > 0 && (chunks == 1 || microbatches % groups == 0);
}

std::uint32_t PipelineClock::skip(std::uint32_t round, std::uint32_t left) {
  constexpr std::uint32_t kEvery = 4;  // looking costs about half a round
  constexpr double kRounding = 1e-14;
  if (left == 0 || round % kEvery < kEvery - 2) {
    return 0;
  }
  if (round % kEvery == kEvery - 2) {
    free_before_ = free_;
    pending_before_ = pending_;
    return 0;
  }
  const double period = free_[0] - free_before_[0];
  const double slack = kRounding * free_[0];
  for (std::size_t s = 0; s < free_.size(); ++s) {
    if (std::abs(free_[s] - free_before_[s] - period) > slack ||
        (s > 0 && std::abs(pending_[s] - pending_before_[s] - period) > slack)) {
      return 0;
    }
  }
  for (std::size_t s = 0; s < free_.size(); ++s) {
    free_[s] += left * period;
    pending_[s] += s > 0 ? left * period : 0;
  }
  return left;
}

template <typename Record>
void PipelineClock::run_plain(const Pipeline& p, std::uint32_t m, bool skip_steady,
                              const Record& record) {
  const std::uint32_t stages = p.stages();
  free_.assign(stages, 0);
  warm_.resize(stages);
  pending_.assign(stages + 1, 0);
  const std::uint32_t most = warm_up(p.schedule, stages, 0, m);
  arrival_.assign(most, 0);
  const auto forward = [&](std::uint32_t s, std::uint32_t i, double input) {
    const double start = std::max(free_[s], input);
    free_[s] = start + p.forward_s[s];
    record(s, i, true, start, free_[s]);
    return s + 1 < stages ? free_[s] + p.forward_delay_s[s] : 0;
  };
  for (std::uint32_t s = 0; s < stages; ++s) {
    warm_[s] = warm_up(p.schedule, stages, s, m);
    for (std::uint32_t i = 0; i < warm_[s]; ++i) {
      arrival_[i] = forward(s, i, arrival_[i]);
    }
    // The next stage warms up for one forward less, so this one's last output waits for it.
    pending_[s + 1] = warm_[s] > 0 ? arrival_[warm_[s] - 1] : 0;
  }
  for (std::uint32_t i = 0; i < m; ++i) {
    // From the last stage to the first: its forward takes what the stage before sent a round ago,
    // its backward what the stage behind sends in this one.
    double gradient = 0;
    for (std::uint32_t s = stages; s-- > 0;) {
      if (i + warm_[s] < m) {
        pending_[s + 1] = forward(s, i + warm_[s], pending_[s]);
      }
      const double start = std::max(free_[s], gradient);
      free_[s] = start + p.backward_s[s];
      record(s, i, false, start, free_[s]);
      gradient = s > 0 ? free_[s] + p.backward_delay_s[s - 1] : 0;
    }
    if (skip_steady && i + warm_[0] < m) {
      i += skip(i, m - warm_[0] - 1 - i);
    }
  }
  ends_.assign(free_.begin(), free_.end());
}

template <typename Record>
void PipelineClock::run_interleaved(const Pipeline& p, std::uint32_t m, const Record& record) {
  const std::uint32_t stages = p.stages();
  const std::uint32_t groups = p.groups();
  TAPAS_CHECK(runs_microbatches(groups, p.chunks, m), "{} microbatches on {} interleaved groups", m,
              groups);
  const std::size_t inputs = std::size_t{stages} * m;
  arrival_.assign(2 * inputs, kNotYet);
  std::fill_n(arrival_.begin(), m, 0.0);  // the first stage's forwards wait for nobody
  free_.assign(groups, 0);
  next_.assign(groups, 0);
  ends_.assign(stages, 0);
  ready_.clear();
  for (std::uint32_t g = groups; g-- > 0;) {
    ready_.push_back(g);
  }
  std::size_t left = 2 * inputs;
  while (!ready_.empty()) {
    const std::uint32_t g = ready_.back();
    ready_.pop_back();
    const InterleavedOrder order(groups, p.chunks, g, m);
    while (next_[g] < order.size()) {
      const InterleavedOrder::Step step = order[next_[g]];
      const std::uint32_t k = step.chunk * groups + g;
      const double input =
          arrival_[(step.forward ? 0 : inputs) + std::size_t{k} * m + step.microbatch];
      if (input == kNotYet) {
        break;
      }
      const double start = std::max(free_[g], input);
      const double end = start + (step.forward ? p.forward_s[k] : p.backward_s[k]);
      free_[g] = end;
      record(k, step.microbatch, step.forward, start, end);
      ++next_[g];
      --left;
      if (!step.forward) {
        ends_[k] = end;
      }
      // Forward goes on to the stage behind, at the last stage it turns into its own backward.
      std::uint32_t taker = k;
      double arrives = end;
      if (step.forward && k + 1 < stages) {
        taker = k + 1;
        arrives += p.forward_delay_s[k];
      } else if (!step.forward && k > 0) {
        taker = k - 1;
        arrives += p.backward_delay_s[k - 1];
      } else if (!step.forward) {
        continue;
      }
      const bool to_forward = step.forward && k + 1 < stages;
      arrival_[(to_forward ? 0 : inputs) + std::size_t{taker} * m + step.microbatch] = arrives;
      if (taker % groups != g) {
        ready_.push_back(taker % groups);
      }
    }
  }
  TAPAS_CHECK(left == 0, "an interleaved schedule of {} groups came to a stop", groups);
}

template <typename Record>
void PipelineClock::run(const Pipeline& pipeline, std::uint32_t microbatches, bool skip_steady,
                        const Record& record) {
  if (pipeline.chunks > 1) {
    run_interleaved(pipeline, microbatches, record);
  } else {
    run_plain(pipeline, microbatches, skip_steady, record);
  }
}

std::span<const double> PipelineClock::ends_s(const Pipeline& pipeline,
                                              std::uint32_t microbatches) {
  run(pipeline, microbatches, true, [](auto&&...) {});
  return ends_;
}

std::vector<Action> PipelineClock::timeline(const Pipeline& pipeline, std::uint32_t microbatches) {
  std::vector<Action> actions;
  actions.reserve(std::size_t{2} * pipeline.stages() * microbatches);
  run(pipeline, microbatches, false,
      [&](std::uint32_t stage, std::uint32_t microbatch, bool forward, double start, double end) {
        actions.push_back({stage, microbatch, forward, start, end});
      });
  return actions;
}

double pipeline_time_s(const Pipeline& pipeline, std::uint32_t microbatches) {
  PipelineClock clock;
  const std::span<const double> ends = clock.ends_s(pipeline, microbatches);
  return *std::max_element(ends.begin(), ends.end());
}

}  // namespace tapas::solver
