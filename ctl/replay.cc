#include "ctl/replay.h"

#include "ctl/table.h"
#include "daemon/core/watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace tapas::ctl {
namespace {

// What one odd step (the first after a restart) takes at most, in usual steps.
constexpr double kOddStep = 32;

solver::Cluster cluster_of(const Trace& trace) {
  solver::Cluster cluster;
  cluster.device_types.emplace_back();
  cluster.node_types.emplace_back().devices = 1;
  for (const Trace::Rank& rank : trace.ranks) {
    cluster.nodes.emplace_back().name = !rank.name.empty() ? rank.name
                                        : trace.by_rank()  ? fmt::format("rank-{}", rank.number)
                                                           : "job";
  }
  return cluster;
}

daemon::Roles roles_of(const Trace& trace, const solver::Cluster& cluster) {
  std::vector<daemon::Role> roles;
  for (const Trace::Rank& rank : trace.ranks) {
    roles.push_back({true, rank.replica, rank.stage, 1.0});
  }
  return {cluster, std::move(roles)};
}

class Replayer {
 public:
  explicit Replayer(const Trace& trace)
      : cluster_(cluster_of(trace)),
        roles_(roles_of(trace, cluster_)),
        watch_(cluster_.device_count()) {
    watch_.follow(roles_);
    step_.ranks.resize(cluster_.device_count());
  }

  void add(const Trace::Row& row) {
    daemon::RankStep& rank = step_.ranks[row.rank];
    step_.step = row.step;
    step_.flags |= row.plain ? 0U : 1U;
    ++step_.count;
    rank = {true, row.wall_s, row.compute_s, 0, row.input_s, row.tokens};
    longest_s_ = std::max(longest_s_, row.wall_s);
  }

  /// All rows of the step are there.
  void judge() {
    time_s_ += longest_s_;
    for (daemon::RankStep& rank : step_.ranks) {
      rank.end_s = time_s_;
    }
    if (watch_.observe(step_)) {
      note_ends();
      if (watch_.verdict_due()) {
        note_verdict();
      }
    }
    step_.flags = step_.count = 0;
    std::fill(step_.ranks.begin(), step_.ranks.end(), daemon::RankStep{});
    longest_s_ = 0;
  }

  std::vector<Episode> take() { return std::move(episodes_); }

 private:
  void note_verdict() {
    daemon::Verdict verdict = daemon::attribute(watch_.findings(), roles_, cluster_);
    if (verdict.cause != daemon::Cause::kNothing) {
      daemon::take_note(watch_, verdict);
      episodes_.push_back({step_.step, std::move(verdict), std::nullopt});
    }
  }

  template <typename Matches>
  void end(Matches matches) {
    for (Episode& episode : episodes_) {
      if (!episode.end_step && matches(episode.verdict)) {
        episode.end_step = step_.step;
      }
    }
  }

  void note_ends() {
    static_cast<void>(watch_.take_moved());
    if (!watch_.take_recovered().empty()) {
      end([this](const daemon::Verdict& verdict) {
        return !verdict.culprits.empty() &&
               std::all_of(verdict.culprits.begin(), verdict.culprits.end(), [&](const auto& node) {
                 return std::all_of(node.ranks.begin(), node.ranks.end(),
                                    [&](RankId rank) { return watch_.slowdown(rank) == 1.0; });
               });
      });
    }
    for (const std::uint32_t stage : watch_.take_recovered_stages()) {
      end([stage](const daemon::Verdict& verdict) {
        return std::count(verdict.stages.begin(), verdict.stages.end(), stage) > 0;
      });
    }
    if (watch_.take_job_recovered()) {
      end([](const daemon::Verdict& verdict) {
        return verdict.in_seconds && verdict.cause != daemon::Cause::kInput;
      });
    }
    if (!watch_.take_input_recovered().empty()) {
      end([this](const daemon::Verdict& verdict) {
        return !verdict.late.empty() &&
               std::all_of(verdict.late.begin(), verdict.late.end(), [&](const auto& node) {
                 return std::none_of(node.ranks.begin(), node.ranks.end(),
                                     [&](RankId rank) { return watch_.is_late(rank); });
               });
      });
    }
    if (watch_.take_rotating_recovered()) {
      end([](const daemon::Verdict& verdict) { return verdict.cause == daemon::Cause::kData; });
    }
  }

  const solver::Cluster cluster_;
  const daemon::Roles roles_;
  daemon::Watch watch_;
  daemon::WholeStep step_;
  double longest_s_ = 0;
  double time_s_ = 0;
  std::vector<Episode> episodes_;
};

/// The steps that a mean stands for. A rise that one odd step may explain is put into one step;
/// when it was no odd step the next row confirms it.
void add_steps(Replayer& replayer, const Trace::Row& row, const Trace::Row& before) {
  const auto steps = std::max<std::uint64_t>(row.step - before.step, 1);
  const double usual_s = std::min(row.wall_s, before.wall_s);
  const double extra_s = (row.wall_s - usual_s) * static_cast<double>(steps);
  const bool odd = extra_s <= kOddStep * usual_s;
  for (std::uint64_t step = row.step + 1 - steps; step <= row.step; ++step) {
    Trace::Row one = row;
    one.step = step;
    if (odd) {
      one.wall_s = usual_s + (step == row.step ? extra_s : 0);
    }
    replayer.add(one);
    replayer.judge();
  }
}

std::string levels_text(const daemon::Verdict& verdict) {
  const auto level = [&](double value) {
    return verdict.in_seconds ? format_seconds(value) : fmt::format("{:.3f}", value);
  };
  return fmt::format("{} before, {} since; {:.1f} standard errors beyond what is usual",
                     level(verdict.before), level(verdict.after), verdict.confidence);
}

std::string ranks_text(const Trace& trace, const std::vector<RankId>& ranks) {
  constexpr std::size_t kMost = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, ranks.size()); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", trace.ranks[ranks[i].value()].number);
  }
  return text + (ranks.size() > kMost ? ", ..." : "");
}

json::Value numbers(const Trace& trace, const std::vector<RankId>& ranks) {
  json::Value out = json::Value::array();
  for (const RankId rank : ranks) {
    out.push_back(trace.ranks[rank.value()].number);
  }
  return out;
}

}  // namespace

std::vector<Episode> replay(const Trace& trace, const ReplayOptions& options,
                            const ReplayProgress& progress) {
  Replayer replayer(trace);
  const std::vector<Trace::Row>& rows = trace.rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (options.averaged && !trace.by_rank() && i > 0) {
      add_steps(replayer, rows[i], rows[i - 1]);
    } else {
      replayer.add(rows[i]);
      if (i + 1 == rows.size() || rows[i + 1].step != rows[i].step) {
        replayer.judge();
      }
    }
    if (i % 1024 == 0) {
      progress(static_cast<double>(i) / static_cast<double>(rows.size()));
    }
  }
  return replayer.take();
}

std::string replay_text(const Trace& trace, const std::vector<Episode>& episodes) {
  std::string text;
  for (const Episode& episode : episodes) {
    const daemon::Verdict& verdict = episode.verdict;
    const std::string end = episode.end_step ? fmt::format("over at step {}", *episode.end_step)
                                             : std::string("still so at the end");
    text += fmt::format("step {}: {}\n  {}; {}\n", episode.verdict_step, verdict.sentence,
                        levels_text(verdict), end);
    if (!verdict.equals.empty()) {
      text += fmt::format("  compared with ranks {}\n", ranks_text(trace, verdict.equals));
    }
    text += fmt::format("  advice: {}\n", daemon::advice(verdict.cause));
  }
  const std::string ranks =
      trace.by_rank() ? format_count(trace.ranks.size(), "rank") : "step times of the job only";
  return text + fmt::format("{}, {}: {}\n", format_count(trace.steps, "step"), ranks,
                            episodes.empty() ? "nothing to report"
                                             : format_count(episodes.size(), "episode"));
}

json::Value replay_json(const Trace& trace, const std::vector<Episode>& episodes) {
  json::Value out = {{"schema", "tapas.replay/1"},
                     {"steps", trace.steps},
                     {"ranks", trace.by_rank() ? trace.ranks.size() : 0},
                     {"episodes", json::Value::array()}};
  for (const Episode& episode : episodes) {
    const daemon::Verdict& verdict = episode.verdict;
    json::Value entry = {{"cause", daemon::to_string(verdict.cause)},
                         {"since_step", verdict.since.step},
                         {"verdict_step", episode.verdict_step},
                         {"end_step", nullptr},
                         {"slowdown", verdict.slowdown},
                         {verdict.in_seconds ? "level_before_s" : "level_before", verdict.before},
                         {verdict.in_seconds ? "level_after_s" : "level_after", verdict.after},
                         {"confidence_sigma", verdict.confidence},
                         {"culprit_ranks", json::Value::array()},
                         {"compared_ranks", numbers(trace, verdict.equals)},
                         {"stages", verdict.stages},
                         {"advice", daemon::advice(verdict.cause)},
                         {"sentence", verdict.sentence}};
    if (episode.end_step) {
      entry["end_step"] = *episode.end_step;
    }
    const auto& named = verdict.late.empty() ? verdict.culprits : verdict.late;
    for (const daemon::Culprit& culprit : named) {
      for (const json::Value& rank : numbers(trace, culprit.ranks)) {
        entry["culprit_ranks"].push_back(rank);
      }
    }
    out["episodes"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace tapas::ctl
