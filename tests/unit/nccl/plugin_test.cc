// Event sequences as NCCL sends them, played through the loaded plugin; what comes out is read as
// the agent reads it.
#include "agent/rank/tapas_rank.h"
#include "base/ids.h"
#include "tests/unit/nccl/driver.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tapas::nccl {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kStepNs = 10 * kMs;
constexpr std::size_t kSmall = 1'000;
constexpr std::size_t kLarge = 1'000'000;

/// One step on the GPU: three small collectives of 0.2 ms, then the large one of the last 2 ms.
struct Op {
  void* handle = nullptr;
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
};

class Plugin : public testing::TestWithParam<int> {
 protected:
  static std::uint64_t start_of(std::uint64_t step) { return kStepNs * step + 1; }

  std::vector<Op> launch(void* context, std::uint64_t step) {
    std::vector<Op> ops;
    const std::uint64_t begin = start_of(step);
    for (std::uint64_t i = 1; i <= 3; ++i) {
      const bool timed = nccl.asked_for(abi::kKernelCh);
      void* handle = nccl.coll(context, "AllGather", kSmall);
      ops.push_back({timed ? handle : nullptr, begin + i * kMs, begin + i * kMs + kMs / 5});
    }
    const bool timed = nccl.asked_for(abi::kKernelCh);
    void* handle = nccl.coll(context, "AllReduce", kLarge);
    ops.push_back({timed ? handle : nullptr, begin + 8 * kMs, begin + 10 * kMs});
    for (const Op& op : ops) {
      nccl.stop(op.handle);  // Enqueued.
    }
    return ops;
  }

  void run(const std::vector<Op>& ops) {
    for (const Op& op : ops) {
      if (op.handle != nullptr) {
        nccl.run(op.handle, op.begin_ns, op.end_ns);
      }
    }
  }

  void play(void* context, std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t step = from; step <= to; ++step) {
      run(launch(context, step));
    }
  }

  /// Steps from-to, each once, with these times.
  static void expect_steps(const std::vector<wire::StepRecord>& records, std::uint64_t from,
                           std::uint64_t to, std::uint32_t forward_us = 7'400,
                           std::uint32_t collective_us = 2'600) {
    ASSERT_EQ(records.size(), to - from + 1);
    for (const wire::StepRecord& record : records) {
      EXPECT_EQ(record.step, from + static_cast<std::uint64_t>(&record - records.data()));
      EXPECT_EQ(record.wall_us, 10'000U) << record.step;
      EXPECT_EQ(record.forward_us, forward_us) << record.step;
      EXPECT_EQ(record.dp_collective_us, collective_us) << record.step;
      EXPECT_EQ(record.pp_wait_us, 0U);
      EXPECT_EQ(record.session, Driver::kSession);
      EXPECT_EQ(record.rank, Driver::kSlot);
      EXPECT_EQ(record.microbatches, 1U);
      // bfloat16, four ranks: three gathers to three others, and 2 * 3/4 of the reduction.
      EXPECT_EQ(record.bytes_moved, 3 * kSmall * 2 * 3 + kLarge * 2 * 2 * 3 / 4);
    }
  }

  /// Steps until everything is measured; their records are read and thrown away.
  void warm_up(void* context) {
    play(context, 1, kWarm);
    const auto records = nccl.steps();
    ASSERT_FALSE(records.empty());
    EXPECT_EQ(records.back().step, kWarm);
  }

  static constexpr std::uint64_t kWarm = 12;
  Driver nccl{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Versions, Plugin, testing::Values(4, 5),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

TEST_P(Plugin, TellsStepsAndWhatTheyWereSpentOn) {
  void* context = nccl.communicator(4, 1);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(nccl.mask(), static_cast<int>(abi::kColl)) << "steps are not known yet";
  play(context, 1, 30);
  // Two steps are seen to know the sequence, three to be sure, two until all is measured.
  expect_steps(nccl.steps(), 9, 30);
  nccl.finalize(context);
}

TEST_P(Plugin, MeasuresTheSameWhateverTheOrderOfEvents) {
  void* context = nccl.communicator(4, 1);
  warm_up(context);
  for (std::uint64_t step = kWarm + 1; step <= 20; ++step) {
    std::vector<Op> ops = launch(context, step);
    std::rotate(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(step % 3), ops.end() - 1);
    std::vector<std::pair<void*, std::uint64_t>> kernels;
    for (const Op& op : ops) {
      for (std::uint8_t channel : {std::uint8_t{1}, std::uint8_t{0}}) {
        kernels.emplace_back(nccl.kernel(op.handle, channel, op.begin_ns + channel * 10),
                             op.end_ns);
      }
    }
    std::stable_sort(kernels.begin(), kernels.end() - 2,
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [kernel, end_ns] : kernels) {
      nccl.kernel_time(kernel, end_ns);
      nccl.kernel_time(kernel, end_ns - 50);  // Told twice, the later one earlier.
    }
    for (const auto& [kernel, end_ns] : kernels) {
      nccl.stop(kernel);
      nccl.stop(kernel);  // As often as it likes.
    }
  }
  expect_steps(nccl.steps(), kWarm + 1, 20);
  nccl.finalize(context);
}

TEST_P(Plugin, LeavesOutWhatDidNotEnd) {
  void* context = nccl.communicator(4, 1);
  warm_up(context);
  for (std::uint64_t step = kWarm + 1; step <= 30; ++step) {
    std::vector<Op> ops = launch(context, step);
    if (step == 16) {
      // One channel's stop of a small one is lost: nobody can know that it should have come.
      nccl.stop(nccl.kernel(ops[0].handle, 0, ops[0].begin_ns));
      ops.erase(ops.begin());
    }
    if (step == 20) {
      ops.pop_back();  // The end of the step itself: it and the next one cannot be told.
    }
    if (step == 25) {
      nccl.run(ops[1].handle, 0, 0);  // The GPU's clock failed, as it is known to do.
    }
    run(ops);
  }
  std::vector<std::uint64_t> told;
  for (const wire::StepRecord& record : nccl.steps()) {
    told.push_back(record.step);
    EXPECT_EQ(record.wall_us, 10'000U);
    EXPECT_EQ(record.forward_us, record.step == 16 ? 7'600U : 7'400U) << record.step;
    EXPECT_EQ(record.dp_collective_us, record.step == 16 ? 2'400U : 2'600U) << record.step;
  }
  EXPECT_EQ(told,
            (std::vector<std::uint64_t>{13, 14, 15, 16, 17, 18, 19, 22, 23, 24, 27, 28, 29, 30}));
  nccl.finalize(context);
}

TEST_P(Plugin, GivesNoHandleWhenItsPoolIsFullAndGoesOnWhenThereIsRoom) {
  void* context = nccl.communicator(4, 1);
  warm_up(context);
  std::vector<void*> open;
  for (int i = 0; i < 10'000; ++i) {
    if (void* handle = nccl.coll(context, "Broadcast", 1)) {
      open.push_back(handle);
    }
  }
  EXPECT_EQ(open.size(), 8192U);
  EXPECT_EQ(nccl.kernel(nullptr, 0, 1), nullptr);
  for (void* handle : open) {
    nccl.run(handle, kStepNs * kWarm + 5 * kMs, kStepNs * kWarm + 6 * kMs);
  }
  play(context, kWarm + 1, 20);
  const auto records = nccl.steps();
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back().step, 20U);
  EXPECT_EQ(records.back().forward_us, 7'400U);
  nccl.finalize(context);
}

TEST_P(Plugin, IgnoresWhatComesAfterItsCommunicator) {
  void* kept = nccl.communicator(4, 1);
  void* gone = nccl.communicator(2, 0);
  warm_up(kept);
  void* operation = nccl.coll(gone, "AllReduce", 0);
  void* kernel = nccl.kernel(operation, 0, start_of(kWarm + 1));
  void* proxy_op = nccl.proxy_op(gone, 1, true, ::getpid());
  void* step = nccl.proxy_step(proxy_op);
  nccl.finalize(gone);
  nccl.kernel_time(kernel, start_of(kWarm + 1) + 1);
  nccl.stop(kernel);
  nccl.stop(step);
  nccl.stop(proxy_op);
  nccl.finalize(gone);
  EXPECT_EQ(nccl.coll(gone, "AllReduce", 10), nullptr);
  play(kept, kWarm + 1, 20);
  expect_steps(nccl.steps(), kWarm + 1, 20);

  // The last one goes in the middle of a step; what was told before is still there.
  const std::vector<Op> open = launch(kept, 21);
  auto segment = nccl.segment();
  nccl.finalize(kept);
  EXPECT_EQ(nccl.mask(), 0);
  EXPECT_FALSE(segment.alive());
  run(open);
  EXPECT_EQ(nccl.coll(kept, "AllReduce", 10), nullptr);

  // Another communicator in the same process begins anew; old handles mean nothing to it.
  void* next = nccl.communicator(4, 1);
  ASSERT_NE(next, nullptr);
  run(open);
  EXPECT_EQ(nccl.coll(kept, "AllReduce", 10), nullptr);
  play(next, 1, 12);
  const auto records = nccl.steps();
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back().step, 21U + 12U) << "no number is used twice";
  nccl.finalize(next);
}

TEST_P(Plugin, KeepsOffOperationsOfOtherProcesses) {
  void* context = nccl.communicator(4, 1);
  warm_up(context);
  void* foreign = reinterpret_cast<void*>(std::uintptr_t{0x10});
  EXPECT_EQ(nccl.proxy_op(foreign, 2, true, ::getpid() + 1), nullptr);
  EXPECT_EQ(nccl.proxy_op(context, 2, true, ::getpid() + 1), nullptr);
  EXPECT_EQ(nccl.proxy_op(foreign, 2, true, ::getpid()), nullptr);
  EXPECT_EQ(nccl.proxy_step(nullptr), nullptr);
  play(context, kWarm + 1, 15);
  EXPECT_TRUE(nccl.links().empty());
  nccl.finalize(context);
}

TEST_P(Plugin, FollowsCapturedGraphs) {
  // Each replay announces its operations from a thread of CUDA's, and may run them twice.
  void* context = nccl.communicator(4, 1);
  warm_up(context);
  for (std::uint64_t step = kWarm + 1; step <= 20; ++step) {
    std::thread replay([&] {
      const std::vector<Op> ops = launch(context, step);
      run(ops);
      run(ops);
    });
    replay.join();
  }
  expect_steps(nccl.steps(), kWarm + 1, 20);
  nccl.finalize(context);
}

TEST_P(Plugin, CountsOverlappingCommunicatorsOnce) {
  std::vector<void*> contexts;
  for (int i = 0; i < 10; ++i) {
    contexts.push_back(nccl.communicator(4, 1));
  }
  for (std::uint64_t step = 1; step <= 30; ++step) {
    const std::vector<Op> marked = launch(contexts[3], step);
    std::vector<Op> others;
    for (std::size_t i = 0; i < contexts.size(); ++i) {
      const bool timed = nccl.asked_for(abi::kKernelCh);
      void* handle = i == 3 ? nullptr : nccl.coll(contexts[i], "AllReduce", kSmall);
      // From 4.0 to 5.8 ms in all.
      const std::uint64_t begin = start_of(step) + 4 * kMs + i * kMs / 10;
      others.push_back({timed ? handle : nullptr, begin, begin + 9 * kMs / 10});
    }
    // The last announced belong to the step after, as the marker was launched before them; they are
    // on the GPU before it.
    run(others);
    run(marked);
  }
  const auto records = nccl.steps();
  ASSERT_GT(records.size(), 15U);
  EXPECT_EQ(records.back().step, 30U);
  EXPECT_EQ(records.back().wall_us, 10'000U);
  EXPECT_EQ(records.back().dp_collective_us, 2'600U + 1'800U);
  for (void* context : contexts) {
    nccl.finalize(context);
  }
}

TEST_P(Plugin, TellsPointToPointApart) {
  void* context = nccl.communicator(4, 1);
  warm_up(context);
  for (std::uint64_t step = kWarm + 1; step <= 20; ++step) {
    // Not all channels of small messages run, whatever is announced.
    void* send = nccl.p2p(context, "Send", kSmall, 2, 4);
    void* receive = nccl.p2p(context, "Recv", kSmall, 0);
    const std::vector<Op> ops = launch(context, step);
    const std::uint64_t begin = start_of(step);
    nccl.run(send, begin + 4 * kMs, begin + 5 * kMs, 1);
    nccl.run(receive, begin + 4 * kMs + kMs / 2, begin + 6 * kMs, 1);
    run(ops);
  }
  const auto records = nccl.steps();
  ASSERT_EQ(records.size(), 20 - kWarm);
  for (const wire::StepRecord& record : records) {
    EXPECT_EQ(record.pp_wait_us, 2'000U);
    EXPECT_EQ(record.dp_collective_us, 2'600U);
    EXPECT_EQ(record.forward_us, 5'400U);
    EXPECT_EQ(record.bytes_moved, 3 * kSmall * 2 * 3 + kLarge * 2 * 2 * 3 / 4 + kSmall * 2);
  }
  nccl.finalize(context);
}

TEST_P(Plugin, MeasuresTransfersWithoutTheWait) {
  void* context = nccl.communicator(4, 1);
  void* pair = nccl.communicator(2, 0);  // Who its peer is, nobody knows.
  warm_up(context);
  static_cast<void>(nccl.links());
  for (std::uint64_t step = kWarm + 1; step <= 15; ++step) {
    const std::vector<Op> ops = launch(context, step);
    EXPECT_TRUE(nccl.asked_for(abi::kProxyStep));
    void* proxy_op = nccl.proxy_op(context, 2, true, ::getpid());
    EXPECT_EQ(nccl.proxy_op(context, 0, false, ::getpid()), nullptr) << "the sender tells";
    EXPECT_EQ(nccl.proxy_op(pair, 1, true, ::getpid()), nullptr);
    void* first = nccl.proxy_step(proxy_op);
    void* second = nccl.proxy_step(proxy_op);
    void* lost = nccl.proxy_step(proxy_op);
    nccl.state(first, 8, 4'000);   // The GPU is late,
    nccl.state(first, 20, 4'000);  // and then the receiver.
    std::this_thread::sleep_for(20ms);
    const auto begin = std::chrono::steady_clock::now();
    nccl.state(first, abi::kSendWait, 4'000);
    nccl.state(second, abi::kSendWait, 5'000);
    nccl.state(lost, abi::kSendWait, 6'000);
    std::this_thread::sleep_for(2ms);
    nccl.stop(first);
    nccl.stop(second);
    nccl.stop(proxy_op);
    const auto most = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - begin);
    run(ops);
    const auto links = nccl.links();
    ASSERT_EQ(links.size(), 1U);
    EXPECT_EQ(links[0].bytes, 9'000U);
    EXPECT_EQ(links[0].transfers, 2U);
    EXPECT_GE(links[0].transfer_us, 2'000U);
    EXPECT_LE(links[0].transfer_us, static_cast<std::uint64_t>(most.count())) << "counted once";
    EXPECT_EQ(links[0].rank, Driver::kSlot);
    EXPECT_EQ(links[0].peer_rank, 16U);
    EXPECT_EQ(links[0].source_node, name_hash("n0"));
    EXPECT_EQ(links[0].destination_node, name_hash("n1"));
  }
  nccl.finalize(pair);
  nccl.finalize(context);
}

TEST_P(Plugin, AsksForKernelsOnlyInTheStepsItMeasures) {
  set_environment("TAPAS_NCCL_EVERY", "5");
  void* context = nccl.communicator(4, 1);
  std::vector<std::uint64_t> on;
  for (std::uint64_t step = 1; step <= 30; ++step) {
    if (nccl.asked_for(abi::kKernelCh)) {
      on.push_back(step);
    }
    run(launch(context, step));
  }
  EXPECT_EQ(on, (std::vector<std::uint64_t>{9, 10, 14, 15, 19, 20, 24, 25, 29, 30}));
  const auto records = nccl.steps();
  ASSERT_EQ(records.size(), 5U);
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].step, 10 + 5 * i);
    EXPECT_EQ(records[i].forward_us, 7'400U);
  }
  nccl.finalize(context);
}

TEST_P(Plugin, TakesTheMaskThatIsAskedFor) {
  set_environment("NCCL_PROFILE_EVENT_MASK", "0x46");
  void* context = nccl.communicator(4, 1);
  EXPECT_EQ(nccl.mask(), 0x46);
  play(context, 1, 20);
  EXPECT_EQ(nccl.mask(), 0x46);
  EXPECT_EQ(nccl.steps().back().step, 20U);
  nccl.finalize(context);
}

TEST_P(Plugin, StaysOffWithOneLineWhenItCannotWork) {
  const auto expect_off = [&](const std::vector<std::string>& said) {
    EXPECT_EQ(nccl.communicator(4, 1), nullptr);
    EXPECT_EQ(nccl.communicator(4, 1), nullptr);
    EXPECT_EQ(nccl.mask(), 0);
    EXPECT_EQ(nccl.said(), said);
    EXPECT_EQ(nccl.coll(nullptr, "AllReduce", 1), nullptr);
    nccl.stop(nullptr);
  };
  ::unsetenv("TAPAS_JOB");
  expect_off({});  // Nobody asked for it.
  set_environment("TAPAS_JOB", "gpt3");
  set_environment("TAPAS_RANKS", nccl.folder.write("bad", "7 n0\n8\n"));
  expect_off({"2 TAPAS: NCCL is not watched: " + nccl.folder.file("bad") +
              ":2: not a device slot and the name of a node, as in \"8 n1\""});
}

TEST_P(Plugin, LeavesTheRankToItsScript) {
  // Both have their file; the agent prefers the script's.
  tapas_rank_options options = {};
  options.abi = TAPAS_RANK_ABI;
  options.rank = Driver::kSlot;
  options.job = "gpt3";
  options.node = "n0";
  options.session = Driver::kSession;
  void* context = nccl.communicator(4, 1);
  tapas_rank* rank = nullptr;
  EXPECT_EQ(tapas_rank_open(&options, &rank), 0);
  EXPECT_EQ(nccl.folder.count(), 3U) << "and the list of ranks";
  tapas_rank_close(rank);
  nccl.finalize(context);
}

TEST_P(Plugin, LearnsThePlansNumberAndRefusesToSwitch) {
  void* context = nccl.communicator(4, 1);
  warm_up(context);
  agent::RankSegment segment = nccl.segment();
  const auto ask = [&](agent::RankOrder order, std::uint64_t epoch) {
    agent::RankCommand command;
    command.order = order;
    command.epoch = epoch;
    segment.send(command);
    static_cast<void>(nccl.coll(context, "Broadcast", 1));
    return segment.poll_reply();
  };
  const auto adopted = ask(agent::RankOrder::kAdopt, 6);
  ASSERT_TRUE(adopted);
  EXPECT_TRUE(adopted->ok);
  const auto prepared = ask(agent::RankOrder::kPrepare, 7);
  ASSERT_TRUE(prepared);
  EXPECT_FALSE(prepared->ok);
  EXPECT_EQ(prepared->reason, "only observed by NCCL's plugin: it cannot switch");
  play(context, kWarm + 1, kWarm + 3);
  const auto records = nccl.steps();
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back().epoch, 6U);
  nccl.finalize(context);
}

TEST_P(Plugin, NeitherAllocatesNorLocksInACallback) {
  const std::uint64_t before = forbidden_calls();
  enter_callback();
  void* volatile memory = std::malloc(1);  // Else it is optimised away.
  std::free(memory);
  leave_callback();
  ASSERT_EQ(forbidden_calls(), before + 2) << "the counter counts";
  set_environment("TAPAS_NCCL_EVERY", "2");
  void* context = nccl.communicator(4, 1);
  play(context, 1, 12);
  void* proxy_op = nccl.proxy_op(context, 2, true, ::getpid());
  for (int i = 0; i < 10'000; ++i) {
    void* step = nccl.proxy_step(proxy_op);
    nccl.state(step, abi::kSendWait, 4'000);
    nccl.stop(step);
    static_cast<void>(nccl.coll(context, "Broadcast", 1));  // Until there is no room.
  }
  play(context, 13, 1'500);  // More than the ring takes.
  EXPECT_EQ(forbidden_calls(), before + 2);
  nccl.finalize(context);
}

}  // namespace
}  // namespace tapas::nccl
