#pragma once

#include "tests/scenario/sim.h"
#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

/// What the scenario tests ask a Sim.
namespace tapas::daemon::sim {

/// `nodes` nodes of two devices, each a TP group; `stages` stages, so nodes / stages replicas.
inline std::shared_ptr<const solver::Job> job_on(std::uint32_t nodes, std::uint32_t stages = 2,
                                                 std::uint32_t blocks = 14,
                                                 std::uint32_t spares = 0, double pause_s = 0.2) {
  solver::Job job = solver::testing::small_job(blocks, nodes + spares, 2, 8 * nodes);
  job.search.min_stages = stages;
  job.search.max_stages = stages;
  job.search.tp_widths = {2};
  job.switch_pause_s = pause_s;
  for (std::uint32_t n = nodes; n < nodes + spares; ++n) {
    job.cluster.nodes[n].spare = true;
  }
  return std::make_shared<const solver::Job>(std::move(job));
}

inline Options automatic() {
  Options options;
  options.config.auto_replan = true;
  return options;
}

inline bool watching(const Sim& sim) { return sim.view().phase == "watching"; }

inline std::string node_name(const Sim& sim, std::uint32_t index) {
  return sim.core().job("small")->cluster.nodes[index].name;
}

inline Epoch epoch(const Sim& sim) { return sim.core().plan("small")->epoch; }

inline bool uses(const Sim& sim, std::uint32_t node) {
  for (const auto& replica : sim.core().plan("small")->placement) {
    for (const solver::Position& position : replica) {
      if (position.node == NodeId(node)) {
        return true;
      }
    }
  }
  return false;
}

/// Of a decision or a journal line.
template <typename Row>
double number(const Row& row, const std::string& key) {
  for (const Evidence& entry : row.evidence) {
    if (entry.key == key) {
      return std::holds_alternative<double>(entry.value)
                 ? std::get<double>(entry.value)
                 : static_cast<double>(std::get<std::int64_t>(entry.value));
    }
  }
  ADD_FAILURE() << "no " << key << " with: " << row.sentence;
  return 0;
}

template <typename Row>
std::string text(const Row& row, const std::string& key) {
  for (const Evidence& entry : row.evidence) {
    if (entry.key == key) {
      return std::get<std::string>(entry.value);
    }
  }
  return "";
}

/// All journal lines of a kind, for a failed check.
inline std::string told(const Sim& sim, const std::string& kind) {
  std::string out;
  for (const EventRow& row : sim.events(kind)) {
    out += row.sentence + "\n";
  }
  return out;
}

}  // namespace tapas::daemon::sim
