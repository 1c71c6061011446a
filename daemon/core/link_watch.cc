#include "daemon/core/link_watch.h"

#include "base/median.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

namespace tapas::daemon {
namespace {

constexpr std::uint32_t kLearn = 8;
constexpr std::uint32_t kClear = 3;  // clear intervals that an alarm takes
constexpr double kSlack = 0.1;       // flows share switches: a tenth comes and goes
// Above the links of its tier by more than this (65 %), a new link is slow from the start.
constexpr double kSpread = 0.5;
// Links of a tier that must be known before a new one is held against them.
constexpr std::size_t kFewLinks = 4;
// Observations of each link that a verdict waits for after the first alarm.
constexpr std::size_t kSettle = 3;
// A link beside a slow one joins it when it is so sure and so near to its level. It is waited for
// when it lies there by now, as long again as the first alarm took, at most so many intervals.
constexpr double kJoinErrors = 4;
constexpr double kJoinShare = 0.6;
constexpr double kNearShare = 0.5;
constexpr std::size_t kFew = 4;
constexpr std::uint32_t kMostRounds = 32;

bool share_a_nic(const std::pair<NodeId, NodeId>& a, const std::pair<NodeId, NodeId>& b) {
  return a.first == b.first || a.second == b.second;
}

}  // namespace

std::vector<LinkFault> parts_of(const std::vector<std::pair<NodeId, NodeId>>& slow,
                                const std::vector<std::pair<NodeId, NodeId>>& fine) {
  std::vector<LinkFault> parts;
  std::set<NodeId> sends;
  std::set<NodeId> receives;
  for (const auto& [from, to] : fine) {
    sends.insert(from);
    receives.insert(to);
  }
  std::set<std::pair<NodeId, NodeId>> left(slow.begin(), slow.end());
  for (;;) {
    // Who explains most of what is left.
    std::map<std::pair<NodeId, bool>, std::uint32_t> explains;
    for (const auto& [from, to] : left) {
      explains[{from, true}] += sends.contains(from) ? 0 : 1;
      explains[{to, false}] += receives.contains(to) ? 0 : 1;
    }
    const auto most =
        std::max_element(explains.begin(), explains.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == explains.end() || most->second < 2) {
      break;
    }
    const auto [node, sending] = most->first;
    parts.push_back({.part = sending ? LinkFault::Part::kSend : LinkFault::Part::kReceive,
                     .from = node,
                     .to = node,
                     .links = most->second});
    std::erase_if(left, [node = node, sending = sending](const auto& link) {
      return (sending ? link.first : link.second) == node;
    });
  }
  for (const auto& [from, to] : left) {
    parts.push_back({.part = LinkFault::Part::kPath, .from = from, .to = to, .links = 1});
  }
  return parts;
}

std::string_view to_string(LinkFault::Part part) {
  switch (part) {
    case LinkFault::Part::kSend:
      return "send";
    case LinkFault::Part::kReceive:
      return "receive";
    case LinkFault::Part::kPath:
      break;
  }
  return "path";
}

std::optional<LinkFault::Part> part_of(std::string_view name) {
  for (const auto part :
       {LinkFault::Part::kSend, LinkFault::Part::kReceive, LinkFault::Part::kPath}) {
    if (to_string(part) == name) {
      return part;
    }
  }
  return std::nullopt;
}

Sensitivity LinkWatch::Link::sensitivity() const {
  return Sensitivity::of(noise.sigma(), kClear, kSlack);
}

bool LinkWatch::Link::slow() const {
  return level.blamed() || (level.alarmed() && level.holds(sensitivity()));
}

void LinkWatch::follow_plan() {
  for (auto it = links_.begin(); it != links_.end();) {
    Link& link = it->second;
    if (!std::exchange(link.live, false) && !link.level.blamed()) {
      learnt_[tier(it->first)] -= link.level.learning() ? 0 : 1;
      it = links_.erase(it);
    } else {
      ++it;
    }
  }
}

void LinkWatch::new_session() {
  learnt_ = {};
  for (auto& [pair, link] : links_) {
    link.level.restart();
    link.noise.restart();
    learnt_[tier(pair)] += link.level.learning() ? 0 : 1;
  }
  waiting_ = 0;
  due_ = false;
}

std::uint32_t LinkWatch::tier(const Pair& pair) const {
  const solver::Node& a = cluster_.nodes[pair.first.value()];
  const solver::Node& b = cluster_.nodes[pair.second.value()];
  if (a.type != b.type) {
    return 3;
  }
  return a.tor == b.tor ? 0 : (a.pod == b.pod ? 1 : 2);
}

double LinkWatch::usual(const Pair& pair) const {
  if (learnt_[tier(pair)] < kFewLinks) {
    return 0;
  }
  std::vector<double> values;
  for (const auto& [other, link] : links_) {
    if (other != pair && tier(other) == tier(pair) && !link.level.learning()) {
      values.push_back(link.level.baseline());
    }
  }
  return values.size() < kFewLinks ? 0 : median(std::move(values));
}

void LinkWatch::observe(NodeId from, NodeId to, double seconds_per_byte, const StepStamp& stamp) {
  const Pair pair{from, to};
  const double value = std::log(seconds_per_byte);
  auto found = links_.find(pair);
  if (found == links_.end()) {
    if (links_.size() >= kLinksPerNode * cluster_.nodes.size()) {
      return;
    }
    found = links_.emplace(pair, Link{Level(kLearn, kSpread), {}, value, true}).first;
    // A new way through a slow NIC is taken to be as slow as that, until it is seen not to be.
    for (const LinkFault& fault : faults_) {
      if (shows(fault, pair)) {
        const double before = usual(pair);
        found->second.level.restore(before != 0 ? before : std::log(fault.before_s),
                                    std::log(fault.slowdown));
        ++learnt_[tier(pair)];
        break;
      }
    }
  }
  Link& link = found->second;
  link.live = true;
  link.noise.add(std::abs(value - std::exchange(link.last, value)));
  const bool was_learning = link.level.learning();
  if (was_learning) {
    link.level.expect(usual(pair));
  }
  const bool was_slow = link.level.alarmed();
  link.level.observe(value, link.sensitivity(), stamp);
  learnt_[tier(pair)] += was_learning && !link.level.learning() ? 1 : 0;
  const auto live = [this] {
    return static_cast<std::size_t>(std::count_if(
        links_.begin(), links_.end(), [](const auto& entry) { return entry.second.live; }));
  };
  if (waiting_ > 0) {
    if (--waiting_ == 0 && undecided()) {
      ++rounds_;
      waiting_ = live();
    }
    due_ = waiting_ == 0;
  } else if (!due_ && !was_slow && link.level.alarmed() && !link.level.blamed()) {
    waiting_ = kSettle * live();
    rounds_ = 0;
  }
}

LinkWatch::Untold LinkWatch::untold() const {
  Untold out;
  for (const auto& [pair, link] : links_) {
    if (link.live && !link.level.blamed() && link.slow()) {
      out.emplace_back(pair, &link.level);
    }
  }
  return out;
}

bool LinkWatch::joins(const Pair& pair, const Link& link, const Untold& slow) {
  if (!link.live || link.level.learning() || link.slow() || link.level.confidence() < kJoinErrors) {
    return false;
  }
  return std::any_of(slow.begin(), slow.end(), [&](const auto& other) {
    return share_a_nic(pair, other.first) &&
           link.level.deviation() > kJoinShare * other.second->deviation();
  });
}

bool LinkWatch::undecided() const {
  const Untold slow = untold();
  return std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
    const auto& [pair, link] = entry;
    if (!link.live || link.level.learning() || link.slow() || joins(pair, link, slow)) {
      return false;
    }
    const double near = link.level.recent(kFew) - link.level.baseline();
    return std::any_of(slow.begin(), slow.end(), [&, &ends = pair](const auto& other) {
      return share_a_nic(ends, other.first) && near > kNearShare * other.second->deviation() &&
             rounds_ < std::min(other.second->run(), kMostRounds);
    });
  });
}

bool LinkWatch::rising() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) {
    return entry.second.live && entry.second.level.rising(0);
  });
}

bool LinkWatch::shows(const LinkFault& fault, const Pair& pair) const {
  switch (fault.part) {
    case LinkFault::Part::kSend:
      return pair.first == fault.from;
    case LinkFault::Part::kReceive:
      return pair.second == fault.to;
    case LinkFault::Part::kPath:
      break;
  }
  return pair == Pair(fault.from, fault.to);
}

std::vector<LinkFault> LinkWatch::take_faults() {
  due_ = false;
  std::vector<Pair> slow;
  std::vector<Pair> fine;
  const Untold not_told = untold();
  for (auto& [pair, link] : links_) {
    if (link.live && !link.level.learning()) {
      (link.slow() || joins(pair, link, not_told) ? slow : fine).push_back(pair);
    }
    if (link.level.alarmed() && !link.slow()) {
      link.level.dismiss();
    }
  }
  std::vector<LinkFault> fresh;
  for (LinkFault& fault : parts_of(slow, fine)) {
    std::vector<double> deviations;
    std::vector<double> before;
    bool first = true;
    for (const Pair& pair : slow) {
      if (!shows(fault, pair)) {
        continue;
      }
      Level& level = links_.at(pair).level;
      if (!level.blamed()) {
        if (first || level.since().begin_s < fault.since.begin_s) {
          fault.since = level.since();
        }
        first = false;
        fault.confidence = std::max(fault.confidence, level.confidence());
        level.blame();
      }
      deviations.push_back(level.level());
      before.push_back(level.baseline());
    }
    const double deviation = median(std::move(deviations));
    const double baseline = median(std::move(before));
    fault.slowdown = std::exp(deviation);
    fault.before_s = std::exp(baseline);
    fault.after_s = std::exp(baseline + deviation);
    const auto known = std::find_if(faults_.begin(), faults_.end(), [&](const LinkFault& other) {
      return std::tie(other.part, other.from, other.to) ==
             std::tie(fault.part, fault.from, fault.to);
    });
    if (known == faults_.end()) {
      // A NIC explains what was taken for its paths.
      std::erase_if(faults_, [&](const LinkFault& other) {
        return other.part == LinkFault::Part::kPath && shows(fault, {other.from, other.to});
      });
      faults_.push_back(fault);
      fresh.push_back(fault);
    }
  }
  return fresh;
}

std::vector<LinkFault> LinkWatch::take_recovered() {
  std::vector<LinkFault> back;
  std::erase_if(faults_, [&](const LinkFault& fault) {
    bool any = false;
    for (const auto& [pair, link] : links_) {
      if (shows(fault, pair) && link.live && link.level.blamed()) {
        if (!link.level.recovered()) {
          return false;
        }
        any = true;
      }
    }
    if (any) {
      back.push_back(fault);
    }
    return any;
  });
  for (const LinkFault& fault : back) {
    for (auto& [pair, link] : links_) {
      if (shows(fault, pair) && link.level.blamed()) {
        link.level.clear();
      }
    }
  }
  return back;
}

std::vector<SlowLink> LinkWatch::slow_links() const {
  std::vector<SlowLink> out;
  for (const LinkFault& fault : faults_) {
    for (const auto& [pair, link] : links_) {
      if (shows(fault, pair) && link.level.blamed()) {
        out.push_back({fault.part, pair.first, pair.second, std::exp(link.level.baseline()),
                       std::exp(link.level.level()), fault.since.begin_s});
      }
    }
  }
  return out;
}

void LinkWatch::restore(const SlowLink& slow) {
  const Pair pair{slow.from, slow.to};
  Link link{Level(kLearn, kSpread), {}, std::log(slow.before_s * slow.slowdown), false};
  link.level.restore(std::log(slow.before_s), std::log(slow.slowdown));
  links_.insert_or_assign(pair, link);
  ++learnt_[tier(pair)];
  const auto known = std::find_if(faults_.begin(), faults_.end(), [&](const LinkFault& fault) {
    return fault.part == slow.part && shows(fault, pair);
  });
  if (known != faults_.end()) {
    ++known->links;
    return;
  }
  const bool receive = slow.part == LinkFault::Part::kReceive;
  const bool send = slow.part == LinkFault::Part::kSend;
  faults_.push_back({.part = slow.part,
                     .from = receive ? slow.to : slow.from,
                     .to = send ? slow.from : slow.to,
                     .slowdown = slow.slowdown,
                     .before_s = slow.before_s,
                     .after_s = slow.before_s * slow.slowdown,
                     .since = {0, slow.since_s},
                     .links = 1});
}

void LinkWatch::add_to(solver::ClusterState& state) const {
  if (faults_.empty()) {
    return;
  }
  state.node_links.resize(cluster_.nodes.size());
  for (const LinkFault& fault : faults_) {
    switch (fault.part) {
      case LinkFault::Part::kSend:
        state.node_links[fault.from.value()].send = fault.slowdown;
        break;
      case LinkFault::Part::kReceive:
        state.node_links[fault.to.value()].receive = fault.slowdown;
        break;
      case LinkFault::Part::kPath:
        state.paths.push_back({fault.from, fault.to, fault.slowdown});
        break;
    }
  }
}

std::string to_text(const LinkFault& fault, const solver::Cluster& cluster) {
  const std::string& from = cluster.nodes[fault.from.value()].name;
  const std::string& to = cluster.nodes[fault.to.value()].name;
  switch (fault.part) {
    case LinkFault::Part::kSend:
      return fmt::format("node {} takes {:.2f} times as long to send", from, fault.slowdown);
    case LinkFault::Part::kReceive:
      return fmt::format("node {} takes {:.2f} times as long to receive", to, fault.slowdown);
    case LinkFault::Part::kPath:
      break;
  }
  return fmt::format("transfers from node {} to node {} take {:.2f} times as long", from, to,
                     fault.slowdown);
}

}  // namespace tapas::daemon
