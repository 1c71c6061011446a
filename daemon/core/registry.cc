#include "daemon/core/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tapas::daemon {
namespace {

constexpr std::chrono::seconds kBetweenNews{60};
constexpr std::size_t kNamedFindings = 3;

/// Those of `all` that `some` has not.
std::vector<NodeFinding> missing_in(const std::vector<NodeFinding>& some,
                                    const std::vector<NodeFinding>& all) {
  std::vector<NodeFinding> out;
  std::copy_if(all.begin(), all.end(), std::back_inserter(out), [&](const NodeFinding& one) {
    return std::none_of(some.begin(), some.end(), [&](const NodeFinding& other) {
      return one.device == other.device && one.kind == other.kind;
    });
  });
  return out;
}

}  // namespace

double silence_s(const Agent& agent, const Now& now) {
  return std::chrono::duration<double>(now.steady - agent.last_heard).count();
}

Registry::Arrival Registry::hello(const AgentHello& hello, const Now& now) {
  Agent& agent = agents_[hello.node];
  const Arrival arrival{!agent.connected, agent.connected && agent.nonce != hello.nonce};
  agent.connected = true;
  agent.nonce = hello.nonce;
  agent.last_heard = now.steady;
  agent.jobs.clear();
  for (const JobAttachment& job : hello.jobs) {
    agent.jobs[job.job] = job;
  }
  return arrival;
}

bool Registry::heard(const std::string& node, const Now& now) {
  const auto found = agents_.find(node);
  if (found == agents_.end() || !found->second.connected) {
    return false;
  }
  found->second.last_heard = now.steady;
  return true;
}

void Registry::count(const AgentHeartbeat& heartbeat) {
  Agent& agent = agents_[heartbeat.node];
  agent.records = heartbeat.records_sent;
  agent.records_dropped = heartbeat.records_dropped;
}

void Registry::find(const AgentFindings& findings) {
  agents_[findings.node].findings = findings.findings;
}

std::vector<FindingNews> Registry::take_finding_news(const Now& now) {
  std::vector<FindingNews> news;
  for (auto& [node, agent] : agents_) {
    if (agent.findings == agent.told || now.steady < agent.may_tell_at) {
      continue;
    }
    // A text has figures that change; device and kind say whether it is the same.
    FindingNews of_node{node, missing_in(agent.told, agent.findings),
                        missing_in(agent.findings, agent.told)};
    agent.told = agent.findings;
    if (!of_node.begun.empty() || !of_node.over.empty()) {
      agent.may_tell_at = now.steady + kBetweenNews;
      news.push_back(std::move(of_node));
    }
  }
  return news;
}

std::string Registry::findings_of(const std::string& node) const {
  const auto found = agents_.find(node);
  std::string out;
  for (std::size_t i = 0; found != agents_.end() && i < found->second.findings.size(); ++i) {
    if (i == kNamedFindings) {
      return out + fmt::format("; {} more", found->second.findings.size() - i);
    }
    out += (out.empty() ? "" : "; ") + found->second.findings[i].text;
  }
  return out;
}

std::vector<std::string> Registry::expire(double lost_s, const Now& now) {
  std::vector<std::string> lost;
  for (auto& [node, agent] : agents_) {
    if (agent.connected && silence_s(agent, now) > lost_s) {
      agent.connected = false;
      lost.push_back(node);
    }
  }
  return lost;
}

bool Registry::connected(const std::string& node) const {
  const auto found = agents_.find(node);
  return found != agents_.end() && found->second.connected;
}

bool Registry::attached(const std::string& node, const std::string& job) const {
  const auto found = agents_.find(node);
  return found != agents_.end() && found->second.connected && found->second.jobs.contains(job);
}

}  // namespace tapas::daemon
