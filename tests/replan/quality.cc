// Prints how far the micro-replan is from the best plan: the tables of docs/micro-replan.md.
#include "solver/replan/local_search.h"
#include "solver/replan/micro_replan.h"
#include "tests/replan/annealing.h"
#include "tests/replan/exact.h"
#include "tests/replan/instances.h"
#include "tests/replan/measure.h"
#include "tests/replan/value.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tapas::solver::testing {
namespace {

/// What a method left open on the instances of one row of a table.
class Gaps {
 public:
  void add(const std::string& instance, double gap, double ms) {
    if (gaps_.empty() || gap > *std::max_element(gaps_.begin(), gaps_.end())) {
      worst_instance_ = instance;
    }
    gaps_.push_back(gap);
    ms_.push_back(ms);
  }
  [[nodiscard]] double share_within(double gap) const {
    const auto n = std::count_if(gaps_.begin(), gaps_.end(), [&](double g) { return g <= gap; });
    return 100 * static_cast<double>(n) / static_cast<double>(gaps_.size());
  }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const double gap : gaps_) {
      sum += std::max(gap, 0.0);
    }
    return 100 * sum / static_cast<double>(gaps_.size());
  }
  [[nodiscard]] double worst() const {
    return 100 * std::max(0.0, *std::max_element(gaps_.begin(), gaps_.end()));
  }
  [[nodiscard]] const std::string& worst_instance() const { return worst_instance_; }
  [[nodiscard]] double median_ms() const { return quantile(ms_, 0.5); }
  [[nodiscard]] double p99_ms() const { return quantile(ms_, 0.99); }
  [[nodiscard]] std::size_t count() const { return gaps_.size(); }

 private:
  std::string worst_instance_;
  std::vector<double> gaps_;
  std::vector<double> ms_;
};

constexpr double kOptimal = 1e-9;

struct Options {
  std::uint64_t seeds = 0;
  std::vector<double> ms;
  std::string only;
  bool rivals = false;
};

void progress(const std::string& name) {
  fmt::print(stderr, "\r{:<40}", name);
  std::fflush(stderr);
}

/// Whether the plan breaks no rule of the request; says so otherwise.
bool keeps_rules(const Instance& instance, const std::string& method, const Plan& plan) {
  const std::vector<std::string> found = breaches(instance.job, instance.request, plan);
  for (const std::string& breach : found) {
    fmt::print(stderr, "\n{}, {}: {}\n", instance.name, method, breach);
  }
  return found.empty();
}

void print_small_row(const std::string& family, const std::string& method, const Gaps& gaps) {
  fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {:.4f} | {:.2f} ({}) | {:.2f} |\n", family,
             gaps.count(), method, gaps.share_within(kOptimal), gaps.share_within(1e-3),
             gaps.mean(), gaps.worst(), gaps.worst_instance(), gaps.median_ms());
}

/// Small instances against their proven optimum.
void small(const Options& options) {
  fmt::print(
      "| family | instances | method | optimal % | within 0.1 % | mean gap % | worst gap % | "
      "median ms |\n|---|---|---|---|---|---|---|---|\n");
  std::uint64_t unproven = 0;
  for (const SmallFamily& family : small_families()) {
    if (!options.only.empty() && family.name != options.only) {
      continue;
    }
    std::vector<std::pair<std::string, Gaps>> rows;
    const auto row = [&](const std::string& method) -> Gaps& {
      for (auto& [name, gaps] : rows) {
        if (name == method) {
          return gaps;
        }
      }
      return rows.emplace_back(method, Gaps()).second;
    };
    for (std::uint64_t seed = 1; seed <= options.seeds; ++seed) {
      const Instance instance = small_instance(family.name, seed);
      progress(instance.name);
      Judge judge(instance.job, instance.request);
      std::vector<std::tuple<std::string, Value, double>> answers;
      Plan known = instance.request.current;
      answers.emplace_back("nothing", judge.value(known), 0.0);
      const auto answer = [&](const std::string& method, const Plan& plan, double ms) {
        answers.emplace_back(method, judge.value(plan), ms);
        if (keeps_rules(instance, method, plan) && better(judge.value(plan), judge.value(known))) {
          known = plan;
        }
      };
      for (const double ms : options.ms) {
        const Timed timed = timed_replan(instance, ms, seed);
        answer(fmt::format("search {:g} ms", ms), timed.proposal.plan, timed.ms);
        if (options.rivals) {
          const CpuTimer timer;
          const Plan plan = anneal_for(instance, kTemperatures[0], ms);
          answer(fmt::format("annealing {:g} ms", ms), plan, timer.ms());
        }
      }
      if (options.rivals) {
        for (const auto& [name, run] : rivals(options.ms.front())) {
          const CpuTimer timer;
          const Plan plan = run(instance);
          answer(name, plan, timer.ms());
        }
      }
      const Exact exact = exact_optimum(instance.job, instance.request, known);
      if (!exact.proven) {
        ++unproven;
        fmt::print(stderr, "\n{}: no proof in time, left out\n", instance.name);
        continue;
      }
      for (const auto& [method, value, ms] : answers) {
        row(method).add(instance.name, gap_to(value, exact.value), ms);
      }
    }
    for (const auto& [method, gaps] : rows) {
      print_small_row(family.name, method, gaps);
    }
    std::fflush(stdout);
  }
  progress("");
  if (unproven > 0) {
    fmt::print("\n{} instances without a proof are left out.\n", unproven);
  }
}

/// Large instances against the best plan that anything found.
void large(const Options& options, std::uint32_t replicas, double factor, double anneal_factor) {
  fmt::print(
      "| event | runtime | instances | method | mean gap % | worst gap % | p99 ms | over bound % "
      "|\n|---|---|---|---|---|---|---|---|\n");
  const double longest = *std::max_element(options.ms.begin(), options.ms.end());
  const double base = *std::min_element(options.ms.begin(), options.ms.end());
  for (std::uint32_t event = 1; event <= kEvents; ++event) {
    for (const Runtime runtime : {Runtime::kFree, Runtime::kFrozen, Runtime::kTied}) {
      const std::string name = fmt::format("E{} {}", event, to_string(runtime));
      if (name.find(options.only) == std::string::npos) {
        continue;
      }
      std::map<std::string, Gaps> rows;
      std::vector<std::string> order;
      std::map<std::string, double> over;
      for (std::uint64_t seed = 1; seed <= options.seeds; ++seed) {
        const Instance instance = large_instance(event, seed, runtime, replicas);
        progress(instance.name);
        Judge judge(instance.job, instance.request);
        Value best = judge.value(instance.request.current);
        struct Answer {
          std::string method;
          Value value;
          double ms = 0;
        };
        std::vector<Answer> answers{{"nothing", best, 0}};
        double bound = 0;
        const auto answer = [&](const std::string& method, const Plan& plan, double ms) {
          const Value value = judge.value(plan);
          answers.push_back({method, value, ms});
          best = keeps_rules(instance, method, plan) && better(value, best) ? value : best;
        };
        const Timed first = first_answer(instance, seed);
        answer("first answer", first.proposal.plan, first.ms);
        for (const double ms : options.ms) {
          const Timed timed = timed_replan(instance, ms, seed);
          answer(fmt::format("search {:g} ms", ms), timed.proposal.plan, timed.ms);
          bound = std::max(bound, timed.proposal.lower_bound_s);
        }
        if (options.rivals) {
          for (const auto& [method, run] : rivals(longest)) {
            const CpuTimer timer;
            const Plan plan = run(instance);
            answer(method, plan, timer.ms());
          }
          answer(fmt::format("annealing {:g} ms", longest), best_anneal(instance, longest),
                 longest);
        }
        const auto reference = [&](const Plan& plan) {
          const Value value = judge.value(plan);
          best = better(value, best) ? value : best;
        };
        reference(timed_replan(instance, base * factor, seed + 1).proposal.plan);
        if (anneal_factor > 0) {
          reference(best_anneal(instance, base * anneal_factor));
        }
        for (const Answer& a : answers) {
          if (!rows.contains(a.method)) {
            order.push_back(a.method);
          }
          rows[a.method].add(instance.name, gap_to(a.value, best), a.ms);
          over[a.method] += a.value.step_s / bound - 1;
        }
      }
      for (const std::string& method : order) {
        const Gaps& gaps = rows[method];
        fmt::print("| E{} | {} | {} | {} | {:.3f} | {:.2f} ({}) | {:.2f} | {:.1f} |\n", event,
                   to_string(runtime), gaps.count(), method, gaps.mean(), gaps.worst(),
                   gaps.worst_instance(), gaps.p99_ms(),
                   100 * over[method] / static_cast<double>(gaps.count()));
      }
      std::fflush(stdout);
    }
  }
  progress("");
}

/// A way to a plan within so many milliseconds.
struct Method {
  std::string name;
  std::function<Plan(const Instance&, double ms, std::uint64_t seed)> run;
};

/// The search whole, without one mechanism each, and its rivals.
std::vector<Method> methods() {
  std::vector<Method> all;
  const auto add = [&](const std::string& name, const Mechanisms& mechanisms) {
    all.push_back({name, [mechanisms](const Instance& instance, double ms, std::uint64_t seed) {
                     return timed_replan(instance, ms, seed, mechanisms).proposal.plan;
                   }});
  };
  add("whole", {});
  add("depth 0: nodes stay", {.depth = 0});
  add("depth 1: single exchanges", {.depth = 1});
  add("no gain criterion", {.gain_criterion = false});
  add("candidates not stratified", {.stratified = false});
  add("raw worth, no guide", {.potential = false});
  add("no split within an exchange", {.split_touched = false});
  add("no exact split", {.exact_split = false});
  add("slow rings not gathered", {.gather = false});
  add("slow nodes not carried along rows", {.carry = false});
  add("no stage thinned", {.thin = false});
  add("no stage lightened", {.lighten = false});
  add("not polished", {.polish = false});
  add("no kicks", {.kicks = false});
  add("no annealing", {.annealing = false});
  add("neither kicks nor annealing", {.kicks = false, .annealing = false});
  all.push_back({"rival: greedy shifts", [](const Instance& instance, double ms, std::uint64_t) {
                   return rivals(ms)[0].second(instance);
                 }});
  all.push_back({"rival: rows split anew", [](const Instance& instance, double ms, std::uint64_t) {
                   return rivals(ms)[1].second(instance);
                 }});
  all.push_back({"rival: annealing, 4 times the time",
                 [](const Instance& instance, double ms, std::uint64_t) {
                   return best_anneal(instance, ms);
                 }});
  return all;
}

/// What each method leaves open on large and small instances, several runs of the search each.
void ablation(std::uint64_t seeds) {
  constexpr std::uint64_t kRuns = 3;
  constexpr double kLargeMs = 10;
  constexpr double kSmallMs = 20;
  constexpr double kLongMs = 1000;
  const std::vector<Method> all = methods();
  struct Row {
    Gaps free;
    Gaps frozen;
    Gaps small;
  };
  std::vector<Row> rows(all.size());
  // [method * kRuns + run]; the best allowed plan of all ends up in `known`.
  const auto answers = [&](const Instance& instance, Judge& judge, double ms, Plan& known) {
    progress(instance.name);
    std::vector<Value> values;
    for (const Method& method : all) {
      for (std::uint64_t run = 1; run <= kRuns; ++run) {
        Plan plan = method.run(instance, ms, run);
        values.push_back(judge.value(plan));
        if (keeps_rules(instance, method.name, plan) && better(values.back(), judge.value(known))) {
          known = std::move(plan);
        }
      }
    }
    return values;
  };
  const auto note = [&](Gaps Row::*part, const std::string& instance,
                        const std::vector<Value>& values, const Value& best, double ms) {
    for (std::size_t k = 0; k < values.size(); ++k) {
      (rows[k / kRuns].*part).add(instance, gap_to(values[k], best), ms);
    }
  };
  for (std::uint32_t event = 1; event <= kEvents; ++event) {
    for (const Runtime runtime : {Runtime::kFree, Runtime::kFrozen}) {
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const Instance instance = large_instance(event, seed, runtime);
        Judge judge(instance.job, instance.request);
        Plan known = timed_replan(instance, kLongMs, kRuns + 1).proposal.plan;
        const std::vector<Value> values = answers(instance, judge, kLargeMs, known);
        note(runtime == Runtime::kFree ? &Row::free : &Row::frozen, instance.name, values,
             judge.value(known), kLargeMs);
      }
    }
  }
  for (const SmallFamily& family : small_families()) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      const Instance instance = small_instance(family.name, seed);
      Judge judge(instance.job, instance.request);
      Plan known = instance.request.current;
      const std::vector<Value> values = answers(instance, judge, kSmallMs, known);
      const Exact exact = exact_optimum(instance.job, instance.request, known);
      if (exact.proven) {
        note(&Row::small, instance.name, values, exact.value, kSmallMs);
      } else {
        fmt::print(stderr, "\n{}: no proof in time, left out\n", instance.name);
      }
    }
  }
  progress("");
  fmt::print(
      "| search | mean gap % free | mean gap % frozen | worst gap % | small optimal % | small mean "
      "gap % |\n|---|---|---|---|---|---|\n");
  for (std::size_t k = 0; k < all.size(); ++k) {
    const Row& row = rows[k];
    const Gaps& worse = row.free.worst() > row.frozen.worst() ? row.free : row.frozen;
    fmt::print("| {} | {:.3f} | {:.3f} | {:.2f} ({}) | {:.1f} | {:.3f} |\n", all[k].name,
               row.free.mean(), row.frozen.mean(), worse.worst(), worse.worst_instance(),
               row.small.share_within(kOptimal), row.small.mean());
  }
  fmt::print("\n{} runs on instances of E1 to E8 free, {} frozen, {} of small families.\n",
             rows[0].free.count(), rows[0].frozen.count(), rows[0].small.count());
}

}  // namespace
}  // namespace tapas::solver::testing

int main(int argc, char** argv) {
  using namespace tapas::solver::testing;
  CLI::App app("Measures the micro-replan against exact optima and other methods.",
               "tapas-replan-quality");
  bool small_ones = false;
  bool large_ones = false;
  bool parts = false;
  std::uint32_t devices = 1024;
  double factor = 100;
  double anneal_factor = 300;
  Options options;
  app.add_flag("--small", small_ones, "small families against the proven optimum");
  app.add_flag("--large", large_ones, "E1 to E8 against the best plan known");
  app.add_flag("--ablation", parts,
               "the search without each of its mechanisms: E1 to E8 in 10 ms, small ones in 20 ms");
  app.add_option("--seeds", options.seeds,
                 "instances of each family or event [small 100, large 3, ablation 2]");
  app.add_option("--ms", options.ms, "time limits of the search [20,100 or 2,10,50]")
      ->delimiter(',');
  app.add_option("--only", options.only, "a family, or part of \"E5 frozen\"");
  app.add_flag("--rivals", options.rivals, "greedy shifts, splitting anew and annealing too");
  app.add_option("--devices", devices, "of the large instances, a multiple of 128")
      ->check(CLI::Range(256, 65536));
  app.add_option("--long", factor, "best known: so many times the shortest limit");
  app.add_option("--anneal", anneal_factor, "best known: the same for annealing, 0 = none");
  CLI11_PARSE(app, argc, argv);
  if (small_ones) {
    Options mine = options;
    mine.seeds = mine.seeds > 0 ? mine.seeds : 100;
    mine.ms = mine.ms.empty() ? std::vector<double>{20, 100} : mine.ms;
    small(mine);
  }
  if (large_ones) {
    Options mine = options;
    mine.seeds = mine.seeds > 0 ? mine.seeds : 3;
    mine.ms = mine.ms.empty() ? std::vector<double>{2, 10, 50} : mine.ms;
    large(mine, devices / 128, factor, anneal_factor);
  }
  if (parts) {
    ablation(options.seeds > 0 ? options.seeds : 2);
  }
  if (!small_ones && !large_ones && !parts) {
    fmt::print("{}", app.help());
  }
  return 0;
}
