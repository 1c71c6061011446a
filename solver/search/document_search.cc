#include "solver/search/document_search.h"

#include "solver/cost/links.h"
#include "solver/search/reach.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tapas::solver {
namespace {

// Rows that mix kinds are searched up to here; beyond, rows of one kind.
constexpr std::uint32_t kMostMixedLayers = 40;
constexpr std::uint32_t kMostMixedDevices = 64;
// Sums in another order differ by less.
constexpr double kRounding = 1e-12;

/// The stages from some layer on, as good as any other in one respect at least.
struct Label {
  double memory = 0;         ///< of the stage that needs most; 0 when it has no weight
  double communication = 0;  ///< of all stages
  double time = 0;           ///< of the longest stage
  Devices taken{};
  std::uint32_t kind = 0;
  std::uint32_t end = 0;
  std::uint32_t next = 0;  ///< label of the stages behind
};

bool covers(const Label& a, const Label& b) {
  constexpr double kUp = 1 + kRounding;
  return a.memory <= b.memory * kUp && a.communication <= b.communication * kUp &&
         a.time <= b.time * kUp &&
         std::equal(a.taken.begin(), a.taken.end(), b.taken.begin(),
                    [](std::uint32_t x, std::uint32_t y) { return x <= y; });
}

/// All rows of one spec family with a number of stages.
class Rows {
 public:
  Rows(const Job& job, const Fleet& fleet, const Spec& spec)
      : weights_(job.search.weights),
        cluster_(job.cluster),
        model_(*fleet.sizes()[spec.size]->model),
        spec_(spec),
        bench_(fleet, spec),
        layers_(bench_.problem.layers()),
        least_comm_(layers_ + 1, 0) {
    for (std::uint32_t l = 0; l < layers_; ++l) {
      double least = kNever;
      for (const GroupKind& kind : bench_.problem.kinds) {
        least = std::min(least, kind.tail.sync_s((*kind.table)[l].params));
      }
      least_comm_[l + 1] = least_comm_[l] + least;
    }
  }

  /// No row has less.
  [[nodiscard]] double bound(std::uint32_t stages) const {
    return weights_.communication_per_s * least_comm_.back() +
           weights_.stage_time_per_s * bench_.costs.least_before_s(layers_) / stages;
  }

  /// The best row whose objective is at most `cutoff`.
  Found best(std::uint32_t stages, double cutoff) {
    Found found;
    found.spec = spec_;
    found.spec.stages = stages;
    std::set<double> levels;  // what sending may add to a stage's forward and to its backward
    for (std::uint32_t l = 1; l < layers_ && stages > 1; ++l) {
      for (const GroupKind& kind : bench_.problem.kinds) {
        levels.insert(busy_s(kind, l, stages));
      }
    }
    if (stages == 1) {
      levels.insert(0);
    }
    // The loosest level first: without its own sending it bounds all others.
    double rest = 0;
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
      const double sending =
          2 * *level * (weights_.communication_per_s + weights_.stage_time_per_s);
      if (rest + sending > cutoff * (1 + kRounding)) {
        continue;
      }
      const auto [value, row] = at_level(stages, *level, cutoff - sending);
      if (level == levels.rbegin()) {
        rest = row.cuts.empty() ? cutoff - sending : value;
      }
      if (!row.cuts.empty() && value + sending < found.value) {
        found.value = value + sending;
        found.row = row;
        cutoff = std::min(cutoff, found.value);
      }
    }
    if (!found.row.cuts.empty()) {
      found.step_s = bench_.times.best_step_s(found.row, &found.layout);
    }
    return found;
  }
  [[nodiscard]] std::uint64_t labels() const { return made_; }

 private:
  [[nodiscard]] double busy_s(const GroupKind& kind, std::uint32_t cut,
                              std::uint32_t stages) const {
    const std::uint32_t type = kind.table->sharding().node_type;
    return model_
        .hop(link_inside(cluster_.node_types[type]), kind.table->sharding(),
             kind.table->cut_bytes(cut), stages)
        .busy_s;
  }

  /// mem_stage = sum(mem) + max(act) * checkpoint_ratio, as predict() has it.
  [[nodiscard]] static double stage_memory(const GroupKind& kind, LayerRange range,
                                           const StageFit& fit) {
    double largest = 0;
    for (std::uint32_t l = range.first; l < range.last; ++l) {
      largest = std::max(largest, (*kind.table)[l].stash_bytes);
    }
    double kept = range.last - range.first;
    for (const auto& [type, layers] : fit.recomputed) {
      kept -= layers;
    }
    return kind.table->sum(range).params * kind.rule.state_bytes_per_param +
           largest * kept / (range.last - range.first);
  }

  /// Least objective of rows whose cuts send no more than the level, sending itself left out.
  std::pair<double, Row> at_level(std::uint32_t stages, double level, double cutoff) {
    const RowProblem& problem = bench_.problem;
    const Devices budget = budget_of(problem);
    std::vector<std::vector<Label>> labels(std::size_t{stages} * (layers_ + 1));
    const auto at = [&](std::uint32_t behind, std::uint32_t first) -> std::vector<Label>& {
      return labels[std::size_t{behind} * (layers_ + 1) + first];
    };
    const auto value_of = [&](const Label& label) {
      return weights_.memory_per_byte * label.memory +
             weights_.communication_per_s * label.communication +
             weights_.stage_time_per_s * label.time;
    };
    const double most = cutoff * (1 + kRounding);
    for (std::uint32_t behind = 0; behind < stages; ++behind) {
      const std::uint32_t before = stages - 1 - behind;  // stages
      const std::uint32_t last_first = before == 0 ? 0 : layers_ - behind - 1;
      for (std::uint32_t first = before; first <= last_first; ++first) {
        std::vector<Label>& here = at(behind, first);
        // What the stages before need at least.
        const double earlier_comm = least_comm_[first];
        const double earlier_time = before == 0 ? 0 : bench_.costs.least_before_s(first) / before;
        for (std::uint32_t kind = 0; kind < problem.kinds.size(); ++kind) {
          const GroupKind& group = problem.kinds[kind];
          for (std::uint32_t end = behind == 0 ? layers_ : first + 1; end + behind <= layers_;
               ++end) {
            const LayerCost sum = group.table->sum({first, end});
            const double plain = sum.times.forward_s + sum.times.backward_s +
                                 sum.times.forward_comm_s + sum.times.backward_comm_s;
            if (weights_.stage_time_per_s * plain > most) {
              break;
            }
            if (behind > 0 && (at(behind - 1, end).empty() || busy_s(group, end, stages) > level)) {
              continue;
            }
            const StageFit* fit = bench_.costs.fit(kind, behind, {first, end});
            if (fit == nullptr) {
              continue;
            }
            Label own;
            own.memory = weights_.memory_per_byte > 0 ? stage_memory(group, {first, end}, *fit) : 0;
            own.communication = group.tail.sync_s(sum.params);
            own.time = fit->total_s();
            own.taken[group.pool] = group.width();
            own.kind = kind;
            own.end = end;
            const auto add = [&](Label label) {
              Label bound = label;
              bound.communication += earlier_comm;
              bound.time = std::max(bound.time, earlier_time);
              if (label.taken[group.pool] > budget[group.pool] || value_of(bound) > most ||
                  std::any_of(here.begin(), here.end(),
                              [&](const Label& other) { return covers(other, label); })) {
                return;
              }
              std::erase_if(here, [&](const Label& other) { return covers(label, other); });
              here.push_back(label);
              ++made_;
            };
            if (behind == 0) {
              add(own);
              continue;
            }
            const std::vector<Label>& rest = at(behind - 1, end);
            for (std::uint32_t k = 0; k < rest.size(); ++k) {
              Label label = own;
              label.memory = std::max(label.memory, rest[k].memory);
              label.communication += rest[k].communication;
              label.time = std::max(label.time, rest[k].time);
              for (std::size_t p = 0; p < kMostPools; ++p) {
                label.taken[p] += rest[k].taken[p];
              }
              label.next = k;
              add(label);
            }
          }
        }
      }
    }
    const std::vector<Label>& whole = at(stages - 1, 0);
    const auto least =
        std::min_element(whole.begin(), whole.end(),
                         [&](const Label& a, const Label& b) { return value_of(a) < value_of(b); });
    Row row;
    if (least == whole.end()) {
      return {kNever, row};
    }
    const Label* label = &*least;
    std::uint32_t first = 0;
    for (std::uint32_t behind = stages; behind-- > 0;) {
      row.cuts.push_back(first);
      row.kinds.push_back(label->kind);
      first = label->end;
      if (behind > 0) {
        label = &at(behind - 1, first)[label->next];
      }
    }
    return {value_of(*least), std::move(row)};
  }

  const ObjectiveWeights& weights_;
  const Cluster& cluster_;
  const CostModel& model_;
  const Spec spec_;
  Bench bench_;
  const std::uint32_t layers_;
  std::vector<double> least_comm_;  ///< [layer]: of the layers before
  std::uint64_t made_ = 0;
};

/// A family of rows with a number of stages, not yet looked at.
struct Candidate {
  Spec spec;
  double bound = 0;
};

class ObjectiveSearch {
 public:
  ObjectiveSearch(const Job& job, const Fleet& fleet, const SolveOptions& options)
      : job_(job), fleet_(fleet), options_(options) {
    list();
  }

  SearchResult run() {
    std::size_t batch = 1;
    std::uint64_t by_bound = 0;
    double left = kNever;  // least bound of what was not looked at
    for (std::size_t first = 0; first < candidates_.size();) {
      const double cutoff = result_.best.value;
      // Equal objectives are told apart by their step times, so they are looked at too.
      if (candidates_[first].bound > cutoff * (1 + kRounding)) {
        by_bound = candidates_.size() - first;
        break;
      }
      if (options_.stop.stop_requested()) {
        result_.complete = false;
        left = candidates_[first].bound;
        break;
      }
      const std::size_t count = std::min(batch, candidates_.size() - first);
      std::vector<Found> found(count);
      std::vector<std::uint64_t> labels(count, 0);
      const auto part = [&](std::size_t k) {
        const Spec& spec = candidates_[first + k].spec;
        Rows rows(job_, fleet_, spec);
        found[k] = rows.best(spec.stages, cutoff);
        labels[k] = rows.labels();
      };
      if (options_.parallel_for) {
        options_.parallel_for(count, part);
      } else {
        for (std::size_t k = 0; k < count; ++k) {
          part(k);
        }
      }
      for (std::size_t k = 0; k < count; ++k) {
        result_.certificate.rows_branched += labels[k];
        keep(found[k]);
      }
      first += count;
      batch = std::min<std::size_t>(2 * batch, 16);
      if (options_.progress) {
        options_.progress(static_cast<double>(first) / static_cast<double>(candidates_.size()),
                          result_.best.step_s);
      }
    }
    result_.certificate.shapes = candidates_.size();
    result_.certificate.objective_bound = std::min(left, result_.best.value);
    if (by_bound > 0) {
      result_.certificate.ruled_out.push_back(
          {"their least communication and stage time alone exceed the best objective", by_bound});
    }
    if (!fleet_.not_mixed().empty()) {
      result_.certificate.undone.push_back(fleet_.not_mixed());
      result_.certificate.bounds_all = false;
    }
    if (mixed_left_) {
      result_.certificate.bounds_all = false;
      result_.certificate.undone.push_back(
          "rows that mix TP widths or node types: too many layers or devices, so the bound speaks "
          "of rows of one kind");
    }
    result_.bound_s = work_s_;
    return std::move(result_);
  }

 private:
  void keep(const Found& found) {
    if (found.row.cuts.empty()) {
      return;
    }
    const double best = result_.best.value;
    const bool equal =
        found.value <= best * (1 + kRounding) && best <= found.value * (1 + kRounding);
    if (equal ? found.step_s < result_.best.step_s : found.value < best) {
      result_.best = found;
    }
  }

  void list() {
    for (std::uint32_t k = 0; k < fleet_.sizes().size(); ++k) {
      const Fleet::Size& size = *fleet_.sizes()[k];
      const std::uint32_t total = size.job.total_microbatches();
      std::uint32_t devices = 0;
      for (const Pool& pool : fleet_.pools()) {
        devices += static_cast<std::uint32_t>(pool.nodes.size()) *
                   job_.cluster.node_types[pool.node_type].devices;
      }
      double area = kNever;
      for (const auto& [sharding, table] : size.tables) {
        const LayerTimes t = table->sum({0, table->layers()}).times;
        area = std::min(area, sharding.width * (t.forward_s + t.backward_s));
        if (sharding.width == 1 && sharding.sequence_parallel) {
          continue;
        }
        const std::uint32_t slots = fleet_.slots(sharding);
        for (std::uint32_t d = 1; d <= std::min(slots, total); ++d) {
          add({k, false, sharding, d, 1, 1}, slots / d);
        }
      }
      work_s_ = std::min(work_s_, total * area / devices);
      if (!fleet_.mixes()) {
        continue;
      }
      for (const bool sequence_parallel : {false, true}) {
        if (std::none_of(size.tables.begin(), size.tables.end(), [&](const auto& entry) {
              return entry.first.sequence_parallel == sequence_parallel;
            })) {
          continue;
        }
        for (std::uint32_t d = 1; d <= std::min(devices, total); ++d) {
          if (job_.graph.layer_count() > kMostMixedLayers || devices / d > kMostMixedDevices) {
            mixed_left_ = true;
            continue;
          }
          Spec spec{k, true, {}, d, 1, 1};
          spec.sharding.sequence_parallel = sequence_parallel;
          add(spec, devices / d);
        }
      }
    }
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
  }

  void add(Spec spec, std::uint32_t most_stages) {
    const Rows rows(job_, fleet_, spec);
    most_stages = std::min({most_stages, job_.search.max_stages, job_.graph.layer_count()});
    for (spec.stages = job_.search.min_stages; spec.stages <= most_stages; ++spec.stages) {
      candidates_.push_back({spec, rows.bound(spec.stages)});
    }
  }

  const Job& job_;
  const Fleet& fleet_;
  const SolveOptions& options_;
  std::vector<Candidate> candidates_;
  bool mixed_left_ = false;
  double work_s_ = kNever;
  SearchResult result_;
};

}  // namespace

SearchResult search_objective(const Job& job, const Fleet& fleet, const SolveOptions& options) {
  return ObjectiveSearch(job, fleet, options).run();
}

}  // namespace tapas::solver
