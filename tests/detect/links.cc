#include "tests/detect/links.h"

#include "daemon/core/link_watch.h"
#include "tests/detect/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <utility>

namespace tapas::daemon::testing {
namespace {

constexpr double kBase = 4e-11;  // seconds of a byte at 25 GB/s
using Part = LinkFault::Part;

struct Link {
  NodeId from;
  NodeId to;
  double offset = 0;  // log
};
struct Truth {
  Part part = Part::kPath;
  NodeId from;
  NodeId to;
  [[nodiscard]] bool touches(const Link& link) const {
    return (part == Part::kReceive || link.from == from) && (part == Part::kSend || link.to == to);
  }
  [[nodiscard]] bool is(const LinkFault& fault) const {
    return fault.part == part && fault.from == from && fault.to == to;
  }
};

class Fabric {
 public:
  explicit Fabric(const LinkRun& run) : run_(run), random_(run.seed * 8 + 5) {
    stages_ = between(4, 8);
    replicas_ = between(2, 16);
    std::normal_distribution<double> offset(0, 0.1);
    for (std::uint32_t replica = 0; replica < replicas_; ++replica) {
      for (std::uint32_t stage = 0; stage + 1 < stages_; ++stage) {
        const NodeId here = node(replica, stage);
        const NodeId next = node(replica, stage + 1);
        links_.push_back({here, next, offset(random_)});
        links_.push_back({next, here, offset(random_)});
      }
    }
    draw_faults();
  }

  [[nodiscard]] std::size_t nodes() const { return std::size_t{stages_} * replicas_; }
  [[nodiscard]] const std::vector<Truth>& faults() const { return faults_; }

  /// Gives each link's time of a byte in the next interval.
  template <typename Record>
  void next(Record record) {
    std::normal_distribution<double> noise(0, run_.noise);
    const bool faulty = interval_++ >= run_.healthy;
    const double drift = 0.03 * std::sin(6.28 * interval_ / 500.0);
    if (run_.link_case == LinkCase::kCongestion) {
      congest();
    }
    for (const Link& link : links_) {
      const bool slow =
          faulty && std::any_of(faults_.begin(), faults_.end(),
                                [&](const Truth& fault) { return fault.touches(link); });
      const bool held = burst_ > 0 && link.to == congested_;
      record(link.from, link.to,
             kBase * std::exp(link.offset + drift + noise(random_)) *
                 (slow ? 1 + run_.depth : 1.0) * (held ? factor_ : 1.0));
    }
  }

 private:
  std::uint32_t between(std::uint32_t least, std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>(least, most)(random_);
  }
  [[nodiscard]] NodeId node(std::uint32_t replica, std::uint32_t stage) const {
    return NodeId(replica * stages_ + stage);
  }

  void draw_faults() {
    // Within the pipeline: at its ends a NIC is not to be told from the way.
    const std::uint32_t replica = between(0, replicas_ - 1);
    const NodeId inner = node(replica, between(1, stages_ - 2));
    const std::uint32_t other = (replica + 1) % replicas_;
    const std::uint32_t stage = between(0, stages_ - 2);
    const Truth way{Part::kPath, node(other, stage), node(other, stage + 1)};
    switch (run_.link_case) {
      case LinkCase::kHealthy:
      case LinkCase::kCongestion:
        break;
      case LinkCase::kSend:
        faults_ = {{Part::kSend, inner, inner}};
        break;
      case LinkCase::kReceive:
        faults_ = {{Part::kReceive, inner, inner}};
        break;
      case LinkCase::kPath:
        faults_ = {way};
        break;
      case LinkCase::kTwo:
        faults_ = {{Part::kSend, inner, inner}, way};
        break;
    }
  }

  /// One or two intervals of twenty to forty.
  void congest() {
    if (burst_ > 0) {
      --burst_;
    } else if (calm_ > 0) {
      --calm_;
    } else {
      burst_ = between(1, 2);
      calm_ = between(18, 38);
      congested_ = NodeId(between(0, static_cast<std::uint32_t>(nodes()) - 1));
      factor_ = std::uniform_real_distribution<double>(1.5, 3)(random_);
    }
  }

  const LinkRun run_;
  std::mt19937_64 random_;
  std::uint32_t stages_ = 0;
  std::uint32_t replicas_ = 0;
  std::vector<Link> links_;
  std::vector<Truth> faults_;
  std::uint32_t interval_ = 0;
  std::uint32_t burst_ = 0;
  std::uint32_t calm_ = 20;
  NodeId congested_;
  double factor_ = 1;
};

std::uint32_t quantile(std::vector<std::uint32_t> values, double q) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size() - 1)))];
}

}  // namespace

std::string_view to_string(LinkCase link_case) {
  switch (link_case) {
    case LinkCase::kHealthy:
      return "nothing";
    case LinkCase::kCongestion:
      return "congestion that comes and goes";
    case LinkCase::kSend:
      return "a NIC sends slowly";
    case LinkCase::kReceive:
      return "a NIC receives slowly";
    case LinkCase::kPath:
      return "one way between two nodes";
    case LinkCase::kTwo:
      break;
  }
  return "a NIC and a way at once";
}

void LinkOutcome::add(const LinkOutcome& other) {
  intervals += other.intervals;
  faults += other.faults;
  delays.insert(delays.end(), other.delays.begin(), other.delays.end());
  partly += other.partly;
  wrong += other.wrong;
}

LinkOutcome judge_links(const LinkRun& run) {
  Fabric fabric(run);
  solver::Cluster cluster;
  cluster.device_types.emplace_back();
  cluster.node_types.emplace_back().devices = 1;
  cluster.nodes.resize(fabric.nodes());
  LinkWatch watch(cluster);
  LinkOutcome outcome;
  outcome.intervals = run.healthy + run.faulty;
  const std::vector<Truth>& truths = fabric.faults();
  outcome.faults = static_cast<std::uint32_t>(truths.size());
  std::vector<bool> found(truths.size());
  for (std::uint32_t interval = 0; interval < outcome.intervals; ++interval) {
    fabric.next([&](NodeId from, NodeId to, double seconds_per_byte) {
      watch.observe(from, to, seconds_per_byte, {interval, static_cast<double>(interval)});
    });
    if (!watch.verdict_due()) {
      continue;
    }
    for (const LinkFault& fault : watch.take_faults()) {
      const auto truth = std::find_if(truths.begin(), truths.end(),
                                      [&](const Truth& one) { return one.is(fault); });
      const auto index = static_cast<std::size_t>(truth - truths.begin());
      const bool faulty = interval >= run.healthy;
      if (faulty && truth != truths.end() && !found[index]) {
        found[index] = true;
        outcome.delays.push_back(interval + 1 - run.healthy);
      } else if (faulty && fault.part == Part::kPath &&
                 std::any_of(truths.begin(), truths.end(), [&](const Truth& one) {
                   return one.part != Part::kPath && one.touches({fault.from, fault.to});
                 })) {
        ++outcome.partly;
      } else {
        ++outcome.wrong;
      }
    }
  }
  return outcome;
}

std::string link_table(std::uint32_t seeds, std::uint64_t first_seed) {
  std::vector<std::pair<std::string, LinkRun>> rows;
  for (const double noise : {0.05, 0.15}) {
    for (const LinkCase link_case : kLinkCases) {
      const bool quiet = link_case == LinkCase::kHealthy || link_case == LinkCase::kCongestion;
      for (const double depth : quiet ? std::vector{0.0} : std::vector{0.3, 1.0}) {
        LinkRun run;
        run.link_case = link_case;
        run.noise = noise;
        run.depth = depth;
        run.healthy = quiet ? 2000 : run.healthy;
        run.faulty = quiet ? 0 : run.faulty;
        rows.emplace_back(
            fmt::format("{:g} % | {} | {}", 100 * noise, to_string(link_case),
                        quiet ? std::string("-") : fmt::format("{:g} %", 100 * depth)),
            run);
      }
    }
  }
  std::vector<LinkOutcome> outcomes(rows.size() * seeds);
  for_each_of(
      outcomes.size(),
      [&](std::size_t i) {
        LinkRun run = rows[i / seeds].second;
        run.seed = first_seed + i % seeds;
        outcomes[i] = judge_links(run);
      },
      [](std::size_t) {});
  std::string text =
      "Links:\n\n| noise | fault | slower by | found | NIC told as a way | told wrongly | "
      "intervals | delay: median / "
      "p99 "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (std::size_t row = 0; row < rows.size(); ++row) {
    LinkOutcome sum;
    for (std::size_t seed = 0; seed < seeds; ++seed) {
      sum.add(outcomes[row * seeds + seed]);
    }
    const bool any = sum.faults > 0;
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} |\n", rows[row].first,
        any ? fmt::format("{:.1f} %", 100.0 * static_cast<double>(sum.delays.size()) / sum.faults)
            : std::string("-"),
        sum.partly, sum.wrong, sum.intervals,
        any ? fmt::format("{} / {}", quantile(sum.delays, 0.5), quantile(sum.delays, 0.99))
            : std::string("-"));
  }
  return text + fmt::format("\n{} runs each.\n\n", seeds);
}

}  // namespace tapas::daemon::testing
