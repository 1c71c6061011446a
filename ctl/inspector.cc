#include "ctl/inspector.h"

#include "base/json/json.h"
#include "base/median.h"
#include "ctl/fields.h"
#include "ctl/lines.h"
#include "ctl/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace tapas::ctl {
namespace {

constexpr std::uint64_t kMostRanks = 1U << 20U;
constexpr double kMicrosecond = 1e-6;
constexpr double kMostSeconds = 1e6;
// A share of a communicator's time that says nothing about who is late.
constexpr double kLittle = 0.05;

/// Function and number; unlike the message size they are the same for all ranks of a collective.
using Key = std::pair<std::uint32_t, std::uint64_t>;
struct Op {
  Key key;
  std::uint64_t bytes = 0;
  double seconds = 0;
};

struct Member {
  std::string process;
  std::string host;
  std::vector<Op> ops;  // as they ended
  std::uint64_t first_us = 0;
  std::uint64_t last_us = 0;
  std::size_t with_first = 0;  // written at first_us
  double seconds = 0;

  [[nodiscard]] double pace_s() const {
    const std::size_t after = ops.size() - with_first;
    return after == 0 ? 0
                      : static_cast<double>(last_us - first_us) * kMicrosecond /
                            static_cast<double>(after);
  }
};

struct Group {
  std::uint32_t size = 0;
  std::map<std::uint32_t, Member> members;
};

struct Recorded {
  std::map<std::string, Group> groups;
  std::map<std::string, std::uint32_t> functions;
  std::map<std::string, double> seconds;  // of a process in all its communicators
  std::set<std::string> point_to_point;   // processes
  std::uint64_t by_cpu = 0;
};

/// Empty, or what is wrong with the line.
std::string add(Recorded& recorded, const json::Value& line) {
  const json::Value& header = object_at(line, "header");
  const json::Value& metadata = object_at(line, "metadata");
  const std::string id = text_at(header, "id");
  const std::uint64_t size = count_at(header, "n_ranks");
  const std::uint64_t rank = count_at(header, "rank");
  if (id.empty() || size == 0 || size > kMostRanks || rank >= size) {
    return "no record of NCCL's inspector; expected \"header\" with \"id\", \"rank\" and "
           "\"n_ranks\"";
  }
  const std::string host = text_at(metadata, "hostname");
  const std::string process = fmt::format("{}:{}", host, count_at(metadata, "pid"));
  if (line.contains("p2p_perf")) {
    recorded.point_to_point.insert(process);
  }
  if (!line.contains("coll_perf")) {
    return "";  // Statistics, network proxies.
  }
  const json::Value& perf = object_at(line, "coll_perf");
  const std::string function = text_at(perf, "coll");
  const double seconds = number_at(perf, "coll_exec_time_us") * kMicrosecond;
  if (function.empty() || !perf.contains("coll_sn") || !(seconds >= 0 && seconds <= kMostSeconds)) {
    return "no collective; expected \"coll_perf\" with \"coll\", \"coll_sn\" and "
           "\"coll_exec_time_us\"";
  }
  if (text_at(perf, "coll_timing_source") == "collective_cpu") {
    ++recorded.by_cpu;  // Of handing it to the GPU, not of the collective.
    return "";
  }
  Group& group = recorded.groups[id];
  group.size = static_cast<std::uint32_t>(size);
  Member& member = group.members[static_cast<std::uint32_t>(rank)];
  const std::uint64_t time_us = count_at(metadata, "dump_timestamp_us");
  if (member.ops.empty()) {
    member.process = process;
    member.host = host;
    member.first_us = member.last_us = time_us;
  } else if (time_us < member.last_us) {
    return fmt::format("dump_timestamp_us is {}; expected {} or more, as in the rank's line before",
                       time_us, member.last_us);
  }
  member.last_us = time_us;
  member.with_first += time_us == member.first_us ? 1 : 0;
  const auto number = static_cast<std::uint32_t>(recorded.functions.size());
  member.ops.push_back(
      {{recorded.functions.try_emplace(function, number).first->second, count_at(perf, "coll_sn")},
       count_at(perf, "coll_msg_size_bytes"),
       seconds});
  member.seconds += seconds;
  recorded.seconds[process] += size > 1 ? seconds : 0;
  return "";
}

/// After how many operations functions and sizes repeat; 1 when they do not.
std::uint32_t period_of(const std::vector<Op>& ops) {
  constexpr std::size_t kLooked = 8192;
  constexpr double kAlike = 0.98;
  const std::size_t looked = std::min(ops.size(), kLooked);
  for (std::size_t period = 1; period <= looked / 4; ++period) {
    std::size_t alike = 0;
    for (std::size_t i = period; i < looked; ++i) {
      alike +=
          ops[i].key.first == ops[i - period].key.first && ops[i].bytes == ops[i - period].bytes
              ? 1
              : 0;
    }
    if (static_cast<double>(alike) >= kAlike * static_cast<double>(looked - period)) {
      return static_cast<std::uint32_t>(period);
    }
  }
  return 1;
}

/// [operation][rank]: seconds of the operations that all ranks have, as the first rank ended them,
/// which stay in `order`.
std::vector<std::vector<double>> seconds_of(const Group& group, std::vector<Op>& order) {
  std::vector<std::map<Key, double>> known;
  for (const auto& [rank, member] : group.members) {
    std::map<Key, double>& of_rank = known.emplace_back();
    for (const Op& op : member.ops) {
      of_rank[op.key] = op.seconds;
    }
  }
  std::vector<std::vector<double>> seconds;
  std::erase_if(order, [&](const Op& op) {
    std::vector<double> row;
    for (const auto& of_rank : known) {
      if (const auto found = of_rank.find(op.key); found != of_rank.end()) {
        row.push_back(found->second);
      }
    }
    const bool whole = row.size() == known.size();
    if (whole) {
      seconds.push_back(std::move(row));
    }
    return !whole;
  });
  return seconds;
}

Communicator communicator_of(const std::string& id, const Group& group) {
  Communicator out;
  out.id = id;
  out.size = group.size;
  std::vector<double> paces;
  for (const auto& [rank, member] : group.members) {
    out.trace.ranks.push_back(
        {rank, 0, rank, fmt::format("rank-{}@{}", rank, printable(member.host))});
    paces.push_back(member.pace_s());
  }
  std::vector<Op> order = group.members.begin()->second.ops;
  const std::vector<std::vector<double>> seconds = seconds_of(group, order);
  out.per_step = period_of(order);
  out.step_s = median(paces) * out.per_step;
  out.trace.steps = order.size() / out.per_step;
  for (std::size_t step = 0; step < out.trace.steps; ++step) {
    std::vector<double> inside(paces.size());
    for (std::size_t op = step * out.per_step; op < (step + 1) * out.per_step; ++op) {
      for (std::size_t rank = 0; rank < inside.size(); ++rank) {
        inside[rank] += seconds[op][rank];
      }
    }
    const double usual_s = median(inside);
    for (std::size_t rank = 0; rank < inside.size(); ++rank) {
      const double compute_s = std::max(out.step_s + usual_s - inside[rank], 0.01 * out.step_s);
      out.trace.rows.push_back(
          {step, static_cast<std::uint32_t>(rank), true, out.step_s, compute_s});
    }
  }
  return out;
}

void mark_elsewhere(Communicator& communicator, const Recorded& recorded) {
  for (const auto& [rank, member] : recorded.groups.at(communicator.id).members) {
    const double others_s = recorded.seconds.at(member.process) - member.seconds;
    communicator.elsewhere.push_back(others_s > kLittle * member.seconds ||
                                     recorded.point_to_point.contains(member.process));
  }
}

}  // namespace

Result<std::vector<Communicator>> read_inspector(std::string_view name, std::string_view text,
                                                 const ReplayProgress& progress) {
  Recorded recorded;
  Lines lines(text, progress);
  while (lines.next()) {
    if (lines.blank()) {
      continue;
    }
    const auto value = json::parse(lines.line());
    const std::string wrong = value ? add(recorded, *value) : value.error().message;
    if (!wrong.empty()) {
      return fail(ErrorCode::kInvalid, "{}:{}: {}", name, lines.number(), wrong);
    }
  }
  std::vector<Communicator> communicators;
  for (const auto& [id, group] : recorded.groups) {
    if (group.members.size() < 2) {
      continue;
    }
    Communicator communicator = communicator_of(id, group);
    if (communicator.step_s <= 0) {
      return fail(ErrorCode::kInvalid,
                  "{}: the collectives of communicator {} were written all at once, so the time "
                  "between them is not known; record with "
                  "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=1000000 or less",
                  name, printable(id));
    }
    if (communicator.trace.steps == 0) {
      return fail(ErrorCode::kInvalid,
                  "{}: no collective of communicator {} was recorded by all of its {}; make the "
                  "plugin write more often or with a larger ring",
                  name, printable(id), format_count(group.members.size(), "rank"));
    }
    mark_elsewhere(communicator, recorded);
    communicators.push_back(std::move(communicator));
  }
  if (communicators.empty()) {
    return fail(ErrorCode::kInvalid,
                "{}: no communicator of which two ranks were recorded{}; put the files of all "
                "processes into one: cat *.log",
                name,
                recorded.by_cpu == 0
                    ? ""
                    : fmt::format(" ({} timed by the CPU are of no use)", recorded.by_cpu));
  }
  return communicators;
}

}  // namespace tapas::ctl
