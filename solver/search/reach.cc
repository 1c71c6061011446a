#include "solver/search/reach.h"

#include "base/check.h"

#include <algorithm>

namespace tapas::solver {
namespace {

bool within(const Devices& taken, const Devices& left) {
  return std::equal(taken.begin(), taken.end(), left.begin(),
                    [](std::uint32_t a, std::uint32_t b) { return a <= b; });
}

}  // namespace

Devices budget_of(const RowProblem& problem) {
  TAPAS_CHECK(problem.budget.size() <= kMostPools, "{} pools", problem.budget.size());
  Devices budget{};
  std::copy(problem.budget.begin(), problem.budget.end(), budget.begin());
  return budget;
}

std::optional<Row> reach_alike(RowCosts& costs, std::uint32_t kind, std::uint32_t stages,
                               double limit_s) {
  const std::uint32_t layers = costs.problem().layers();
  Row row;
  std::uint32_t first = 0;
  std::uint32_t length = std::max(1U, layers / stages);
  for (std::uint32_t s = 0; s < stages; ++s) {
    const std::uint32_t behind = stages - 1 - s;
    const Before before = costs.least_before(first, s);
    const auto reaches = [&](std::uint32_t end) {
      return costs.bound_s(kind, behind, {first, end}, before) <= limit_s;
    };
    // The bound grows with the end: step out from the length of the stage before, then bisect.
    const std::uint32_t most = layers - behind;
    std::uint32_t yes = first;  // an empty stage is always possible
    std::uint32_t no = most + 1;
    std::uint32_t step = 1;
    std::uint32_t guess = std::min(first + length, most);
    if (reaches(guess)) {
      yes = guess;
      for (; yes + step <= most && reaches(yes + step); step *= 2) {
        yes += step;
      }
      no = std::min(yes + step, most + 1);
    } else {
      no = guess;
      for (; no > first + step && !reaches(no - step); step *= 2) {
        no -= step;
      }
      yes = no > first + step ? no - step : first;
    }
    while (no - yes > 1) {
      const std::uint32_t middle = yes + (no - yes) / 2;
      (reaches(middle) ? yes : no) = middle;
    }
    if (yes == first) {
      return std::nullopt;
    }
    row.cuts.push_back(first);
    row.kinds.push_back(kind);
    length = yes - first;
    first = yes;
  }
  if (first < layers) {
    return std::nullopt;
  }
  return row;
}

std::optional<Row> split_alike(RowCosts& costs, std::uint32_t kind, std::uint32_t stages,
                               double cutoff_s) {
  const std::uint32_t layers = costs.problem().layers();
  const std::size_t columns = layers + 1;
  std::vector<double> best((stages + 1) * columns, kNever);
  std::vector<std::uint32_t> next(stages * columns, 0);
  best[stages * columns + layers] = 0;
  for (std::uint32_t s = stages; s-- > 0;) {
    const std::uint32_t behind = stages - 1 - s;
    const std::uint32_t last_first = s == 0 ? 0 : layers - behind - 1;
    for (std::uint32_t first = s; first <= last_first; ++first) {
      double& here = best[s * columns + first];
      const Before before = costs.least_before(first, s);
      for (std::uint32_t end = behind == 0 ? layers : first + 1; end + behind <= layers; ++end) {
        const double rest = best[(s + 1) * columns + end];
        const double limit = std::min(here, cutoff_s);
        if (rest >= limit) {
          continue;
        }
        if (costs.bound_s(kind, behind, {first, end}, before) >= limit) {
          break;
        }
        const double worst =
            std::max(costs.exact_bound_s(kind, behind, {first, end}, before), rest);
        if (worst < limit) {
          here = worst;
          next[s * columns + first] = end;
        }
      }
    }
  }
  if (best[0] == kNever) {
    return std::nullopt;
  }
  Row row;
  for (std::uint32_t s = 0, first = 0; s < stages; ++s) {
    row.cuts.push_back(first);
    row.kinds.push_back(kind);
    first = next[s * columns + first];
  }
  return row;
}

ReachMixed::ReachMixed(RowCosts& costs, std::uint32_t most_stages, double limit_s)
    : problem_(&costs.problem()),
      layers_(problem_->layers()),
      budget_(budget_of(*problem_)),
      choices_(std::size_t{most_stages} * (layers_ + 1)) {
  std::vector<std::uint32_t> end(problem_->kinds.size());
  for (std::uint32_t behind = 0; behind < most_stages; ++behind) {
    std::fill(end.begin(), end.end(), 0);
    for (std::uint32_t first = 0; first + behind < layers_; ++first) {
      std::vector<Choice>& here = choices_[std::size_t{behind} * (layers_ + 1) + first];
      const Before before = costs.least_before(first, 0);
      for (std::uint32_t kind = 0; kind < problem_->kinds.size(); ++kind) {
        const GroupKind& group = problem_->kinds[kind];
        // Farther starts reach no less far.
        std::uint32_t& reach = end[kind];
        reach = std::max(reach, first);
        while (reach + behind < layers_ &&
               costs.bound_s(kind, behind, {first, reach + 1}, before) <= limit_s) {
          ++reach;
        }
        if (reach == first || (behind == 0 && reach < layers_)) {
          continue;
        }
        Choice choice;
        choice.kind = kind;
        choice.end = reach;
        const auto add = [&](const Devices& rest) {
          choice.taken = rest;
          choice.taken[group.pool] += group.width();
          if (!within(choice.taken, budget_) ||
              std::any_of(here.begin(), here.end(),
                          [&](const Choice& other) { return within(other.taken, choice.taken); })) {
            return;
          }
          std::erase_if(here,
                        [&](const Choice& other) { return within(choice.taken, other.taken); });
          here.push_back(choice);
        };
        if (behind == 0) {
          add({});
        } else {
          for (const Choice& rest : at(behind - 1, reach)) {
            add(rest.taken);
          }
        }
      }
    }
  }
}

bool ReachMixed::possible(std::uint32_t behind, std::uint32_t layer, const Devices& left) const {
  const std::vector<Choice>& choices = at(behind, layer);
  return std::any_of(choices.begin(), choices.end(),
                     [&](const Choice& choice) { return within(choice.taken, left); });
}

std::optional<Row> ReachMixed::row(std::uint32_t stages) const {
  Row row;
  Devices left = budget_;
  std::uint32_t layer = 0;
  for (std::uint32_t behind = stages; behind-- > 0;) {
    const std::vector<Choice>& choices = at(behind, layer);
    const auto choice = std::find_if(choices.begin(), choices.end(),
                                     [&](const Choice& c) { return within(c.taken, left); });
    if (choice == choices.end()) {
      return std::nullopt;
    }
    const GroupKind& group = problem_->kinds[choice->kind];
    left[group.pool] -= group.width();
    row.cuts.push_back(layer);
    row.kinds.push_back(choice->kind);
    layer = choice->end;
  }
  return row;
}

}  // namespace tapas::solver
