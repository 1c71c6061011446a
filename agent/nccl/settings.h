#pragma once

#include <cstddef>
#include <cstdint>

namespace tapas::nccl {

/// One rank of the job, in the order of the job's ranks.
struct Peer {
  std::uint64_t node = 0;  ///< name hash
  std::uint32_t slot = 0;  ///< device slot of the cluster
};

/// What the environment says. docs/agent.md has the variables.
struct Settings {
  char job[256] = {};
  char node[256] = {};
  std::uint64_t session = 0;
  std::uint32_t rank = 0;  ///< in the job
  std::uint32_t slot = 0;  ///< device slot of the cluster
  std::uint64_t settle_ns = 0;
  std::uint32_t every = 0;       ///< of so many steps one is measured
  std::uint64_t fixed_mask = 0;  ///< 0 = as needed
  Peer* peers = nullptr;         ///< allocated with malloc; all ranks of the job
  std::size_t peer_count = 0;
};

/// Reads the environment and the file of ranks; allocates. True when the plugin is to work. Else
/// `problem` has the reason, or is empty when nobody asked for it.
[[nodiscard]] bool read_settings(Settings& settings, char* problem, std::size_t problem_size);
void free_settings(Settings& settings);

}  // namespace tapas::nccl
