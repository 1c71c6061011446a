#pragma once

#include "base/check.h"
#include "solver/model/cluster.h"
#include "solver/model/io/load.h"
#include "solver/model/job.h"

#include <string>

namespace tapas::solver {

inline std::string example(const std::string& name) {
  return std::string(TAPAS_SOURCE_DIR) + "/config/examples/" + name;
}

/// Six layers, four nodes of two devices, two ToRs in one pod.
inline Job tiny_job() {
  auto job = load_job(example("gpt-tiny-4x2.json"));
  TAPAS_CHECK(job.has_value(), "{}", job.error().message);
  return *job;
}

/// Nodes of 2, 3 and 2 devices; the first two share a ToR, the last is in a pod of its own.
inline Cluster uneven_cluster() {
  Cluster cluster;
  cluster.name = "uneven";
  cluster.device_types.push_back({.name = "gpu",
                                  .peak_flops = 100e12,
                                  .memory_bytes = 80e9,
                                  .memory_bytes_per_s = 2e12,
                                  .matmul_efficiency = 0.7,
                                  .attention_efficiency = 0.5,
                                  .collective_library = "nccl"});
  cluster.node_types = {{"two", 0, 2, 100e9, 1e-6, 25e9, 1, ""},
                        {"three", 0, 3, 100e9, 1e-6, 25e9, 1, ""}};
  cluster.nodes = {{"a", 0, "t0", "p0", false},
                   {"b", 1, "t0", "p0", false},
                   {"c", 0, "t1", "p0", false},
                   {"d", 0, "t2", "p1", true}};
  cluster.tor = {"tor", 1e-6, 1};
  cluster.pod = {"pod", 2e-6, 1};
  cluster.core = {"core", 3e-6, 2};
  return cluster;
}

}  // namespace tapas::solver
