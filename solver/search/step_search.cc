#include "solver/search/step_search.h"

#include "solver/search/anneal.h"
#include "solver/search/branch.h"
#include "solver/search/interleave.h"
#include "solver/search/reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

namespace tapas::solver {
namespace {

constexpr double kLargest = std::numeric_limits<double>::max();
// A row whose exact time is this close to the best plan is worth polishing.
constexpr double kPolishWithin = 1.03;
// Bounds are found to this share.
constexpr double kResolution = 2e-4;
// Rows that mix kinds and are worked out in full.
constexpr std::size_t kMixedRealised = 24;
// What finding bounds of rows that mix kinds may cost: stages times layers times kinds, over all
// replica counts; about 60 ns each.
constexpr double kMostMixedWork = 40e6;
// Shares of the branching budget: what one problem gets at most.
constexpr std::uint64_t kBudgetParts = 3;

enum class Verdict { kWork, kMemory, kBound, kOpen };

/// What looking at rows of one spec gave.
struct Look {
  Verdict verdict = Verdict::kOpen;
  double bound_s = 0;
  Found found;
  std::uint64_t timed = 0;
};

class StepSearch {
 public:
  StepSearch(const Job& job, const Fleet& fleet, const SolveOptions& options)
      : job_(job), fleet_(fleet), options_(options) {
    list();
  }

  SearchResult run() {
    const std::vector<std::uint32_t> depths = interleave_depths(job_);
    if (std::find(depths.begin(), depths.end(), 1U) != depths.end()) {
      if (job_.search.anneal) {
        anneal_alike();
      }
      look_at_alike();
      mix();
      branch_open();
    }
    if (depths.back() > 1 && !stopped()) {
      interleave(depths);
    }
    report(1);
    return finish();
  }

 private:
  struct Alike {
    Spec spec;
    double work_s = 0;   ///< the busiest stage does at least its share of the work
    double bound_s = 0;  ///< once looked at
  };
  /// Rows that mix kinds, for one number of replicas and all numbers of stages.
  struct Mixed {
    Spec spec;
    std::unique_ptr<Bench> bench;
    std::uint32_t most_stages = 0;
    std::vector<double> bound_s;    ///< [stages]
    std::vector<double> reached_s;  ///< [stages]: least limit at which a row was possible
    std::vector<Row> row;           ///< [stages]: that row
    bool open = true;
  };
  /// Rows that may still hold a better plan.
  struct Open {
    Spec spec;
    double bound_s = 0;
    bool proven = false;  ///< branch and bound looked at all rows
  };

  void list() {
    std::uint32_t devices = 0;
    for (const Pool& pool : fleet_.pools()) {
      devices += static_cast<std::uint32_t>(pool.nodes.size()) *
                 job_.cluster.node_types[pool.node_type].devices;
    }
    for (std::uint32_t k = 0; k < fleet_.sizes().size(); ++k) {
      const Fleet::Size& size = *fleet_.sizes()[k];
      const std::uint32_t total = size.job.total_microbatches();
      for (const auto& [sharding, table] : size.tables) {
        if (sharding.width == 1 && sharding.sequence_parallel) {
          continue;
        }
        const LayerCost sum = table->sum({0, table->layers()});
        const double once = sum.times.forward_s + sum.times.backward_s + sum.times.forward_comm_s +
                            sum.times.backward_comm_s;
        area_s_ = std::min(area_s_, total * once * sharding.width / devices);
        const std::uint32_t slots = fleet_.slots(sharding);
        const std::uint32_t most = std::min({job_.search.max_stages, table->layers(), slots});
        for (std::uint32_t stages = job_.search.min_stages; stages <= most; ++stages) {
          for (std::uint32_t d = std::min(slots / stages, total); d >= 1; --d) {
            const std::uint32_t share = (total + d - 1) / d;
            alike_.push_back({{k, false, sharding, d, stages, 1}, share * once / stages, 0});
          }
        }
      }
    }
    std::stable_sort(alike_.begin(), alike_.end(),
                     [](const Alike& a, const Alike& b) { return a.work_s < b.work_s; });
    result_.certificate.shapes = alike_.size();
  }

  void for_all(std::size_t count, const std::function<void(std::size_t)>& part) const {
    if (options_.parallel_for) {
      options_.parallel_for(count, part);
    } else {
      for (std::size_t k = 0; k < count; ++k) {
        part(k);
      }
    }
  }

  void keep(const Found& found, std::uint64_t timed) {
    result_.certificate.rows_timed += timed;
    if (found.step_s < result_.best.step_s) {
      result_.best = found;
    }
  }

  /// The best layout of a row, polished when it comes close to `cutoff_s`.
  static Found realise(const Spec& spec, Bench& bench, Row row, double cutoff_s) {
    Found found;
    found.spec = spec;
    found.row = std::move(row);
    found.step_s = bench.times.best_step_s(found.row, &found.layout);
    if (found.step_s < kNever && found.step_s < cutoff_s * kPolishWithin) {
      bench.times.polish(found.row, found.step_s, found.layout);
      found.step_s = bench.times.best_step_s(found.row, &found.layout);
    }
    found.value = found.step_s;
    return found;
  }

  /// Bounds the rows of a spec; when they may hold a better one, finds the best it can.
  Look look(const Alike& alike, double cutoff_s, bool realised) const {
    Look look;
    if (alike.work_s >= cutoff_s) {
      look.verdict = Verdict::kWork;
      look.bound_s = alike.work_s;
      return look;
    }
    Bench bench(fleet_, alike.spec);
    const std::uint32_t stages = alike.spec.stages;
    double high = std::min(cutoff_s, kLargest);
    std::optional<Row> row = reach_alike(bench.costs, 0, stages, high);
    if (!row) {
      const bool fits = high == kLargest || reach_alike(bench.costs, 0, stages, kLargest);
      look.verdict = high < kLargest && fits ? Verdict::kBound : Verdict::kMemory;
      look.bound_s = cutoff_s;
      return look;
    }
    double low = alike.work_s;
    if (high == kLargest) {
      for (high = 1.1 * low; high < kLargest; high *= 2) {
        if (auto found = reach_alike(bench.costs, 0, stages, high)) {
          row = std::move(found);
          break;
        }
        low = high;
      }
    }
    while (high > low * (1 + kResolution)) {
      const double middle = (low + high) / 2;
      if (auto found = reach_alike(bench.costs, 0, stages, middle)) {
        row = std::move(found);
        high = middle;
      } else {
        low = middle;
      }
    }
    look.bound_s = low;
    if (realised) {
      look.found = realise(alike.spec, bench, *row, cutoff_s);
      if (look.found.step_s == kNever && bench.problem.layers() <= kSplitLayers) {
        // The limit on recomputation forbids this row: look for one that keeps it.
        if (auto kept = split_alike(bench.costs, 0, stages, cutoff_s)) {
          look.found = realise(alike.spec, bench, *std::move(kept), cutoff_s);
        } else {
          look.verdict = cutoff_s < kNever ? Verdict::kBound : Verdict::kMemory;
          look.bound_s = cutoff_s;
        }
      }
      look.timed = bench.times.evaluated();
    }
    return look;
  }

  void look_at_alike() {
    const bool realised = !job_.search.anneal;
    // Batches grow as the best plan gets better, and do not depend on the number of threads.
    std::size_t batch = 1;
    for (std::size_t first = 0; first < alike_.size() && !stopped();) {
      const std::size_t count = std::min(batch, alike_.size() - first);
      const double cutoff = result_.best.step_s;
      if (alike_[first].work_s >= cutoff) {  // the rest is bounded no lower
        for (std::size_t k = first; k < alike_.size(); ++k) {
          alike_[k].bound_s = alike_[k].work_s;
        }
        by_work_ += alike_.size() - first;
        break;
      }
      std::vector<Look> looks(count);
      for_all(count, [&](std::size_t k) { looks[k] = look(alike_[first + k], cutoff, realised); });
      for (std::size_t k = 0; k < count; ++k) {
        alike_[first + k].bound_s = looks[k].bound_s;
        by_work_ += looks[k].verdict == Verdict::kWork ? 1 : 0;
        by_memory_ += looks[k].verdict == Verdict::kMemory ? 1 : 0;
        by_bound_ += looks[k].verdict == Verdict::kBound ? 1 : 0;
        keep(looks[k].found, looks[k].timed);
      }
      first += count;
      batch = std::min(2 * batch, kMostBatch);
      report(0.5 * static_cast<double>(first) / static_cast<double>(alike_.size()));
    }
  }

  /// Bounds what mixing kinds could win, for all replica counts, by lowering a limit until no row
  /// keeps below it.
  void mix() {
    for (const Alike& alike : alike_) {
      if (alike.bound_s < result_.best.step_s) {
        open_.push_back({alike.spec, alike.bound_s, false});
      }
    }
    if (!fleet_.not_mixed().empty()) {
      result_.certificate.undone.push_back(fleet_.not_mixed());
      result_.certificate.bounds_all = false;
    }
    if (!fleet_.mixes() || stopped()) {
      return;
    }
    std::vector<Mixed> units = list_mixed();
    double work = 0;
    for (const Mixed& unit : units) {
      work += static_cast<double>(unit.most_stages) * unit.bench->problem.layers() *
              static_cast<double>(unit.bench->problem.kinds.size());
    }
    if (work > kMostMixedWork) {
      result_.certificate.undone.push_back(
          "rows that mix TP widths or node types: too many layers and replica counts, so the bound "
          "speaks of rows of one kind");
      result_.certificate.bounds_all = false;
      return;
    }
    lower_limits(units);
    realise_mixed(units);
    open_.clear();
    for (const Mixed& unit : units) {
      for (std::uint32_t s = job_.search.min_stages; s <= unit.most_stages; ++s) {
        if (unit.bound_s[s] < result_.best.step_s) {
          Spec spec = unit.spec;
          spec.stages = s;
          open_.push_back({spec, unit.bound_s[s], false});
        }
      }
    }
  }

  std::vector<Mixed> list_mixed() {
    std::vector<Mixed> units;
    std::uint32_t devices = 0;
    for (const Pool& pool : fleet_.pools()) {
      devices += static_cast<std::uint32_t>(pool.nodes.size()) *
                 job_.cluster.node_types[pool.node_type].devices;
    }
    for (std::uint32_t k = 0; k < fleet_.sizes().size(); ++k) {
      const Fleet::Size& size = *fleet_.sizes()[k];
      for (const bool sequence_parallel : {false, true}) {
        if (std::none_of(size.tables.begin(), size.tables.end(), [&](const auto& entry) {
              return entry.first.sequence_parallel == sequence_parallel;
            })) {
          continue;
        }
        const std::uint32_t total = size.job.total_microbatches();
        for (std::uint32_t d = 1; d <= std::min(devices, total); ++d) {
          Spec spec{k, true, {}, d, 1, 1};
          spec.sharding.sequence_parallel = sequence_parallel;
          Mixed unit;
          unit.spec = spec;
          unit.bench = std::make_unique<Bench>(fleet_, spec);
          const RowProblem& problem = unit.bench->problem;
          std::uint32_t narrowest = std::numeric_limits<std::uint32_t>::max();
          for (const GroupKind& kind : problem.kinds) {
            narrowest = std::min(narrowest, kind.width());
          }
          const std::uint32_t budget =
              std::accumulate(problem.budget.begin(), problem.budget.end(), 0U);
          unit.most_stages =
              std::min({job_.search.max_stages, problem.layers(), budget / narrowest});
          if (unit.most_stages < job_.search.min_stages || budget == 0) {
            continue;
          }
          unit.bound_s.assign(unit.most_stages + 1, kNever);
          for (std::uint32_t s = job_.search.min_stages; s <= unit.most_stages; ++s) {
            unit.bound_s[s] = unit.bench->costs.mixed_bound_s(s, budget);
          }
          unit.open =
              *std::min_element(unit.bound_s.begin(), unit.bound_s.end()) < result_.best.step_s;
          unit.reached_s.assign(unit.most_stages + 1, kNever);
          unit.row.resize(unit.most_stages + 1);
          if (unit.open) {
            units.push_back(std::move(unit));
          }
        }
      }
    }
    return units;
  }

  /// True when some row keeps below the limit.
  bool test_limit(std::vector<Mixed>& units, double limit_s) const {
    std::vector<char> possible(units.size(), 0);
    for_all(units.size(), [&](std::size_t k) {
      Mixed& unit = units[k];
      if (!unit.open ||
          std::all_of(unit.bound_s.begin() + job_.search.min_stages, unit.bound_s.end(),
                      [&](double bound) { return bound >= limit_s; })) {
        return;
      }
      const ReachMixed reach(unit.bench->costs, unit.most_stages, limit_s);
      for (std::uint32_t s = job_.search.min_stages; s <= unit.most_stages; ++s) {
        if (auto row = reach.row(s)) {
          unit.row[s] = *std::move(row);
          unit.reached_s[s] = std::min(unit.reached_s[s], limit_s);
          possible[k] = 1;
        } else {
          unit.bound_s[s] = std::max(unit.bound_s[s], limit_s);
        }
      }
    });
    return std::find(possible.begin(), possible.end(), 1) != possible.end();
  }

  void lower_limits(std::vector<Mixed>& units) {
    double high = result_.best.step_s;
    double low = kNever;
    for (const Mixed& unit : units) {
      low = std::min(low, *std::min_element(unit.bound_s.begin(), unit.bound_s.end()));
    }
    if (high == kNever) {  // no row of one kind fits
      constexpr int kDoublings = 40;
      high = low;
      for (int k = 0; k < kDoublings && !stopped(); ++k) {
        high *= 2;
        if (test_limit(units, high)) {
          break;
        }
        low = high;
      }
    } else if (!test_limit(units, high)) {
      return;
    }
    double step = 1e-3;
    for (bool possible = true; possible && !stopped(); step *= 2) {
      const double limit = std::max(low, high * (1 - step));
      possible = limit > low && test_limit(units, limit);
      (possible ? high : low) = std::max(limit, low);
    }
    while (high > low * (1 + kResolution) && !stopped()) {
      const double middle = (low + high) / 2;
      (test_limit(units, middle) ? high : low) = middle;
    }
  }

  void realise_mixed(std::vector<Mixed>& units) {
    struct Promise {
      double reached_s;
      std::size_t unit;
      std::uint32_t stages;
    };
    std::vector<Promise> promises;
    for (std::size_t k = 0; k < units.size(); ++k) {
      for (std::uint32_t s = job_.search.min_stages; s <= units[k].most_stages; ++s) {
        if (units[k].reached_s[s] < kNever) {
          promises.push_back({units[k].reached_s[s], k, s});
        }
      }
    }
    std::stable_sort(promises.begin(), promises.end(),
                     [](const Promise& a, const Promise& b) { return a.reached_s < b.reached_s; });
    if (job_.search.anneal) {
      promises.clear();
    }
    if (result_.best.step_s < kNever && promises.size() > kMixedRealised) {
      promises.resize(kMixedRealised);
    }
    for (std::size_t first = 0; first < promises.size() && !stopped();) {
      const std::size_t count = std::min(kMixedBatch, promises.size() - first);
      const double cutoff = result_.best.step_s;
      std::vector<Look> looks(count);
      for_all(count, [&](std::size_t k) {
        const Promise& promise = promises[first + k];
        Spec spec = units[promise.unit].spec;
        spec.stages = promise.stages;
        Bench bench(fleet_, spec);
        looks[k].found = realise(spec, bench, units[promise.unit].row[promise.stages], cutoff);
        looks[k].timed = bench.times.evaluated();
      });
      for (const Look& look : looks) {
        keep(look.found, look.timed);
      }
      first += count;
      report(0.5 + 0.2 * static_cast<double>(first) / static_cast<double>(promises.size()));
    }
  }

  void branch_open() {
    std::stable_sort(open_.begin(), open_.end(),
                     [](const Open& a, const Open& b) { return a.bound_s < b.bound_s; });
    std::uint64_t budget = job_.search.anneal ? 0 : options_.branch_budget;
    const std::uint64_t part = budget / kBudgetParts;
    for (std::size_t first = 0; first < open_.size() && budget > 0 && !stopped();) {
      const std::size_t count = std::min(kMixedBatch, open_.size() - first);
      const double cutoff = result_.best.step_s;
      std::vector<Branched> results(count);
      std::vector<Layout> layouts(count, Layout::kStagesTogether);
      std::vector<std::uint64_t> timed(count, 0);
      const std::uint64_t each = std::min(part, std::max<std::uint64_t>(budget / count, 1));
      for_all(count, [&](std::size_t k) {
        const Open& open = open_[first + k];
        if (open.bound_s >= cutoff) {
          results[k].complete = true;
          results[k].bound_s = open.bound_s;
          return;
        }
        Bench bench(fleet_, open.spec);
        results[k] =
            branch(bench.costs, bench.times, open.spec.stages, cutoff, each, options_.stop);
        if (results[k].row) {
          results[k].step_s = bench.times.best_step_s(*results[k].row, &layouts[k]);
        }
        timed[k] = bench.times.evaluated();
      });
      for (std::size_t k = 0; k < count; ++k) {
        Open& open = open_[first + k];
        const Branched& result = results[k];
        if (result.complete) {
          open.bound_s = std::max(open.bound_s, result.bound_s);
          open.proven = true;
        }
        result_.certificate.rows_branched += result.nodes;
        budget -= std::min(budget, result.work);
        if (result.row) {
          Found found;
          found.spec = open.spec;
          found.row = *result.row;
          found.step_s = found.value = result.step_s;
          found.layout = layouts[k];
          keep(found, 0);
        }
        result_.certificate.rows_timed += timed[k];
      }
      first += count;
      report(0.7 + 0.2 * static_cast<double>(first) / static_cast<double>(open_.size()));
    }
  }

  void interleave(const std::vector<std::uint32_t>& depths) {
    std::vector<Spec> specs;
    for (const Alike& alike : alike_) {
      specs.push_back(alike.spec);
    }
    InterleaveResult found =
        search_interleaved(job_, fleet_, options_, specs, depths, result_.best.step_s);
    keep(found.best, found.rows_timed);
    interleaved_bound_s_ = found.bound_s;
    result_.certificate.shapes += found.shapes;
    by_work_ += found.by_work;
    by_memory_ += found.by_memory;
    if (found.left > 0) {
      result_.certificate.undone.push_back(
          fmt::format("cuts of {} interleaved shapes; the bound speaks of them", found.left));
    }
  }

  void anneal_alike() {
    std::vector<Shape> shapes;
    for (const Alike& alike : alike_) {
      shapes.push_back({alike.spec.sharding, alike.spec.stages, alike.spec.replicas, 1});
    }
    std::vector<double> value(shapes.size(), -1);
    anneal(shapes, job_.search.seed, [&](std::size_t index) {
      if (value[index] < 0) {
        const Look seen = look(alike_[index], kNever, true);
        keep(seen.found, seen.timed);
        value[index] = seen.found.step_s;
      }
      return stopped() ? -1 : value[index];
    });
  }

  bool stopped() {
    if (options_.stop.stop_requested()) {
      result_.complete = false;
    }
    return !result_.complete;
  }

  void report(double done) const {
    if (options_.progress) {
      options_.progress(done, result_.best.step_s);
    }
  }

  SearchResult finish() {
    double bound = std::min(result_.best.step_s, interleaved_bound_s_);
    for (const Open& open : open_) {
      bound = std::min(bound, open.bound_s);
    }
    if (!result_.complete) {
      // Not everything was bounded: what is sure of all is the work.
      for (const Alike& alike : alike_) {
        bound = std::min(bound, std::max(alike.work_s, alike.bound_s));
      }
      bound = std::min(bound, fleet_.mixes() ? area_s_ : kNever);
      result_.certificate.undone.push_back("the rest of the search: it was stopped");
    }
    result_.bound_s = bound;
    result_.certificate.optimal = result_.complete && result_.certificate.bounds_all &&
                                  interleaved_bound_s_ >= result_.best.step_s &&
                                  std::all_of(open_.begin(), open_.end(), [&](const Open& open) {
                                    return open.proven || open.bound_s >= result_.best.step_s;
                                  });
    const auto add = [&](std::uint64_t count, const char* why) {
      if (count > 0) {
        result_.certificate.ruled_out.push_back({why, count});
      }
    };
    add(by_memory_, "no cut fits memory, even with everything recomputed");
    add(by_work_, "their work alone takes longer than the best plan");
    add(by_bound_, "some stage of every cut takes longer than the best plan");
    return std::move(result_);
  }

  static constexpr std::size_t kMostBatch = 32;
  static constexpr std::size_t kMixedBatch = 4;
  static constexpr std::uint32_t kSplitLayers = 2000;

  const Job& job_;
  const Fleet& fleet_;
  const SolveOptions& options_;
  std::vector<Alike> alike_;
  std::vector<Open> open_;
  std::uint64_t by_work_ = 0;
  std::uint64_t by_memory_ = 0;
  std::uint64_t by_bound_ = 0;
  double interleaved_bound_s_ = kNever;
  double area_s_ = kNever;  ///< all work on all devices at once
  SearchResult result_;
};

}  // namespace

SearchResult search_step_time(const Job& job, const Fleet& fleet, const SolveOptions& options) {
  return StepSearch(job, fleet, options).run();
}

}  // namespace tapas::solver
