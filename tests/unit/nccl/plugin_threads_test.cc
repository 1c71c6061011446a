// Callbacks from many threads at once, some late, some lost: for the sanitizers.
#include "tests/unit/nccl/driver.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace tapas::nccl {
namespace {

struct Work {
  void* operation = nullptr;
  std::uint64_t begin_ns = 0;
};

/// From an application's thread to the proxy's, as NCCL hands it over.
class Channel {
 public:
  void put(Work work) {
    const std::lock_guard lock(mutex_);
    works_.push_back(work);
  }
  bool get(Work& work) {
    const std::lock_guard lock(mutex_);
    if (works_.empty()) {
      return false;
    }
    work = works_.front();
    works_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::deque<Work> works_;
};

class PluginThreads : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Versions, PluginThreads, testing::Values(4, 5),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

TEST_P(PluginThreads, RecordWhatTheyCanAndBreakNothing) {
  constexpr std::size_t kPairs = 4;
  constexpr std::uint64_t kSteps = 300;
  constexpr std::uint64_t kQuietSteps = 30;
  Driver nccl(GetParam());
  void* main = nccl.communicator(4, 1);
  std::vector<void*> contexts;
  for (std::size_t i = 0; i < kPairs; ++i) {
    contexts.push_back(nccl.communicator(4, 1));
  }
  // Only this thread's sequence is regular; its largest collective marks the steps.
  std::vector<std::thread> threads;
  std::vector<Channel> channels(kPairs);
  std::atomic<std::uint64_t> gpu_step{1};
  std::atomic<std::size_t> launching{kPairs};
  for (std::size_t i = 0; i < kPairs; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937_64 random(i);
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        for (std::uint64_t op = 0; op < 5; ++op) {
          void* handle = nccl.p2p(contexts[i], op % 2 == 0 ? "Send" : "Recv", 10, 2);
          nccl.stop(handle);
          channels[i].put({handle, gpu_step.load() * 10'000'000 + op * 1'000'000});
        }
        if (random() % 50 == 0) {
          nccl.finalize(contexts[i]);  // With operations under way.
          contexts[i] = nccl.communicator(4, 1);
        }
      }
      --launching;
    });
    threads.emplace_back([&, i] {
      std::mt19937_64 random(100 + i);
      void* const foreign = reinterpret_cast<void*>(std::uintptr_t{0x30});
      for (Work work;;) {
        if (!channels[i].get(work)) {
          if (launching.load() == 0) {
            return;
          }
          std::this_thread::yield();
          continue;
        }
        void* kernel = nccl.kernel(work.operation, 0, work.begin_ns);
        nccl.kernel_time(kernel, work.begin_ns + 100'000);
        if (random() % 20 != 0) {
          nccl.stop(kernel);
        }
        static_cast<void>(nccl.proxy_op(foreign, 2, true, ::getpid() + 1));
        void* proxy_op = nccl.proxy_op(main, 2, true, ::getpid());
        void* step = nccl.proxy_step(proxy_op);
        nccl.state(step, abi::kSendWait, 1'000);
        if (random() % 20 != 0) {
          nccl.stop(step);
        }
        nccl.stop(proxy_op);
      }
    });
  }
  const auto train = [&](std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t step = from; step <= to; ++step) {
      gpu_step.store(step);
      for (std::uint64_t i = 0; i < 3; ++i) {
        void* handle = nccl.coll(main, i < 2 ? "AllGather" : "AllReduce", i < 2 ? 10 : 100'000);
        const std::uint64_t begin = step * 10'000'000 + i * 3'000'000;
        nccl.run(handle, begin, begin + 3'000'000);
      }
    }
  };
  train(1, kSteps);
  for (std::thread& thread : threads) {
    thread.join();
  }
  train(kSteps + 1, kSteps + kQuietSteps);
  const auto records = nccl.steps();
  ASSERT_FALSE(records.empty());
  std::uint64_t last = 0;
  for (const wire::StepRecord& record : records) {
    EXPECT_GT(record.step, last);
    EXPECT_EQ(record.wall_us, 10'000U);
    EXPECT_LE(record.forward_us, 1'000U);
    last = record.step;
  }
  EXPECT_EQ(last, kSteps + kQuietSteps) << "no collective was lost";
  for (void* context : contexts) {
    nccl.finalize(context);
  }
  nccl.finalize(main);
}

}  // namespace
}  // namespace tapas::nccl
