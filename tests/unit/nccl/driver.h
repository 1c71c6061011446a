#pragma once

#include "agent/collect/rank_segment.h"
#include "agent/nccl/abi.h"
#include "tests/unit/agent/temporary_folder.h"
#include "wire/record.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tapas::nccl {

/// Calls that no callback may make, counted while one runs: of malloc and its kin, of
/// pthread_mutex_lock and sched_yield. A sanitizer has the latter itself: then only the former.
[[nodiscard]] std::uint64_t forbidden_calls();
/// Between these, calls of this thread are counted.
void enter_callback();
void leave_callback();

/// NCCL's end of the interface: loads the real plugin and calls it as NCCL does. Calls may come
/// from any thread.
class Driver {
 public:
  static constexpr std::uint32_t kSlot = 8;
  static constexpr std::uint64_t kSession = 77;

  /// Sets the environment (rank 1 of four on two nodes, no settling, each step measured), then
  /// loads.
  explicit Driver(int version);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Before the first communicator: the environment of another rank.
  void be(std::uint32_t rank, const std::string& ranks, std::uint32_t slot,
          const std::string& node);

  void* communicator(int ranks, int rank);
  void finalize(void* context);

  void* group(void* context);
  /// In a group of its own; without a handle for that NCCL 2.27 tells nothing.
  void* coll(void* context, const char* function, std::size_t count, std::uint8_t channels = 2);
  void* p2p(void* context, const char* function, std::size_t count, int peer,
            std::uint8_t channels = 1);
  void* kernel(void* operation, std::uint8_t channel, std::uint64_t begin_ns);
  void kernel_time(void* kernel, std::uint64_t end_ns);
  void* proxy_op(void* context, int peer, bool send, int pid);
  void* proxy_step(void* proxy_op);
  void state(void* handle, int state, std::uint64_t value);
  void stop(void* handle);

  /// All kernels of an operation, start to end.
  void run(void* operation, std::uint64_t begin_ns, std::uint64_t end_ns,
           std::uint8_t channels = 2);

  [[nodiscard]] bool asked_for(std::uint64_t event) const;
  [[nodiscard]] int mask() const;
  [[nodiscard]] const std::vector<std::string>& said() const;

  /// The agent's end.
  agent::RankSegment segment();
  std::vector<wire::StepRecord> steps();
  std::vector<wire::LinkRecord> links();

  TemporaryFolder folder;

 private:
  void read();

  std::uint32_t slot_ = kSlot;
  std::string node_ = "n0";
  void* library_ = nullptr;
  const abi::ProfilerV4* v4_ = nullptr;
  const abi::ProfilerV5* v5_ = nullptr;
  int mask_ = -1;
  std::vector<wire::StepRecord> steps_;
  std::vector<wire::LinkRecord> links_;
};

/// Counts for the communicator that comes next where there is none.
void set_environment(const char* name, const std::string& value);

}  // namespace tapas::nccl
