#pragma once

#include "agent/nccl/links.h"
#include "agent/nccl/pool.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tapas::nccl {

struct Communicator {
  std::atomic<std::uint32_t> ranks{0};
  /// Its ranks are the job's ranks in their order, so that a peer is known by its number.
  std::atomic<bool> whole_job{false};
  Links links;
};

inline constexpr std::size_t kMaxCommunicators = 128;
using Communicators = Pool<Communicator, kMaxCommunicators>;

}  // namespace tapas::nccl
