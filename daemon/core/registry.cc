#include "daemon/core/registry.h"

namespace tapas::daemon {

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
