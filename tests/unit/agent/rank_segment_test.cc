#include "agent/collect/rank_segment.h"

#include "agent/rank/segment.h"
#include "agent/rank/tapas_rank.h"
#include "base/ids.h"
#include "temporary_folder.h"
#include "wire/record_codec.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace tapas::agent {
namespace {

struct CloseRank {
  void operator()(tapas_rank* rank) const { tapas_rank_close(rank); }
};
using RankHandle = std::unique_ptr<tapas_rank, CloseRank>;

tapas_rank_options options_in(const TemporaryFolder& folder) {
  tapas_rank_options options = {};
  options.abi = TAPAS_RANK_ABI;
  options.rank = 3;
  options.job = "gpt3";
  options.node = "n0";
  options.session = 77;
  options.device[0] = 0xAB;
  options.dir = folder.path().c_str();
  options.ring_records = 8;
  return options;
}

RankHandle open_rank(const tapas_rank_options& options) {
  tapas_rank* rank = nullptr;
  EXPECT_EQ(tapas_rank_open(&options, &rank), 0);
  return RankHandle(rank);
}

std::string segment_path(const TemporaryFolder& folder) {
  return folder.file(fmt::format("tapas-rank.{:016x}.3", name_hash("gpt3")));
}

RankSegment open_segment(const TemporaryFolder& folder) {
  auto segment = RankSegment::open(segment_path(folder), "n0");
  EXPECT_TRUE(segment) << segment.error().message;
  return *std::move(segment);
}

// More do not fit into one telemetry payload, which decode_records() refuses.
constexpr std::size_t kMaxRecords = wire::kMaxTelemetryBytes / wire::kRecordBytes;

std::vector<wire::StepRecord> read_all(RankSegment& segment, std::size_t max = kMaxRecords) {
  std::vector<std::byte> bytes;
  const std::size_t count = segment.read_records(bytes, max);
  EXPECT_EQ(bytes.size(), count * wire::kRecordBytes);
  std::vector<wire::StepRecord> records;
  const auto decoded = wire::decode_records(bytes);
  for (const wire::Record& record : decoded.value()) {
    records.push_back(std::get<wire::StepRecord>(record));
  }
  return records;
}

tapas_step_record step(std::uint64_t number) {
  tapas_step_record record = {};
  record.step = number;
  record.end_time_ns = 1000 + number;
  return record;
}

TEST(RankSegment, CarriesARecordWithTheRanksIdentity) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  RankSegment segment = open_segment(folder);
  EXPECT_EQ(segment.job(), "gpt3");
  EXPECT_EQ(segment.session(), 77U);
  EXPECT_EQ(segment.rank(), 3U);
  EXPECT_EQ(segment.describe().info.device_uuid, "ab" + std::string(30, '0'));
  EXPECT_EQ(segment.describe().info.pid, static_cast<std::uint32_t>(::getpid()));

  const tapas_step_record given = {9,  10, 11, TAPAS_CHECKPOINT, 12, 13, 14, 15, 16, 17, 18, 19,
                                   20, 21, 22};
  ASSERT_EQ(tapas_rank_record(rank.get(), &given), 1);
  const auto records = read_all(segment);
  ASSERT_EQ(records.size(), 1U);
  const wire::StepRecord& record = records[0];
  EXPECT_EQ(record.job, name_hash("gpt3"));
  EXPECT_EQ(record.session, 77U);
  EXPECT_EQ(record.node, name_hash("n0"));
  EXPECT_EQ(record.rank, 3U);
  EXPECT_EQ(record.device[0], 0xAB);
  EXPECT_EQ(record.epoch, 0U);
  EXPECT_EQ(record.step, 9U);
  EXPECT_EQ(record.end_time_ns, 10U);
  EXPECT_EQ(record.bytes_moved, 11U);
  EXPECT_EQ(record.flags, wire::kCheckpoint);
  EXPECT_EQ(record.microbatches, 12U);
  EXPECT_EQ(record.wall_us, 13U);
  EXPECT_EQ(record.forward_us, 14U);
  EXPECT_EQ(record.backward_us, 15U);
  EXPECT_EQ(record.optimizer_us, 16U);
  EXPECT_EQ(record.tp_collective_us, 17U);
  EXPECT_EQ(record.pp_wait_us, 18U);
  EXPECT_EQ(record.pp_transfer_us, 19U);
  EXPECT_EQ(record.dp_collective_us, 20U);
  EXPECT_EQ(record.work_tokens, 21U);
  EXPECT_EQ(record.input_wait_us, 22U);
  EXPECT_TRUE(read_all(segment).empty()) << "each record is read once";
}

TEST(RankSegment, DropsAndCountsWhenNobodyReads) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  int taken = 0;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    const auto record = step(i);
    taken += tapas_rank_record(rank.get(), &record);
  }
  EXPECT_EQ(taken, 8);
  EXPECT_EQ(tapas_rank_dropped(rank.get()), 12U);
  RankSegment segment = open_segment(folder);
  EXPECT_EQ(segment.take_dropped(), 12U);
  EXPECT_EQ(segment.take_dropped(), 0U);
  EXPECT_EQ(read_all(segment, 3).back().step, 3U);
  EXPECT_EQ(read_all(segment).back().step, 8U);
}

TEST(RankSegment, KeepsOrderUnderAConcurrentWriter) {
  const TemporaryFolder folder;
  auto options = options_in(folder);
  options.ring_records = 64;
  const RankHandle rank = open_rank(options);
  RankSegment segment = open_segment(folder);
  constexpr std::uint64_t kSteps = 200'000;
  std::uint64_t taken = 0;
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= kSteps; ++i) {
      auto record = step(i);
      record.wall_us = static_cast<std::uint32_t>(i);
      record.work_tokens = ~static_cast<std::uint32_t>(i);
      taken += static_cast<std::uint64_t>(tapas_rank_record(rank.get(), &record));
    }
  });
  std::uint64_t read = 0;
  std::uint64_t last = 0;
  const auto check = [&] {
    for (const wire::StepRecord& record : read_all(segment)) {
      ASSERT_GT(record.step, last);
      ASSERT_EQ(record.wall_us, record.step) << "a torn record";
      ASSERT_EQ(record.work_tokens, ~static_cast<std::uint32_t>(record.step));
      last = record.step;
      ++read;
    }
  };
  while (last + 64 < kSteps && !HasFatalFailure()) {
    check();
    if (tapas_rank_dropped(rank.get()) + read > kSteps - 64) {
      break;
    }
  }
  writer.join();
  check();
  EXPECT_EQ(read, taken);
  EXPECT_EQ(segment.bad_records(), 0U);
  EXPECT_EQ(tapas_rank_dropped(rank.get()), kSteps - taken);
}

TEST(RankSegment, NeverShowsHalfAMessage) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  RankSegment segment = open_segment(folder);
  constexpr std::uint64_t kMessages = 100'000;
  std::thread agent([&segment] {
    for (std::uint64_t i = 1; i <= kMessages; ++i) {
      segment.send({"gpt3", 3, RankOrder::kArm, i, i + 1, i + 2});
    }
  });
  std::uint64_t last = 0;
  while (last < kMessages) {
    tapas_command command = {};
    if (tapas_rank_poll(rank.get(), &command) == 0) {
      continue;
    }
    ASSERT_GT(command.from_epoch, last);
    ASSERT_EQ(command.epoch, command.from_epoch + 1);
    ASSERT_EQ(command.at_step, command.from_epoch + 2);
    last = command.from_epoch;
  }
  agent.join();
  tapas_command command = {};
  EXPECT_EQ(tapas_rank_poll(rank.get(), &command), 0) << "each order is seen once";
}

void reply_ok(tapas_rank* rank, std::uint32_t order, std::uint64_t epoch) {
  tapas_reply reply = {};
  reply.order = order;
  reply.ok = 1;
  reply.epoch = epoch;
  reply.step = 40;
  reply.bytes = 41;
  reply.seconds = 0.5;
  ASSERT_EQ(tapas_rank_reply(rank, &reply), 0);
}

TEST(RankSegment, CarriesRepliesOnce) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  RankSegment segment = open_segment(folder);
  EXPECT_FALSE(segment.poll_reply());
  reply_ok(rank.get(), TAPAS_TRANSFER, 7);
  auto reply = segment.poll_reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->rank, 3U);
  EXPECT_EQ(reply->order, RankOrder::kTransfer);
  EXPECT_EQ(reply->epoch, 7U);
  EXPECT_TRUE(reply->ok);
  EXPECT_EQ(reply->step, 40U);
  EXPECT_EQ(reply->bytes, 41U);
  EXPECT_EQ(reply->seconds, 0.5);
  EXPECT_FALSE(segment.poll_reply());

  const std::string reason(1000, 'r');
  tapas_reply refusal = {};
  refusal.order = TAPAS_PREPARE;
  refusal.reason = reason.c_str();
  ASSERT_EQ(tapas_rank_reply(rank.get(), &refusal), 0);
  reply = segment.poll_reply();
  ASSERT_TRUE(reply);
  EXPECT_FALSE(reply->ok);
  EXPECT_EQ(reply->reason, std::string(159, 'r'));
}

TEST(RankSegment, TellsANewAgentWhereTheRankStands) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  reply_ok(rank.get(), TAPAS_ADOPT, 4);
  EXPECT_EQ(tapas_rank_epoch(rank.get()), 4U);
  EXPECT_EQ(open_segment(folder).describe().epoch, 4U);
  reply_ok(rank.get(), TAPAS_PREPARE, 5);
  reply_ok(rank.get(), TAPAS_ARM, 5);
  LocalRank found = open_segment(folder).describe();
  EXPECT_EQ(found.epoch, 4U);
  EXPECT_EQ(found.pending_epoch, 5U);
  EXPECT_EQ(found.done, RankOrder::kArm);
  reply_ok(rank.get(), TAPAS_ABORT, 5);
  EXPECT_EQ(open_segment(folder).describe().pending_epoch, 0U);
  EXPECT_EQ(tapas_rank_epoch(rank.get()), 4U);
  reply_ok(rank.get(), TAPAS_COMMIT, 6);
  found = open_segment(folder).describe();
  EXPECT_EQ(found.epoch, 6U);
  EXPECT_EQ(found.pending_epoch, 0U);

  const auto record = step(1);
  tapas_rank_record(rank.get(), &record);
  RankSegment segment = open_segment(folder);
  EXPECT_EQ(read_all(segment).at(0).epoch, 6U) << "records carry the epoch they ran under";
}

TEST(RankSegment, RefusesTheOrderOfADaemonThatWasThoughtDead) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  RankSegment agent = open_segment(folder);
  tapas_command command = {};
  agent.send({"gpt3", 3, RankOrder::kPrepare, 1, 2, 0, 7});
  ASSERT_EQ(tapas_rank_poll(rank.get(), &command), 1);
  reply_ok(rank.get(), TAPAS_PREPARE, 2);
  ASSERT_TRUE(agent.poll_reply());

  agent.send({"gpt3", 3, RankOrder::kAdopt, 1, 9, 0, 6});
  EXPECT_EQ(tapas_rank_poll(rank.get(), &command), 0) << "the rank does not see it";
  const auto refusal = agent.poll_reply();
  ASSERT_TRUE(refusal);
  EXPECT_FALSE(refusal->ok);
  EXPECT_EQ(refusal->epoch, 9U);
  EXPECT_NE(refusal->reason.find("term 6, term 7 leads"), std::string::npos) << refusal->reason;
  const LocalRank found = open_segment(folder).describe();
  EXPECT_EQ(found.pending_epoch, 2U) << "nothing has changed";
  EXPECT_EQ(found.term, 7U) << "and the next agent knows";

  agent.send({"gpt3", 3, RankOrder::kAbort, 1, 2, 0, 8});
  EXPECT_EQ(tapas_rank_poll(rank.get(), &command), 1) << "the newer one leads";
}

TEST(RankSegment, HandsTheRingOverToTheNextAgent) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  for (std::uint64_t i = 1; i <= 5; ++i) {
    const auto record = step(i);
    tapas_rank_record(rank.get(), &record);
  }
  {
    RankSegment first = open_segment(folder);
    EXPECT_EQ(read_all(first, 2).back().step, 2U);
    first.send({"gpt3", 3, RankOrder::kPrepare, 1, 2, 0});
  }
  tapas_command command = {};
  ASSERT_EQ(tapas_rank_poll(rank.get(), &command), 1);
  RankSegment second = open_segment(folder);
  EXPECT_EQ(read_all(second).front().step, 3U);
  second.send({"gpt3", 3, RankOrder::kAbort, 1, 2, 0});
  ASSERT_EQ(tapas_rank_poll(rank.get(), &command), 1);
  EXPECT_EQ(command.order, std::uint32_t{TAPAS_ABORT});
}

TEST(RankSegment, SeesTheDeathOfARank) {
  const TemporaryFolder folder;
  const auto options = options_in(folder);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    tapas_rank* rank = nullptr;
    const auto record = step(12);
    const bool good =
        tapas_rank_open(&options, &rank) == 0 && tapas_rank_record(rank, &record) == 1;
    const char byte = good ? 'y' : 'n';
    [[maybe_unused]] const ssize_t written = ::write(ready[1], &byte, 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  RankSegment segment = open_segment(folder);
  EXPECT_TRUE(segment.alive());
  tapas_rank* second = nullptr;
  EXPECT_EQ(tapas_rank_open(&options, &second), -EBUSY) << "one process per rank";

  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(segment.alive());
  EXPECT_EQ(read_all(segment).at(0).step, 12U) << "its last records are not lost";

  const RankHandle next = open_rank(options);
  RankSegment fresh = open_segment(folder);
  EXPECT_NE(fresh.inode(), segment.inode());
  segment.remove_file();
  EXPECT_TRUE(std::filesystem::exists(segment_path(folder))) << "the name belongs to the next one";
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(RankSegment, IsNotKeptAliveByForksOfTheRank) {
  const TemporaryFolder folder;
  const auto options = options_in(folder);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t owner = ::fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    tapas_rank* rank = nullptr;
    const int error = tapas_rank_open(&options, &rank);
    const pid_t worker = error == 0 ? ::fork() : -1;
    if (worker != 0) {
      [[maybe_unused]] const ssize_t written = ::write(ready[1], &worker, sizeof(worker));
    }
    ::pause();
    ::_exit(0);
  }
  pid_t worker = -1;
  ASSERT_EQ(::read(ready[0], &worker, sizeof(worker)), static_cast<ssize_t>(sizeof(worker)));
  ASSERT_GT(worker, 0);
  const RankSegment segment = open_segment(folder);
  EXPECT_TRUE(segment.alive());
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  EXPECT_FALSE(segment.alive());
  EXPECT_EQ(::kill(worker, SIGKILL), 0) << "the fork was still there";
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(RankSegment, IsNotOpenedTwiceByOneProcess) {
  const TemporaryFolder folder;
  const auto options = options_in(folder);
  const RankHandle rank = open_rank(options);
  tapas_rank* second = nullptr;
  EXPECT_EQ(tapas_rank_open(&options, &second), -EBUSY);
  EXPECT_TRUE(open_segment(folder).alive()) << "the first one stays as it was";
}

TEST(RankSegment, LeavesNoFileBehindWhenAllWasRead) {
  const TemporaryFolder folder;
  RankHandle rank = open_rank(options_in(folder));
  EXPECT_EQ(folder.count(), 1U);
  rank.reset();
  EXPECT_EQ(folder.count(), 0U);

  rank = open_rank(options_in(folder));
  const auto record = step(1);
  tapas_rank_record(rank.get(), &record);
  RankSegment segment = open_segment(folder);
  rank.reset();
  EXPECT_EQ(folder.count(), 1U) << "unread records stay for the agent";
  EXPECT_EQ(read_all(segment).size(), 1U);
}

TEST(RankSegment, LeavesOutRecordsThatAreMalformedOrNotItsOwn) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  for (std::uint64_t i = 1; i <= 8; ++i) {
    const auto record = step(i);
    ASSERT_EQ(tapas_rank_record(rank.get(), &record), 1);
  }
  const auto damage = [&folder](std::size_t slot, std::size_t offset, std::uint8_t value) {
    std::fstream file(segment_path(folder), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(kRingOffset + slot * wire::kRecordBytes + offset));
    file.put(static_cast<char>(value));
  };
  damage(0, offsetof(wire::StepRecord, kind), 3);
  damage(1, offsetof(wire::StepRecord, version), 9);
  damage(2, offsetof(wire::StepRecord, job), 0);
  damage(3, offsetof(wire::StepRecord, session), 1);
  damage(4, offsetof(wire::StepRecord, rank), 4);
  damage(5, offsetof(wire::StepRecord, flags) + 3, 1);
  RankSegment segment = open_segment(folder);
  const auto records = read_all(segment);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].step, 7U);
  EXPECT_EQ(segment.bad_records(), 6U);
}

/// Writes `value` at `offset` of a good segment and returns why it is then refused.
template <typename T>
std::string refusal_after(std::size_t offset, T value) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  {
    std::fstream file(segment_path(folder), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  const auto segment = RankSegment::open(segment_path(folder), "n0");
  return segment ? "accepted" : segment.error().message;
}

TEST(RankSegment, RefusesFilesThatAreNoSegmentOfThisRelease) {
  EXPECT_NE(refusal_after(0, std::uint64_t{1}).find("not a rank segment"), std::string::npos);
  EXPECT_NE(refusal_after(offsetof(Segment, layout), std::uint32_t{1}).find("layout 1"),
            std::string::npos);
  EXPECT_NE(refusal_after(offsetof(Segment, record_bytes), std::uint32_t{64}).find("+ 64"),
            std::string::npos);
  for (const std::uint32_t ring : {0U, 7U, 16U, 1U << 31U}) {
    EXPECT_NE(refusal_after(offsetof(Segment, ring_records), ring).find("does not fit"),
              std::string::npos);
  }
  EXPECT_NE(refusal_after(offsetof(Segment, job), '/').find("malformed"), std::string::npos);
  EXPECT_NE(refusal_after(offsetof(Segment, job_hash), std::uint64_t{1}).find("malformed"),
            std::string::npos);
  EXPECT_NE(refusal_after(offsetof(Segment, node), 'm').find("node m0"), std::string::npos);
  const TemporaryFolder folder;
  EXPECT_FALSE(RankSegment::open(folder.write("empty", ""), "n0"));
  EXPECT_FALSE(RankSegment::open(folder.write("short", std::string(1151, 'x')), "n0"));
  EXPECT_FALSE(RankSegment::open(folder.write("noise", std::string(8192, 'x')), "n0"));
}

TEST(RankSegment, SurvivesARankThatMovesItsPositionsAtWill) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  RankSegment segment = open_segment(folder);
  std::fstream file(segment_path(folder), std::ios::in | std::ios::out | std::ios::binary);
  const std::uint64_t far = std::numeric_limits<std::uint64_t>::max() / 2;
  file.seekp(static_cast<std::streamoff>(offsetof(Segment, head)));
  file.write(reinterpret_cast<const char*>(&far), sizeof(far));
  file.flush();
  EXPECT_TRUE(read_all(segment).empty());
  EXPECT_EQ(segment.bad_records(), 1U);
  const auto record = step(1);
  EXPECT_EQ(tapas_rank_record(rank.get(), &record), 1);
  EXPECT_EQ(read_all(segment).size(), 1U) << "goes on from the rank's position";
}

TEST(RankSegment, NoticesAFileThatWasCut) {
  const TemporaryFolder folder;
  const RankHandle rank = open_rank(options_in(folder));
  RankSegment segment = open_segment(folder);
  EXPECT_TRUE(segment.intact());
  std::filesystem::resize_file(segment_path(folder), 4096);
  EXPECT_FALSE(segment.intact());
  EXPECT_FALSE(segment.alive());
  std::filesystem::resize_file(segment_path(folder), kRingOffset + 8 * wire::kRecordBytes);
}

TEST(RankLibrary, RefusesBadOptions) {
  const TemporaryFolder folder;
  const auto error_with = [&folder](auto change) {
    auto options = options_in(folder);
    change(options);
    tapas_rank* rank = nullptr;
    const int error = tapas_rank_open(&options, &rank);
    EXPECT_EQ(rank, nullptr);
    return error;
  };
  EXPECT_EQ(error_with([](auto& o) { o.abi = 2; }), -EINVAL);
  EXPECT_EQ(error_with([](auto& o) { o.job = nullptr; }), -EINVAL);
  EXPECT_EQ(error_with([](auto& o) { o.job = "../evil"; }), -EINVAL);
  EXPECT_EQ(error_with([](auto& o) { o.node = ""; }), -EINVAL);
  EXPECT_EQ(error_with([](auto& o) { o.ring_records = 9; }), -EINVAL);
  EXPECT_EQ(error_with([](auto& o) { o.ring_records = 1U << 17U; }), -EINVAL);
  EXPECT_EQ(error_with([](auto& o) { o.dir = "/nonexistent"; }), -ENOENT);
  EXPECT_EQ(tapas_rank_open(nullptr, nullptr), -EINVAL);
  EXPECT_EQ(folder.count(), 0U);
}

TEST(RankLibrary, DoesNothingWithoutAHandle) {
  const auto record = step(1);
  tapas_command command = {};
  tapas_reply reply = {};
  EXPECT_EQ(tapas_rank_record(nullptr, &record), 0);
  EXPECT_EQ(tapas_rank_poll(nullptr, &command), 0);
  EXPECT_EQ(tapas_rank_reply(nullptr, &reply), 0);
  EXPECT_EQ(tapas_rank_plan(nullptr, 1, nullptr, 0), 0);
  EXPECT_EQ(tapas_rank_epoch(nullptr), 0U);
  EXPECT_EQ(tapas_rank_dropped(nullptr), 0U);
  tapas_rank_close(nullptr);
}

}  // namespace
}  // namespace tapas::agent
