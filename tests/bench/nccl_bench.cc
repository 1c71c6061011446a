#include "agent/nccl/abi.h"
#include "tests/bench/bench.h"
#include "tests/unit/agent/temporary_folder.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace tapas::bench {
namespace {

using nccl::abi::DescriptorV5;
using nccl::abi::ProfilerV5;

constexpr std::uint64_t kSteps = 40'000;
constexpr std::uint64_t kOpsPerStep = 25;
constexpr std::uint8_t kChannels = 4;

/// NCCL's end, as far as it is measured: time of the calls of one thread.
class Load {
 public:
  Load(const ProfilerV5& plugin, int every) : plugin_(plugin) {
    ::setenv("TAPAS_JOB", "bench", 1);
    ::setenv("TAPAS_SESSION", "1", 1);
    ::setenv("TAPAS_RANKS", folder_.write("ranks", "0 n0\n1 n1\n").c_str(), 1);
    ::setenv("RANK", "0", 1);
    ::setenv("TAPAS_RANK_DIR", folder_.path().c_str(), 1);
    ::setenv("TAPAS_NCCL_SETTLE_S", "0", 1);
    ::setenv("TAPAS_NCCL_EVERY", std::to_string(every).c_str(), 1);
    plugin_.init(&context_, 1, &mask_, nullptr, 2, 2, 0, nullptr);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  ~Load() { plugin_.finalize(context_); }

  /// Nanoseconds of a start and its stop.
  double pair_ns() {
    pairs_ = 0;
    const double begin = thread_cpu_s();
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      for (std::uint64_t i = 1; i <= kOpsPerStep; ++i) {
        operation(i == kOpsPerStep ? 1'000'000 : 10'000);
      }
    }
    return 1e9 * (thread_cpu_s() - begin) / static_cast<double>(pairs_);
  }

 private:
  void operation(std::size_t count) {
    DescriptorV5 descriptor = {};
    descriptor.type = nccl::abi::kColl;
    descriptor.coll.function = "AllReduce";
    descriptor.coll.datatype = "ncclBfloat16";
    descriptor.coll.count = count;
    descriptor.coll.channels = kChannels;
    void* handle = nullptr;
    plugin_.start(context_, &handle, &descriptor);
    plugin_.stop(handle);
    ++pairs_;
    if ((static_cast<std::uint64_t>(mask_) & nccl::abi::kKernelCh) == 0) {
      return;
    }
    gpu_ns_ += 10'000;
    descriptor.type = nccl::abi::kKernelCh;
    descriptor.parent = handle;
    descriptor.kernel.gpu_ns = gpu_ns_;
    nccl::abi::StateArguments end = {};
    end.gpu_ns = gpu_ns_ + 8'000;
    for (std::uint8_t channel = 0; channel < kChannels; ++channel) {
      descriptor.kernel.channel = channel;
      plugin_.start(context_, &handle, &descriptor);
      plugin_.record(handle, nccl::abi::kKernelStop, &end);
      plugin_.stop(handle);
      ++pairs_;
    }
  }

  const ProfilerV5& plugin_;
  TemporaryFolder folder_;
  void* context_ = nullptr;
  int mask_ = 0;
  std::uint64_t gpu_ns_ = 1'000'000;
  std::uint64_t pairs_ = 0;
};

std::vector<Measurement> events() {
  void* library = ::dlopen(TAPAS_PROGRAM_DIR "/libnccl-profiler-tapas.so", RTLD_NOW | RTLD_LOCAL);
  const auto* plugin = library == nullptr
                           ? nullptr
                           : static_cast<const ProfilerV5*>(::dlsym(library, "ncclProfiler_v5"));
  if (plugin == nullptr) {
    std::fprintf(stderr, "agent.nccl: not measured: %s\n", ::dlerror());
    return {};
  }
  const double all = Load(*plugin, 1).pair_ns();
  const double usual = Load(*plugin, 8).pair_ns();
  return {{"agent.nccl_event", all, "ns", 300, true},
          {"agent.nccl_event_one_step_of_8", usual, "ns"}};
}

const Registration kEvents("agent.nccl", events);

}  // namespace
}  // namespace tapas::bench
