#pragma once

#include <cstddef>
#include <cstdint>

/// NCCL's profiler interface, versions 4 (NCCL 2.27) and 5 (2.28 to 2.30), as far as it is used
/// here. NCCL installs no header for it: these are declarations of our own, and the layouts are
/// held by the assertions below (x86-64 and any other LP64 machine).
namespace tapas::nccl::abi {

/// Bits of the activation mask; the type of a descriptor is one of them.
enum EventType : std::uint64_t {
  kGroup = 1U << 0U,  ///< comes with the others, asked for or not
  kColl = 1U << 1U,
  kP2p = 1U << 2U,
  kProxyOp = 1U << 3U,
  kProxyStep = 1U << 4U,
  kKernelCh = 1U << 6U,
};

enum State : int {
  kSendWait = 9,     ///< of a ProxyStep: handed to the network
  kKernelStop = 22,  ///< of a KernelCh: with the GPU's time
};

struct Coll {
  std::uint64_t sequence;
  const char* function;
  const void* send_buffer;
  void* receive_buffer;
  std::size_t count;
  int root;
  const char* datatype;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};
struct P2p {
  const char* function;
  void* buffer;
  const char* datatype;
  std::size_t count;
  int peer;
  std::uint8_t channels;  ///< may be more than tell of their kernels, or unset (version 4)
};
struct ProxyOp {
  int pid;
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};
struct ProxyStep {
  int step;
};
struct KernelCh {
  std::uint8_t channel;
  std::uint64_t gpu_ns;
};

struct DescriptorV4 {
  std::uint8_t type;
  void* parent;
  int rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOp proxy_op;
    ProxyStep proxy_step;
    KernelCh kernel;
  };
};
struct DescriptorV5 {
  std::uint64_t type;
  void* parent;
  int rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOp proxy_op;
    ProxyStep proxy_step;
    KernelCh kernel;
    void* words[11];  ///< its full size: version 5 adds fields that are not used here
  };
};

/// Eight bytes, whatever the state.
union StateArguments {
  std::size_t transferred_bytes;
  std::uint64_t gpu_ns;
};

/// Level 2 is a warning, 3 information; flags say which part of NCCL it is about.
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

/// Results are ncclResult_t: 0 is success.
struct ProfilerV4 {
  const char* name;
  int (*init)(void** context, int* mask, const char* comm_name, std::uint64_t comm_hash, int nodes,
              int ranks, int rank, Logger log);
  int (*start)(void* context, void** handle, DescriptorV4* descriptor);
  int (*stop)(void* handle);
  int (*record)(void* handle, int state, StateArguments* arguments);
  int (*finalize)(void* context);
};
struct ProfilerV5 {
  const char* name;
  int (*init)(void** context, std::uint64_t comm_id, int* mask, const char* comm_name, int nodes,
              int ranks, int rank, Logger log);
  int (*start)(void* context, void** handle, DescriptorV5* descriptor);
  int (*stop)(void* handle);
  int (*record)(void* handle, int state, StateArguments* arguments);
  int (*finalize)(void* context);
};

template <typename D>
constexpr bool kHeadAndBodyFit = offsetof(D, type) == 0 && offsetof(D, parent) == 8 &&
                                 offsetof(D, rank) == 16 && offsetof(D, coll) == 24 &&
                                 offsetof(D, p2p) == 24 && offsetof(D, proxy_op) == 24 &&
                                 offsetof(D, proxy_step) == 24 && offsetof(D, kernel) == 24;
static_assert(kHeadAndBodyFit<DescriptorV4> && sizeof(DescriptorV4) == 104);
static_assert(kHeadAndBodyFit<DescriptorV5> && sizeof(DescriptorV5) == 112);
static_assert(sizeof(DescriptorV4::type) == 1 && sizeof(DescriptorV5::type) == 8);
static_assert(offsetof(Coll, sequence) == 0 && offsetof(Coll, function) == 8 &&
              offsetof(Coll, send_buffer) == 16 && offsetof(Coll, receive_buffer) == 24 &&
              offsetof(Coll, count) == 32 && offsetof(Coll, root) == 40 &&
              offsetof(Coll, datatype) == 48 && offsetof(Coll, channels) == 56 &&
              offsetof(Coll, warps) == 57 && offsetof(Coll, algorithm) == 64 &&
              offsetof(Coll, protocol) == 72 && sizeof(Coll) == 80);
static_assert(offsetof(P2p, function) == 0 && offsetof(P2p, buffer) == 8 &&
              offsetof(P2p, datatype) == 16 && offsetof(P2p, count) == 24 &&
              offsetof(P2p, peer) == 32 && offsetof(P2p, channels) == 36);
static_assert(offsetof(ProxyOp, pid) == 0 && offsetof(ProxyOp, channel) == 4 &&
              offsetof(ProxyOp, peer) == 8 && offsetof(ProxyOp, steps) == 12 &&
              offsetof(ProxyOp, chunk_bytes) == 16 && offsetof(ProxyOp, is_send) == 20);
static_assert(offsetof(ProxyStep, step) == 0);
static_assert(offsetof(KernelCh, channel) == 0 && offsetof(KernelCh, gpu_ns) == 8);
static_assert(sizeof(StateArguments) == 8);
static_assert(sizeof(ProfilerV4) == 48 && offsetof(ProfilerV4, init) == 8 &&
              offsetof(ProfilerV4, start) == 16 && offsetof(ProfilerV4, stop) == 24 &&
              offsetof(ProfilerV4, record) == 32 && offsetof(ProfilerV4, finalize) == 40);
static_assert(sizeof(ProfilerV5) == 48 && offsetof(ProfilerV5, init) == 8 &&
              offsetof(ProfilerV5, start) == 16 && offsetof(ProfilerV5, stop) == 24 &&
              offsetof(ProfilerV5, record) == 32 && offsetof(ProfilerV5, finalize) == 40);

}  // namespace tapas::nccl::abi
