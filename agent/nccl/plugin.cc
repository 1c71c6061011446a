#include "agent/nccl/abi.h"
#include "agent/nccl/handle.h"
#include "agent/nccl/witness.h"

// The interface that NCCL calls: every call answers success, whatever it was given. A version that
// adds events adds bits of the mask, which are not asked for.

namespace {

namespace abi = tapas::nccl::abi;
using tapas::nccl::Handle;

constexpr int kSuccess = 0;

// Static memory: it is there before the first communicator and after the last one.
constinit tapas::nccl::Witness witness;

template <typename Descriptor>
int start(void* context, void** handle, Descriptor* descriptor) {
  if (handle == nullptr || descriptor == nullptr) {
    return kSuccess;
  }
  const Handle communicator = Handle::from_pointer(context);
  const Handle parent = Handle::from_pointer(descriptor->parent);
  Handle started;
  switch (descriptor->type) {
    case abi::kGroup:
      started = witness.start_group(communicator);
      break;
    case abi::kColl:
      started = witness.launch(communicator, descriptor->coll);
      break;
    case abi::kP2p:
      started = witness.launch(communicator, descriptor->p2p);
      break;
    case abi::kKernelCh:
      started = witness.start(parent, descriptor->kernel);
      break;
    case abi::kProxyOp:
      started = witness.start(communicator, descriptor->proxy_op);
      break;
    case abi::kProxyStep:
      started = witness.start_step(parent);
      break;
    default:
      break;
  }
  *handle = started.to_pointer();
  return kSuccess;
}

int stop(void* handle) {
  witness.stop(Handle::from_pointer(handle));
  return kSuccess;
}

int record(void* handle, int state, abi::StateArguments* arguments) {
  if (arguments == nullptr) {
    return kSuccess;
  }
  if (state == abi::kKernelStop) {
    witness.kernel_stopped(Handle::from_pointer(handle), arguments->gpu_ns);
  } else if (state == abi::kSendWait) {
    witness.wait_for_network(Handle::from_pointer(handle), arguments->transferred_bytes);
  }
  return kSuccess;
}

int finalize(void* context) {
  witness.leave(Handle::from_pointer(context));
  return kSuccess;
}

int join(void** context, int* mask, int ranks, int rank, abi::Logger log) {
  if (context != nullptr) {
    *context =
        witness.join(static_cast<std::uint64_t>(ranks), static_cast<std::uint64_t>(rank), mask, log)
            .to_pointer();
  }
  return kSuccess;
}

int init_v4(void** context, int* mask, const char* /*comm_name*/, std::uint64_t /*comm_hash*/,
            int /*nodes*/, int ranks, int rank, abi::Logger log) {
  return join(context, mask, ranks, rank, log);
}

int init_v5(void** context, std::uint64_t /*comm_id*/, int* mask, const char* /*comm_name*/,
            int /*nodes*/, int ranks, int rank, abi::Logger log) {
  return join(context, mask, ranks, rank, log);
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) extern const abi::ProfilerV4 ncclProfiler_v4 = {
    "TAPAS", init_v4, start<abi::DescriptorV4>, stop, record, finalize};
__attribute__((visibility("default"))) extern const abi::ProfilerV5 ncclProfiler_v5 = {
    "TAPAS", init_v5, start<abi::DescriptorV5>, stop, record, finalize};
}
