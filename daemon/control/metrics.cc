#include "daemon/control/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace tapas::daemon {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Label = ClientMetric::Label;

/// So many nodes are told with their slowdown, the slowest first.
constexpr std::size_t kSlowNodes = 16;

class Metrics {
 public:
  class Family {
   public:
    explicit Family(MetricFamily& family) : family_(family) {}
    Family& add(double value, std::vector<Label> labels = {}) {
      ClientMetric& metric = family_.metric.emplace_back();
      metric.label = std::move(labels);
      (family_.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
      return *this;
    }
    Family& add(std::uint64_t value, std::vector<Label> labels = {}) {
      return add(static_cast<double>(value), std::move(labels));
    }

   private:
    MetricFamily& family_;
  };

  Family gauge(const char* name, const char* help) { return family(name, help, MetricType::Gauge); }
  Family counter(const char* name, const char* help) {
    return family(name, help, MetricType::Counter);
  }
  [[nodiscard]] std::string text() && {
    std::vector<MetricFamily> filled;
    for (MetricFamily& family : families_) {
      if (!family.metric.empty()) {
        filled.push_back(std::move(family));
      }
    }
    return prometheus::TextSerializer().Serialize(filled);
  }

 private:
  Family family(const char* name, const char* help, MetricType type) {
    families_.push_back({name, help, type, {}});
    return Family(families_.back());
  }
  std::deque<MetricFamily> families_;  // a Family refers to its place
};

void add_daemon(Metrics& metrics, const StatusView& status, std::uint64_t unwritten) {
  metrics.gauge("tapas_build_info", "Always 1; the version of the daemon.")
      .add(1.0, {{"version", TAPAS_VERSION}});
  metrics.gauge("tapas_term", "Grows by one at each start of the daemon.").add(status.term.value());
  metrics.gauge("tapas_auto_replan", "1 while the daemon switches jobs by itself.")
      .add(status.auto_replan ? 1.0 : 0.0);
  metrics
      .gauge("tapas_store_unwritten",
             "Writes that wait for the disk of state_dir; no plan changes by itself meanwhile.")
      .add(unwritten);
}

void add_wire(Metrics& metrics, const StatusView& status, const WireView& wire,
              const std::map<std::string, std::uint64_t>& rejected) {
  auto received = metrics.counter("tapas_records_received_total", "Records taken in.");
  for (const auto& [kind, count] : wire.received) {
    received.add(count, {{"kind", kind}});
  }
  std::uint64_t dropped = 0;
  for (const AgentView& agent : status.agents) {
    dropped += agent.records_dropped;
  }
  metrics
      .gauge("tapas_agent_records_dropped",
             "Records that the agents of now dropped since they started, as they say.")
      .add(dropped);
  metrics.counter("tapas_over_limit_total", "Messages dropped as a node sent more than it may.")
      .add(std::accumulate(wire.over_limit.begin(), wire.over_limit.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const auto& node) { return sum + node.second; }));
  auto refused = metrics.counter("tapas_rejected_total", "Inputs that were refused.");
  for (const auto& [reason, count] : rejected) {
    refused.add(count, {{"reason", reason}});
  }
  if (wire.answers > 0) {
    metrics
        .gauge("tapas_answer_seconds",
               "From taking an agent's message to handing on its answer, last 10 to 20 s.")
        .add(wire.answer_median_s, {{"quantile", "0.5"}})
        .add(wire.answer_p99_s, {{"quantile", "0.99"}});
  }
}

void add_agents(Metrics& metrics, const StatusView& status) {
  double connected = 0;
  double drained = 0;
  double pinned = 0;
  double quarantined = 0;
  std::vector<const AgentView*> slow;
  for (const AgentView& agent : status.agents) {
    connected += agent.connected ? 1 : 0;
    drained += agent.drained ? 1 : 0;
    pinned += agent.pinned ? 1 : 0;
    quarantined += agent.quarantine_s > 0 ? 1 : 0;
    if (agent.connected && agent.slowdown > 1) {
      slow.push_back(&agent);
    }
  }
  metrics.gauge("tapas_agents", "Agents that the daemon knows, by state.")
      .add(connected, {{"state", "connected"}})
      .add(static_cast<double>(status.agents.size()) - connected, {{"state", "lost"}});
  metrics.gauge("tapas_nodes", "Nodes that operators or the daemon set apart.")
      .add(drained, {{"state", "drained"}})
      .add(pinned, {{"state", "pinned"}})
      .add(quarantined, {{"state", "quarantined"}});
  metrics.gauge("tapas_slow_nodes", "Connected nodes that are slower than their equals.")
      .add(static_cast<std::uint64_t>(slow.size()));
  std::sort(slow.begin(), slow.end(), [](const AgentView* a, const AgentView* b) {
    return std::pair(-a->slowdown, a->node) < std::pair(-b->slowdown, b->node);
  });
  slow.resize(std::min(slow.size(), kSlowNodes));
  auto slowdown =
      metrics.gauge("tapas_node_slowdown_ratio",
                    "Times what its equals take, worst device; the slowest nodes only.");
  for (const AgentView* agent : slow) {
    slowdown.add(agent->slowdown, {{"node", agent->node}});
  }
}

/// "switching: armed" -> "switching", "waiting for 3 agents" -> "waiting".
std::string phase_word(const std::string& phase) {
  return phase.substr(0, std::min(phase.find(':'), phase.find(" for ")));
}

void add_jobs(Metrics& metrics, const StatusView& status) {
  const auto each = [&](Metrics::Family family, auto value) {
    for (const JobView& job : status.jobs) {
      if (const double number = value(job); number > 0) {
        family.add(number, {{"job", job.job}});
      }
    }
  };
  each(metrics.gauge("tapas_plan_epoch", "The plan that is active."), [](const JobView& job) {
    return job.plan ? static_cast<double>(job.plan->epoch.value()) : 0;
  });
  each(metrics.gauge("tapas_last_step", "Last step that was judged."),
       [](const JobView& job) { return static_cast<double>(job.last_step); });
  // A job that reports nothing has no step time, rather than the last one for ever.
  each(metrics.gauge("tapas_step_seconds", "Recent median step time, as observed."),
       [](const JobView& job) { return job.ranks_reporting > 0 ? job.observed_step_s : 0; });
  each(metrics.gauge("tapas_healthy_step_seconds", "Step time learnt while nobody was slow."),
       [](const JobView& job) { return job.healthy_step_s; });
  each(metrics.gauge("tapas_predicted_step_seconds", "Step time that the active plan should have."),
       [](const JobView& job) { return job.predicted_step_s; });
  each(
      metrics.gauge("tapas_bound_step_seconds", "No plan can be faster with the slowdowns of now."),
      [](const JobView& job) { return job.bound_step_s; });
  each(metrics.gauge("tapas_slow_links", "Paths between nodes that are slow."),
       [](const JobView& job) { return static_cast<double>(job.slow_links.size()); });
  auto ranks = metrics.gauge("tapas_ranks", "Ranks of the plan, and those that report.");
  auto phase = metrics.gauge("tapas_job_phase", "Always 1; what the daemon does with the job.");
  for (const JobView& job : status.jobs) {
    ranks.add(std::uint64_t{job.ranks_expected}, {{"job", job.job}, {"state", "expected"}});
    ranks.add(std::uint64_t{job.ranks_reporting}, {{"job", job.job}, {"state", "reporting"}});
    phase.add(1.0, {{"job", job.job}, {"phase", phase_word(job.phase)}});
  }
  auto events = metrics.counter("tapas_events_total",
                                "Lines of the journal; job is empty for those of no job.");
  for (const auto& [job, kinds] : status.events) {
    for (const auto& [kind, count] : kinds) {
      events.add(count, {{"job", job}, {"kind", kind}});
    }
  }
}

}  // namespace

std::string metrics_text(const StatusView& status, const WireView& wire,
                         const std::map<std::string, std::uint64_t>& rejected,
                         std::uint64_t unwritten) {
  Metrics metrics;
  add_daemon(metrics, status, unwritten);
  add_wire(metrics, status, wire, rejected);
  add_agents(metrics, status);
  add_jobs(metrics, status);
  return std::move(metrics).text();
}

}  // namespace tapas::daemon
