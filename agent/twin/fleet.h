#pragma once

#include "agent/collect/daemon_link.h"
#include "agent/twin/node_agent.h"
#include "agent/twin/virtual_job.h"
#include "base/ids.h"
#include "base/result.h"
#include "solver/model/job.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tapas::twin {

/// The agents of a cluster's nodes, between the daemon and the virtual job. One thread.
class Fleet {
 public:
  struct Options {
    std::string endpoint;                ///< of the daemon
    std::string server_key;              ///< Z85, public
    std::vector<std::string> node_keys;  ///< Z85, secret, per NodeId
    std::uint64_t start_ns = 0;  ///< wall clock at the start: job time 0, and makes ids unique
    std::uint64_t seed = 1;
  };

  /// `model` and `job` must outlive this.
  Fleet(const solver::Job& model, VirtualJob& job, Options options);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  /// Starts the node's agent, again after kill(). kConflict when it runs.
  [[nodiscard]] Result<void> start(NodeId node, agent::TimePoint now);
  /// Its ranks train on; their records are lost and counted.
  void kill(NodeId node);

  /// Waits for a message, for `fds` to become readable, or until `wait_s` are over.
  void wait(double wait_s, const std::vector<int>& fds);
  /// Moves messages, orders and answers of the agents that have any.
  void run(agent::TimePoint now);
  /// Hands a step's records to the agents of its ranks.
  void record(const FinishedStep& step, agent::TimePoint now);

  [[nodiscard]] agent::TimePoint next_wakeup() const;
  /// Agents that the daemon has welcomed, and those it turned down for good.
  [[nodiscard]] std::size_t welcome() const;
  [[nodiscard]] std::size_t rejected() const;
  [[nodiscard]] std::size_t running() const;
  [[nodiscard]] std::uint64_t records_sent() const;
  [[nodiscard]] std::uint64_t records_dropped() const;

 private:
  struct Slot {
    std::unique_ptr<NodeAgent> agent;  ///< null = killed
    std::uint64_t watched = 0;         ///< rebuild whose descriptors are waited for
    agent::TimePoint due;              ///< for the next run
    bool ready = false;                ///< something came
  };
  void run_one(std::size_t node, agent::TimePoint now);
  /// Tells the agents which ranks died or started, which real ones see by the ranks' segments.
  void follow_ranks(agent::TimePoint now);
  [[nodiscard]] Result<void> attach_ranks(NodeId node, agent::TimePoint now);
  void watch(std::size_t node);
  /// One record of each directed pair of neighbouring stages on two nodes.
  void record_links(const FinishedStep& step, std::vector<std::vector<std::byte>>& packed) const;
  [[nodiscard]] std::size_t count(const std::function<bool(const NodeAgent&)>& is) const;

  const solver::Job& model_;
  VirtualJob& job_;
  const Options options_;
  std::uint64_t session_ = 0;
  std::uint64_t job_starts_ = 0;            ///< of the job, that session_ stands for
  std::uint64_t job_changes_ = 0;           ///< of its ranks, that the agents know of
  std::uint64_t starts_ = 0;                ///< of agents
  std::uint64_t sent_before_ = 0;           ///< by agents killed since
  std::uint64_t lost_records_ = 0;          ///< of killed agents
  std::vector<std::uint64_t> node_hashes_;  ///< per NodeId
  std::vector<wire::DeviceUuid> devices_;   ///< per RankId
  std::shared_ptr<agent::LinkContext> links_;
  std::vector<Slot> agents_;  ///< per NodeId
  int epoll_ = -1;
};

}  // namespace tapas::twin
