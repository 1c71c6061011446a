#include "ctl/plan_text.h"

#include "ctl/fields.h"
#include "ctl/table.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace tapas::ctl {

namespace {

constexpr std::uint64_t kMostChunks = 1024;  // of a device group; more is damage

std::vector<std::uint32_t> numbers_of(const json::Value& array) {
  std::vector<std::uint32_t> numbers;
  if (!array.is_array()) {
    return numbers;
  }
  for (const json::Value& item : array) {
    constexpr auto kMax = std::numeric_limits<std::uint32_t>::max();
    const std::uint64_t count = count_of(item);
    numbers.push_back(count <= kMax ? static_cast<std::uint32_t>(count) : 0);
  }
  return numbers;
}

std::vector<double> reals_of(const json::Value& array) {
  std::vector<double> reals;
  for (const json::Value& item : array) {
    reals.push_back(item.is_number() ? item.get<double>()
                                     : std::numeric_limits<double>::quiet_NaN());
  }
  return reals;
}

std::string place_of(const json::Value& position) {
  return fmt::format("{}[{}]", printable(text_at(position, "node", "?")),
                     number_ranges(numbers_of(array_at(position, "devices"))));
}

std::string width_range(const std::vector<std::uint32_t>& widths, std::uint32_t first,
                        std::uint32_t last) {
  const auto end = std::min<std::size_t>(last, widths.size());
  if (first >= end) {
    return "-";
  }
  const auto begin = widths.begin() + static_cast<std::ptrdiff_t>(first);
  const auto [low, high] =
      std::minmax_element(begin, widths.begin() + static_cast<std::ptrdiff_t>(end));
  return *low == *high ? fmt::to_string(*low) : fmt::format("{}-{}", *low, *high);
}

std::string join(const std::vector<std::uint32_t>& numbers) {
  return fmt::format("{}", fmt::join(numbers, ", "));
}

std::uint32_t recomputed(const std::vector<bool>& checkpoint, std::uint32_t first,
                         std::uint32_t last) {
  std::uint32_t count = 0;
  for (std::uint32_t layer = first; layer < last && layer < checkpoint.size(); ++layer) {
    count += checkpoint[layer] ? 1 : 0;
  }
  return count;
}

std::vector<bool> flags_of(const json::Value& array) {
  std::vector<bool> flags;
  for (const json::Value& flag : array) {
    flags.push_back(flag.is_boolean() && flag.get<bool>());
  }
  return flags;
}

/// Gathers what differs; the same difference in many replicas or layers is one change.
class Changes {
 public:
  struct Where {
    std::string_view noun;  ///< "replica"
    std::uint32_t number = 0;
    std::string tail;  ///< " stage 5"
  };

  void note(std::string_view what, const std::string& before, const std::string& after,
            const Where& where = {"job", 0, ""}) {
    if (before == after) {
      return;
    }
    for (Group& group : groups_) {
      if (group.what == what && group.noun == where.noun && group.tail == where.tail &&
          group.before == before && group.after == after) {
        group.numbers.push_back(where.number);
        return;
      }
    }
    groups_.push_back({what, where.noun, where.tail, before, after, {where.number}});
  }

  [[nodiscard]] std::vector<PlanChange> list() const {
    std::vector<PlanChange> changes;
    for (const Group& group : groups_) {
      const std::string where =
          group.noun == "job"
              ? "job"
              : fmt::format("{}{} {}{}", group.noun, group.numbers.size() == 1 ? "" : "s",
                            number_ranges(group.numbers), group.tail);
      changes.push_back({std::string(group.what), where, group.before, group.after});
    }
    return changes;
  }

 private:
  struct Group {
    std::string_view what;
    std::string_view noun;
    std::string tail;
    std::string before;
    std::string after;
    std::vector<std::uint32_t> numbers;
  };
  std::vector<Group> groups_;
};

std::vector<std::uint32_t> cuts_of(const std::vector<PlanView::Stage>& replica) {
  std::vector<std::uint32_t> cuts;
  cuts.reserve(replica.size());
  for (const PlanView::Stage& stage : replica) {
    cuts.push_back(stage.first_layer);
  }
  return cuts;
}

}  // namespace

std::string number_ranges(const std::vector<std::uint32_t>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) {
      ++end;
    }
    out += out.empty() ? "" : ",";
    out += end == i + 1 ? fmt::to_string(numbers[i])
                        : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return out;
}

std::string PlanView::Stage::layers() const {
  if (first_layer >= last_layer) {
    return "none";
  }
  return last_layer == first_layer + 1 ? fmt::to_string(first_layer)
                                       : fmt::format("{}-{}", first_layer, last_layer - 1);
}

std::size_t PlanView::groups() const {
  return replicas.empty() ? 0 : replicas.front().size() / interleave;
}

std::string PlanView::shape() const {
  return fmt::format("TP {} x PP {} x DP {}{}",
                     width_range(tp_width, 0, static_cast<std::uint32_t>(tp_width.size())),
                     groups(), replicas.size(),
                     interleave > 1 ? fmt::format(" x {} chunks", interleave) : "");
}

Result<PlanView> plan_view(const json::Value& plan) {
  if (const std::string schema = text_at(plan, "schema"); schema != "tapas.plan/1") {
    return fail(ErrorCode::kInvalid, "schema \"{}\" where tapas.plan/1 is read", printable(schema));
  }
  PlanView view;
  view.job = printable(text_at(plan, "job"));
  view.epoch = count_at(plan, "epoch");
  view.parent = count_at(plan, "parent");
  view.schedule = printable(text_at(plan, "schedule"));
  view.interleave = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(count_at(plan, "interleave"), 1, kMostChunks));
  view.micro_batch_size = static_cast<std::uint32_t>(count_at(plan, "micro_batch_size"));
  view.tp_width = numbers_of(array_at(plan, "tp_width"));
  view.sp_width = static_cast<std::uint32_t>(count_at(plan, "sp_width"));
  view.microbatches = numbers_of(array_at(plan, "microbatches"));

  const auto layers = static_cast<std::uint32_t>(view.tp_width.size());
  const auto common_cuts = numbers_of(array_at(plan, "pp_splits"));
  const json::Value& own_cuts = array_at(plan, "replica_splits");
  const std::vector<bool> common_flags = flags_of(array_at(plan, "checkpoint"));
  const json::Value& own_flags = array_at(plan, "replica_checkpoint");
  const json::Value& placement = array_at(plan, "placement");
  for (std::size_t replica = 0; replica < placement.size(); ++replica) {
    auto cuts =
        replica < own_cuts.size() ? numbers_of(own_cuts[replica]) : std::vector<std::uint32_t>{};
    if (cuts.empty()) {
      cuts = common_cuts;
    }
    std::vector<PlanView::Stage> stages;
    for (std::size_t stage = 0; stage < cuts.size(); ++stage) {
      const json::Value& row = placement[replica];
      const std::size_t group =
          view.interleave > 1 && row.is_array() && !row.empty() ? stage % row.size() : stage;
      stages.push_back({cuts[stage], stage + 1 < cuts.size() ? cuts[stage + 1] : layers,
                        row.is_array() && group < row.size() ? place_of(row[group]) : "?"});
    }
    view.replicas.push_back(std::move(stages));
    const bool own = replica < own_flags.size() && !own_flags[replica].empty();
    view.checkpoint.push_back(own ? flags_of(own_flags[replica]) : common_flags);
  }

  const json::Value& predicted = object_at(plan, "predicted");
  view.step_time_s = number_at(predicted, "step_time_s");
  view.lower_bound_s = number_at(predicted, "lower_bound_s");
  view.gap_ratio = number_at(predicted, "gap_ratio");
  view.peak_fraction = number_at(predicted, "peak_fraction");
  view.stage_time_s = reals_of(array_at(predicted, "stage_time_s"));
  view.stage_memory_bytes = reals_of(array_at(predicted, "stage_memory_bytes"));
  return view;
}

std::string plan_text(const PlanView& plan, const std::vector<double>& memory_caps_bytes) {
  std::string out =
      fmt::format("Plan of job {}, epoch {}", plan.job.empty() ? "-" : plan.job, plan.epoch);
  out += plan.epoch > 0 ? fmt::format(" (parent {})\n", plan.parent) : " (not active yet)\n";
  out += fmt::format("  {}, schedule {}, SP {}", plan.shape(), plan.schedule, plan.sp_width);
  if (!plan.microbatches.empty()) {
    const auto [low, high] =
        std::minmax_element(plan.microbatches.begin(), plan.microbatches.end());
    out += *low == *high ? fmt::format(", {} microbatches per replica", *low)
                         : fmt::format(", {} to {} microbatches per replica", *low, *high);
  }
  if (plan.micro_batch_size > 0) {
    out += fmt::format(" of {} samples", plan.micro_batch_size);
  }
  out += fmt::format("\n  predicted step {}, bound {}, gap {}, {} of peak flops\n\n",
                     format_seconds(plan.step_time_s), format_seconds(plan.lower_bound_s),
                     format_percent(plan.gap_ratio), format_percent(plan.peak_fraction));
  if (plan.replicas.empty()) {
    return out + "no replica is placed\n";
  }

  Table table({{"STAGE", Align::kRight},
               {"LAYERS", Align::kRight},
               {"COUNT", Align::kRight},
               {"RECOMPUTED", Align::kRight},
               {"TP", Align::kRight},
               {"TIME", Align::kRight},
               {"MEMORY", Align::kRight},
               {"OF CAP", Align::kRight},
               {"NODE (REPLICA 0)"}});
  const auto& stages = plan.replicas.front();
  for (std::size_t g = 0; g < plan.groups(); ++g) {
    std::string layers;
    std::uint32_t count = 0;
    std::uint32_t again = 0;
    for (std::size_t s = g; s < stages.size(); s += plan.groups()) {
      const PlanView::Stage& stage = stages[s];
      layers += (layers.empty() ? "" : ",") + stage.layers();
      count += std::max(stage.last_layer, stage.first_layer) - stage.first_layer;
      again += recomputed(plan.checkpoint.front(), stage.first_layer, stage.last_layer);
    }
    const PlanView::Stage& first = stages[g];
    const double unknown = std::numeric_limits<double>::quiet_NaN();
    const double memory = g < plan.stage_memory_bytes.size() ? plan.stage_memory_bytes[g] : unknown;
    const double time = g < plan.stage_time_s.size() ? plan.stage_time_s[g] : unknown;
    table.add_row(
        {fmt::to_string(g), layers, fmt::to_string(count), fmt::to_string(again),
         width_range(plan.tp_width, first.first_layer, first.last_layer), format_seconds(time),
         format_bytes(memory),
         g < memory_caps_bytes.size() ? format_percent(memory / memory_caps_bytes[g]) : "-",
         first.place});
  }
  out += table.text();

  const auto common = cuts_of(stages);
  for (std::size_t r = 1; r < plan.replicas.size(); ++r) {
    if (const auto cuts = cuts_of(plan.replicas[r]); cuts != common) {
      out += fmt::format("replica {} has its own cuts: {}\n", r, join(cuts));
    }
    if (plan.checkpoint[r] != plan.checkpoint.front()) {
      std::vector<std::uint32_t> layers;
      for (std::uint32_t l = 0; l < plan.checkpoint[r].size(); ++l) {
        if (plan.checkpoint[r][l]) {
          layers.push_back(l);
        }
      }
      out += fmt::format("replica {} recomputes its own layers: {}\n", r,
                         layers.empty() ? "none" : number_ranges(layers));
    }
  }
  if (!plan.microbatches.empty() &&
      std::adjacent_find(plan.microbatches.begin(), plan.microbatches.end(),
                         std::not_equal_to<>()) != plan.microbatches.end()) {
    out += fmt::format("microbatches by replica: {}\n", join(plan.microbatches));
  }
  return out;
}

std::vector<PlanChange> plan_changes(const PlanView& before, const PlanView& after) {
  Changes changes;
  changes.note("shape", before.shape(), after.shape());
  changes.note("schedule", before.schedule, after.schedule);
  changes.note("micro_batch_size", fmt::to_string(before.micro_batch_size),
               fmt::to_string(after.micro_batch_size));
  changes.note("sp_width", fmt::to_string(before.sp_width), fmt::to_string(after.sp_width));
  const auto both = [](const auto& a, const auto& b) {
    return static_cast<std::uint32_t>(std::min(a.size(), b.size()));
  };
  for (std::uint32_t i = 0; i < both(before.tp_width, after.tp_width); ++i) {
    changes.note("tp_width", fmt::to_string(before.tp_width[i]), fmt::to_string(after.tp_width[i]),
                 {"layer", i, ""});
  }
  for (std::uint32_t r = 0; r < both(before.checkpoint, after.checkpoint); ++r) {
    const std::vector<bool>& old_flags = before.checkpoint[r];
    const std::vector<bool>& new_flags = after.checkpoint[r];
    for (const bool added : {true, false}) {
      std::vector<std::uint32_t> layers;
      for (std::uint32_t l = 0; l < both(old_flags, new_flags); ++l) {
        if (new_flags[l] == added && old_flags[l] != added) {
          layers.push_back(l);
        }
      }
      if (!layers.empty()) {
        changes.note(
            "recompute", added ? "no" : "yes", added ? "yes" : "no",
            {"replica", r,
             fmt::format(" layer{} {}", layers.size() == 1 ? "" : "s", number_ranges(layers))});
      }
    }
  }
  for (std::uint32_t r = 0; r < both(before.microbatches, after.microbatches); ++r) {
    changes.note("microbatches", fmt::to_string(before.microbatches[r]),
                 fmt::to_string(after.microbatches[r]), {"replica", r, ""});
  }
  for (std::uint32_t r = 0; r < both(before.replicas, after.replicas); ++r) {
    const auto& old_stages = before.replicas[r];
    const auto& new_stages = after.replicas[r];
    for (std::uint32_t s = 0; s < both(old_stages, new_stages); ++s) {
      const std::string stage = fmt::format(" stage {}", s);
      changes.note("layers", old_stages[s].layers(), new_stages[s].layers(), {"replica", r, stage});
      changes.note("placement", old_stages[s].place, new_stages[s].place, {"replica", r, stage});
    }
  }
  return changes.list();
}

std::string changes_text(const std::vector<PlanChange>& changes) {
  if (changes.empty()) {
    return "no difference that the runtime would notice\n";
  }
  Table table({{"WHAT"}, {"WHERE"}, {"BEFORE"}, {"AFTER"}});
  for (const PlanChange& change : changes) {
    table.add_row({change.what, change.where, change.before, change.after});
  }
  return table.text();
}

json::Value changes_to_json(const std::vector<PlanChange>& changes) {
  json::Value out = json::Value::array();
  for (const PlanChange& change : changes) {
    out.push_back({{"what", change.what},
                   {"where", change.where},
                   {"before", change.before},
                   {"after", change.after}});
  }
  return out;
}

std::string moves_text(const json::Value& moves) {
  struct Group {
    std::vector<std::uint32_t> layers;
    double bytes = 0;
    double start_s = std::numeric_limits<double>::infinity();
    double end_s = 0;
  };
  using Way = std::tuple<std::uint64_t, std::string, std::string>;  // replica, from, to
  std::map<Way, Group> groups;
  const auto end_of = [](const json::Value& move, const char* stage, const char* place) {
    return fmt::format("stage {} {}", count_at(move, stage), place_of(object_at(move, place)));
  };
  double bytes = 0;
  for (const json::Value& move : moves) {
    Group& group = groups[{count_at(move, "replica"), end_of(move, "from_stage", "from"),
                           end_of(move, "to_stage", "to")}];
    group.layers.push_back(static_cast<std::uint32_t>(count_at(move, "layer")));
    group.bytes += number_at(move, "bytes");
    group.start_s = std::min(group.start_s, number_at(move, "start_s"));
    group.end_s = std::max(group.end_s, number_at(move, "end_s"));
    bytes += number_at(move, "bytes");
  }
  if (groups.empty()) {
    return "no layer moves\n";
  }
  std::vector<std::pair<Way, Group>> rows(groups.begin(), groups.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.start_s < b.second.start_s;
  });
  std::vector<Table::Column> columns = {
      {"REPLICA", Align::kRight}, {"LAYERS"}, {"FROM"}, {"TO"}, {"BYTES", Align::kRight}};
  const bool timed = moves.front().contains("end_s");
  if (timed) {
    columns.insert(columns.end(), {{"STARTS", Align::kRight}, {"ENDS", Align::kRight}});
  }
  Table table(columns);
  for (auto& [way, group] : rows) {
    std::sort(group.layers.begin(), group.layers.end());
    std::vector<std::string> row = {fmt::to_string(std::get<0>(way)), number_ranges(group.layers),
                                    std::get<1>(way), std::get<2>(way), format_bytes(group.bytes)};
    if (timed) {
      row.insert(row.end(), {format_seconds(group.start_s), format_seconds(group.end_s)});
    }
    table.add_row(std::move(row));
  }
  return table.text() +
         fmt::format("{} to move, {}\n", format_count(moves.size(), "layer"), format_bytes(bytes));
}

}  // namespace tapas::ctl
