#include "tests/unit/nccl/driver.h"

#include "base/ids.h"
#include "wire/record_codec.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <variant>

namespace {

std::atomic<std::uint64_t> forbidden{0};
thread_local bool in_callback = false;

}  // namespace

static void count() {
  if (in_callback) {
    forbidden.fetch_add(1, std::memory_order_relaxed);
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Of the sanitizers' own interface; GCC does not install its header.
extern "C" int __sanitizer_install_malloc_and_free_hooks(  // NOLINT
    void (*on_malloc)(const volatile void*, std::size_t), void (*on_free)(const volatile void*));
[[maybe_unused]] static const int kHooked = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { count(); }, [](const volatile void*) { count(); });
#else
// The program's own definitions go before libc's, in the plugin, too.
#define TAPAS_INTERPOSED extern "C" __attribute__((visibility("default")))

extern "C" {
void* __libc_malloc(std::size_t);               // NOLINT
void __libc_free(void*);                        // NOLINT
void* __libc_calloc(std::size_t, std::size_t);  // NOLINT
void* __libc_realloc(void*, std::size_t);       // NOLINT
}

TAPAS_INTERPOSED void* malloc(std::size_t size) {
  count();
  return __libc_malloc(size);
}
TAPAS_INTERPOSED void free(void* memory) {
  if (memory != nullptr) {
    count();
  }
  __libc_free(memory);
}
TAPAS_INTERPOSED void* calloc(std::size_t members, std::size_t size) {
  count();
  return __libc_calloc(members, size);
}
TAPAS_INTERPOSED void* realloc(void* memory, std::size_t size) {
  count();
  return __libc_realloc(memory, size);
}
TAPAS_INTERPOSED int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static const auto real = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  count();
  return real(mutex);
}
TAPAS_INTERPOSED int sched_yield() noexcept {
  count();
  return 0;
}
#endif

namespace tapas::nccl {
namespace {

std::vector<std::string> lines_said;

void log_line(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
              const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  lines_said.push_back(fmt::format("{} {}", level, text));
}

/// Marks this thread as being inside a callback.
class Callback {
 public:
  Callback() { enter_callback(); }
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;
  ~Callback() { leave_callback(); }
};

template <typename Descriptor>
Descriptor descriptor_of(std::uint64_t type, void* parent) {
  Descriptor descriptor;
  std::memset(static_cast<void*>(&descriptor), 0, sizeof(descriptor));
  descriptor.type = static_cast<decltype(descriptor.type)>(type);
  descriptor.parent = parent;
  descriptor.rank = 1;
  return descriptor;
}

/// Calls fill() on a descriptor of the version, then the plugin.
template <typename Fill>
void* start(const abi::ProfilerV4* v4, const abi::ProfilerV5* v5, void* context, void* parent,
            std::uint64_t type, Fill fill) {
  void* handle = nullptr;
  int result = -1;
  if (v4 != nullptr) {
    auto descriptor = descriptor_of<abi::DescriptorV4>(type, parent);
    fill(descriptor);
    const Callback callback;
    result = v4->start(context, &handle, &descriptor);
  } else {
    auto descriptor = descriptor_of<abi::DescriptorV5>(type, parent);
    fill(descriptor);
    const Callback callback;
    result = v5->start(context, &handle, &descriptor);
  }
  EXPECT_EQ(result, 0);
  return handle;
}

}  // namespace

std::uint64_t forbidden_calls() { return forbidden.load(); }
void enter_callback() { in_callback = true; }
void leave_callback() { in_callback = false; }

void set_environment(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);
}

Driver::Driver(int version) {
  lines_said.clear();
  set_environment("TAPAS_JOB", "gpt3");
  set_environment("TAPAS_SESSION", std::to_string(kSession));
  set_environment("TAPAS_RANKS", folder.write("ranks", "7 n0\n8 n0\n16 n1\n17 n1\n"));
  set_environment("RANK", "1");
  set_environment("TAPAS_RANK_DIR", folder.path());
  set_environment("TAPAS_NCCL_SETTLE_S", "0");
  set_environment("TAPAS_NCCL_EVERY", "1");
  ::unsetenv("NCCL_PROFILE_EVENT_MASK");
  const std::string copy = folder.file("libnccl-profiler-tapas.so");
  std::filesystem::copy_file(TAPAS_PROGRAM_DIR "/libnccl-profiler-tapas.so", copy);
  library_ = ::dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  ::unlink(copy.c_str());
  if (library_ == nullptr) {
    ADD_FAILURE() << ::dlerror();
    std::abort();
  }
  const std::string symbol = fmt::format("ncclProfiler_v{}", version);
  const void* found = ::dlsym(library_, symbol.c_str());
  EXPECT_NE(found, nullptr);
  (version == 4 ? static_cast<void>(v4_ = static_cast<const abi::ProfilerV4*>(found))
                : static_cast<void>(v5_ = static_cast<const abi::ProfilerV5*>(found)));
}

void Driver::be(std::uint32_t rank, const std::string& ranks, std::uint32_t slot,
                const std::string& node) {
  set_environment("RANK", std::to_string(rank));
  set_environment("TAPAS_RANKS", folder.write("ranks", ranks));
  set_environment("TAPAS_RANK_DIR", folder.path());
  slot_ = slot;
  node_ = node;
}

Driver::~Driver() { ::dlclose(library_); }

void* Driver::communicator(int ranks, int rank) {
  void* context = nullptr;
  const int result = v4_ != nullptr
                         ? v4_->init(&context, &mask_, nullptr, 5, 2, ranks, rank, log_line)
                         : v5_->init(&context, 5, &mask_, nullptr, 2, ranks, rank, log_line);
  EXPECT_EQ(result, 0);
  return context;
}

void Driver::finalize(void* context) {
  EXPECT_EQ(v4_ != nullptr ? v4_->finalize(context) : v5_->finalize(context), 0);
}

void* Driver::group(void* context) {
  return start(v4_, v5_, context, nullptr, abi::kGroup, [](auto&) {});
}

void* Driver::coll(void* context, const char* function, std::size_t count, std::uint8_t channels) {
  if (!asked_for(abi::kColl)) {
    return nullptr;
  }
  void* const parent = group(context);
  if (v4_ != nullptr && parent == nullptr) {
    return nullptr;  // As NCCL 2.27.
  }
  void* const handle = start(v4_, v5_, context, parent, abi::kColl, [&](auto& descriptor) {
    descriptor.coll.function = function;
    descriptor.coll.count = count;
    descriptor.coll.datatype = "ncclBfloat16";
    descriptor.coll.channels = channels;
  });
  stop(parent);
  return handle;
}

void* Driver::p2p(void* context, const char* function, std::size_t count, int peer,
                  std::uint8_t channels) {
  void* const parent = group(context);
  if (v4_ != nullptr && parent == nullptr) {
    return nullptr;
  }
  void* const handle = start(v4_, v5_, context, parent, abi::kP2p, [&](auto& descriptor) {
    descriptor.p2p.function = function;
    descriptor.p2p.count = count;
    descriptor.p2p.datatype = "ncclBfloat16";
    descriptor.p2p.peer = peer;
    descriptor.p2p.channels = channels;
  });
  stop(parent);
  return handle;
}

void* Driver::kernel(void* operation, std::uint8_t channel, std::uint64_t begin_ns) {
  return start(v4_, v5_, nullptr, operation, abi::kKernelCh, [&](auto& descriptor) {
    descriptor.kernel.channel = channel;
    descriptor.kernel.gpu_ns = begin_ns;
  });
}

void Driver::kernel_time(void* kernel, std::uint64_t end_ns) {
  state(kernel, abi::kKernelStop, end_ns);
}

void* Driver::proxy_op(void* context, int peer, bool send, int pid) {
  return start(v4_, v5_, context, nullptr, abi::kProxyOp, [&](auto& descriptor) {
    descriptor.proxy_op.pid = pid;
    descriptor.proxy_op.peer = peer;
    descriptor.proxy_op.is_send = send ? 1 : 0;
  });
}

void* Driver::proxy_step(void* proxy_op) {
  return start(v4_, v5_, nullptr, proxy_op, abi::kProxyStep, [](auto&) {});
}

void Driver::state(void* handle, int state, std::uint64_t value) {
  abi::StateArguments arguments = {};
  arguments.gpu_ns = value;
  const Callback callback;
  const int result = v4_ != nullptr ? v4_->record(handle, state, &arguments)
                                    : v5_->record(handle, state, &arguments);
  if (result != 0) {
    std::abort();
  }
}

void Driver::stop(void* handle) {
  const Callback callback;
  const int result = v4_ != nullptr ? v4_->stop(handle) : v5_->stop(handle);
  if (result != 0) {
    std::abort();
  }
}

void Driver::run(void* operation, std::uint64_t begin_ns, std::uint64_t end_ns,
                 std::uint8_t channels) {
  std::vector<void*> kernels;
  for (std::uint8_t channel = 0; channel < channels; ++channel) {
    kernels.push_back(kernel(operation, channel, begin_ns));
  }
  for (void* one : kernels) {
    kernel_time(one, end_ns);
    stop(one);
  }
}

bool Driver::asked_for(std::uint64_t event) const {
  return (static_cast<std::uint64_t>(mask()) & event) != 0;
}

int Driver::mask() const { return __atomic_load_n(&mask_, __ATOMIC_RELAXED); }

const std::vector<std::string>& Driver::said() const { return lines_said; }

agent::RankSegment Driver::segment() {
  auto segment = agent::RankSegment::open(
      folder.file(fmt::format("tapas-nccl.{:016x}.{}", name_hash("gpt3"), slot_)), node_);
  if (!segment) {
    ADD_FAILURE() << segment.error().message;
    std::abort();
  }
  return *std::move(segment);
}

void Driver::read() {
  agent::RankSegment opened = segment();
  std::vector<std::byte> bytes;
  opened.read_records(bytes, 100'000);
  EXPECT_EQ(opened.bad_records(), 0U);
  EXPECT_EQ(opened.take_dropped(), 0U);
  for (std::size_t at = 0; at < bytes.size(); at += wire::kRecordBytes) {
    const auto records = wire::decode_records(std::span(bytes).subspan(at, wire::kRecordBytes));
    if (const auto* step = std::get_if<wire::StepRecord>(&records->front())) {
      steps_.push_back(*step);
    } else {
      links_.push_back(std::get<wire::LinkRecord>(records->front()));
    }
  }
}

std::vector<wire::StepRecord> Driver::steps() {
  read();
  return std::exchange(steps_, {});
}

std::vector<wire::LinkRecord> Driver::links() {
  read();
  return std::exchange(links_, {});
}

}  // namespace tapas::nccl
