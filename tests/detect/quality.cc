// Prints what the detector finds, how soon, and what it says without cause, beside other rules: the
// tables of docs/detection.md.
#include "tests/detect/links.h"
#include "tests/detect/score.h"
#include "tests/detect/trace.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace tapas::daemon::testing {
namespace {

const std::vector<std::string> kNames = {"this detector", "2x the median", "score below 0.75",
                                         "change point, then 10 %"};
const Rules kRules = {detector, twice_the_median, relative_score, change_point};

/// Traces that make one row of a table.
struct Group {
  std::string name;
  std::vector<TraceSpec> specs;
};

struct Options {
  std::uint32_t seeds = 0;
  std::uint32_t most_ranks = 4096;
  std::uint64_t first_seed = 1;
  std::vector<double> noises{kNoises.begin(), kNoises.end()};
  bool rivals = true;
  bool wrong = false;
};

std::vector<std::vector<Tally>> run(const std::vector<Group>& groups, const Options& options) {
  std::vector<std::pair<std::size_t, TraceSpec>> work;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const TraceSpec& spec : groups[g].specs) {
      work.emplace_back(g, spec);
    }
  }
  const Rules rules = options.rivals ? kRules : Rules{detector};
  std::vector<std::vector<Tally>> tallies(groups.size(), std::vector<Tally>(rules.size()));
  std::vector<std::vector<Outcome>> outcomes(work.size());
  std::size_t finished = 0;
  for_each_of(
      work.size(), [&](std::size_t i) { outcomes[i] = judge(work[i].second, rules); },
      [&](std::size_t i) {
        const auto& [group, spec] = work[i];
        for (std::size_t rule = 0; rule < rules.size(); ++rule) {
          tallies[group][rule].add(outcomes[i][rule]);
        }
        if (options.wrong && !outcomes[i][0].first_wrong.empty()) {
          fmt::print(stderr, "\r{} seed {} ranks {} noise {} depth {}: {}\n", groups[group].name,
                     spec.seed, spec.ranks, spec.noise, spec.depth, outcomes[i][0].first_wrong);
        }
        fmt::print(stderr, "\r{} of {} traces", ++finished, work.size());
      });
  fmt::print(stderr, "\r{:40}\r", "");
  return tallies;
}

/// No rule that says something without cause once in 10^6 steps of a job finds such a slowness
/// sooner in the mean, even one that knows all levels and how large the rise will be (G. Lorden,
/// Annals of Mathematical Statistics 42, 1971): the logarithm of the steps of all ranks over the
/// information that a step has about it.
double fewest_steps(double depth, double noise, std::uint32_t ranks, std::uint32_t devices) {
  const double rise = std::log1p(depth) / noise;
  const double information = devices * rise * rise / 2;
  return std::max(1.0, std::log(1e6 * ranks / devices) / information);
}

void curves(const Options& options) {
  std::vector<Group> groups;
  for (const double noise : options.noises) {
    for (const double depth : {0.05, 0.1, 0.2, 0.5, 1.0, 2.0}) {
      Group& group = groups.emplace_back();
      group.name =
          fmt::format("{:g} % | {:g} % | {:.0f} / {:.0f}", 100 * noise, 100 * depth,
                      fewest_steps(depth, noise, 64, 1), fewest_steps(depth, noise, 64, 8));
      for (std::uint64_t seed = 0; seed < options.seeds; ++seed) {
        group.specs.push_back(spec_of(seed % 2 == 0 ? Fault::kDevice : Fault::kHost, depth, noise,
                                      options.first_seed + seed, options.most_ranks));
      }
    }
  }
  const auto tallies = run(groups, options);
  fmt::print(
      "One slow device or node:\n\n| noise | slower by | fewest steps: device / node of 8 | right "
      "| "
      "wrong | missed | steps: median / p99 |\n|---|---|---|---|---|---|---|\n");
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Tally& tally = tallies[g][0];
    fmt::print("| {} | {:.1f} % | {:.1f} % | {:.1f} % | {:.0f} / {:.0f} |\n", groups[g].name,
               tally.right_percent(), tally.wrong_percent(), tally.missed_percent(),
               tally.delay(0.5), tally.delay(0.99));
  }
  fmt::print("\n{} traces each.\n\n", options.seeds);
}

void faults(const Options& options) {
  std::vector<Group> groups;
  for (std::uint32_t fault = 1; fault < kFaults; ++fault) {
    Group& group = groups.emplace_back();
    group.name = to_string(static_cast<Fault>(fault));
    for (std::uint64_t i = 0; i < options.seeds; ++i) {
      const std::uint64_t seed = options.first_seed + i;
      constexpr std::array<double, 3> kDepths = {0.2, 0.5, 1.0};
      const auto kind = static_cast<Fault>(fault);
      const double depth = kind == Fault::kFlapping  ? 0.6
                           : kind == Fault::kThermal ? 0.2
                                                     : kDepths[seed % 3];
      group.specs.push_back(spec_of(kind, depth, options.noises[seed % options.noises.size()], seed,
                                    options.most_ranks));
    }
  }
  const auto tallies = run(groups, options);
  fmt::print(
      "Faults of 20 to 100 % (flapping 60 %, thermal 20 %), noise 0.9 to 11.5 %:\n\n| fault "
      "| rule | right | wrong | missed | healthy rank named | steps: median / p99 "
      "|\n|---|---|---|---|---|---|---|\n");
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t rule = 0; rule < tallies[g].size(); ++rule) {
      const Tally& tally = tallies[g][rule];
      fmt::print("| {} | {} | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % | {:.0f} / {:.0f} |\n",
                 groups[g].name, kNames[rule], tally.right_percent(), tally.wrong_percent(),
                 tally.missed_percent(), tally.victim_percent(), tally.delay(0.5),
                 tally.delay(0.99));
    }
  }
  fmt::print("\n{} traces each.\n\n", options.seeds);
}

/// One slow device where batches are packed, with tokens told and without.
void packed(const Options& options) {
  constexpr std::array<double, 3> kDepths = {0.1, 0.25, 0.5};
  constexpr double kPacked = 0.115;
  std::vector<Group> groups;
  for (const double depth : kDepths) {
    for (const bool hints : {false, true}) {
      Group& group = groups.emplace_back();
      group.name = fmt::format("{:g} % | {}", 100 * depth, hints ? "yes" : "no");
      for (std::uint64_t seed = 0; seed < options.seeds; ++seed) {
        TraceSpec spec = spec_of(Fault::kDevice, depth, kNoises[1], options.first_seed + seed,
                                 std::min(options.most_ranks, 256U));
        spec.packed = kPacked;
        spec.hints = hints;
        group.specs.push_back(spec);
      }
    }
  }
  Options alone = options;
  alone.rivals = false;
  const auto tallies = run(groups, alone);
  fmt::print(
      "A slow device where a replica's batches differ by {:g} %:\n\n| slower by | tokens told | "
      "right | wrong | missed | steps: median / p99 | said before, in {} steps "
      "|\n|---|---|---|---|---|---|---|\n",
      100 * kPacked, tallies[0][0].quiet_steps());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Tally& tally = tallies[g][0];
    fmt::print("| {} | {:.1f} % | {:.1f} % | {:.1f} % | {:.0f} / {:.0f} | {} |\n", groups[g].name,
               tally.right_percent(), tally.wrong_percent(), tally.missed_percent(),
               tally.delay(0.5), tally.delay(0.99), tally.false_calls());
  }
  fmt::print("\n{} traces each.\n\n", options.seeds);
}

void quiet(const Options& options, std::uint64_t rank_steps) {
  std::vector<Group> groups;
  std::uint64_t seed = options.first_seed;  // Each run has its own: what is odd in one counts once.
  for (const double noise : options.noises) {
    for (const std::uint32_t ranks : {64U, 256U, 1024U, 4096U}) {
      if (ranks > options.most_ranks) {
        continue;
      }
      Group& group = groups.emplace_back();
      group.name = fmt::format("{:g} % | {}", 100 * noise, ranks);
      // Half of the steps in young jobs, where most goes wrong.
      std::uint64_t left = rank_steps;
      for (; left > 0; ++seed) {
        TraceSpec spec;
        spec.seed = seed;
        spec.noise = noise;
        spec.ranks = ranks;
        spec.faulty_steps = 0;
        spec.healthy_steps = seed % 10 == 0 ? 4500 : 500;
        left -= std::min<std::uint64_t>(left, std::uint64_t{spec.healthy_steps} * ranks);
        group.specs.push_back(spec);
      }
    }
  }
  const auto tallies = run(groups, options);
  fmt::print(
      "Nothing wrong:\n\n| noise | ranks | jobs | steps | false episodes: {} | with names "
      "|\n|---|---|---|---|---|---|\n",
      fmt::join(kNames, " / "));
  std::vector<Tally> all;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<std::string> calls;
    std::vector<std::string> names;
    for (const Tally& tally : tallies[g]) {
      calls.push_back(fmt::format("{}", tally.false_calls()));
      names.push_back(fmt::format("{}", tally.false_names()));
    }
    fmt::print("| {} | {} | {} | {} | {} |\n", groups[g].name, tallies[g][0].traces(),
               tallies[g][0].quiet_steps(), fmt::join(calls, " / "), fmt::join(names, " / "));
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace tapas::daemon::testing

int main(int argc, char** argv) {
  using namespace tapas::daemon::testing;
  CLI::App app("Measures the detector on made-up runs, beside other rules.",
               "tapas-detect-quality");
  Options options;
  bool only_curves = false;
  bool only_faults = false;
  bool only_quiet = false;
  bool only_packed = false;
  bool only_links = false;
  double rank_steps = 2e7;
  app.add_flag("--curves", only_curves, "one slow device or node: noise and depth");
  app.add_flag("--faults", only_faults, "all kinds of faults, all rules");
  app.add_flag("--quiet", only_quiet, "nothing wrong: false episodes");
  app.add_flag("--packed", only_packed, "packed batches: a slow device, with tokens and without");
  app.add_flag("--links", only_links, "links: NICs, ways, congestion");
  app.add_option("--seeds", options.seeds, "traces of each row [100]")->default_val(100);
  app.add_option("--first-seed", options.first_seed, "the others follow [1]");
  app.add_option("--ranks", options.most_ranks, "at most so many [4096]");
  app.add_option("--rank-steps", rank_steps, "ranks times steps of each row of --quiet [2e7]");
  app.add_option("--noise", options.noises, "noise of a rank in a step [0.009 0.023 0.05 0.115]");
  app.add_flag("!--alone", options.rivals, "without the other rules");
  app.add_flag("--wrong", options.wrong, "print what the detector said wrongly to stderr");
  CLI11_PARSE(app, argc, argv);
  const bool all = !only_curves && !only_faults && !only_quiet && !only_packed && !only_links;
  if (all || only_curves) {
    Options alone = options;
    alone.rivals = false;
    curves(alone);
  }
  if (all || only_faults) {
    faults(options);
  }
  if (all || only_packed) {
    packed(options);
  }
  if (all || only_quiet) {
    quiet(options, static_cast<std::uint64_t>(rank_steps));
  }
  if (all || only_links) {
    fmt::print("{}", link_table(options.seeds, options.first_seed));
  }
  return 0;
}
