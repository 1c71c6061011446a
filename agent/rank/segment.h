#pragma once

#include "wire/record.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

/// The memory that one rank and its node's agent share: layout 2, both ends on one host. The rank
/// makes it complete under another name and renames it to `tapas-rank.<job hash>.<rank>`, so a file
/// of that name is always whole. The rank holds a POSIX record lock on it for its lifetime: the
/// kernel drops it at death, in any PID namespace, and forks do not inherit it.
namespace tapas::agent {

inline constexpr std::uint64_t kSegmentMagic = 0x314B4E5253504154ULL;  // "TAPSRNK1"
inline constexpr std::uint32_t kSegmentLayout = 2;
inline constexpr std::uint32_t kDefaultRingRecords = 1024;
inline constexpr std::uint32_t kMaxRingRecords = 65'536;
inline constexpr std::size_t kSegmentNameBytes = 256;

/// A message slot with one writer and one reader in different processes. The newest message wins.
/// Neither side ever waits; a writer that died half-way leaves nothing readable behind.
template <typename T>
class Mailbox {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);
  using Words = std::array<std::uint64_t, sizeof(T) / sizeof(std::uint64_t)>;

 public:
  void write(const T& message) {
    const auto words = std::bit_cast<Words>(message);
    const std::uint64_t busy = sequence_.load(std::memory_order_relaxed) | 1U;
    sequence_.store(busy, std::memory_order_relaxed);
    // Release on every word: whoever sees one of them also sees `busy`.
    for (std::size_t i = 0; i < words.size(); ++i) {
      words_[i].store(words[i], std::memory_order_release);
    }
    sequence_.store(busy + 1, std::memory_order_release);
  }

  /// Number of messages so far; changes when there is a new one.
  [[nodiscard]] std::uint64_t count() const {
    return sequence_.load(std::memory_order_acquire) / 2;
  }

  /// The message and its count. False while one is being written: ask again later.
  [[nodiscard]] bool read(T& message, std::uint64_t& count) const {
    const std::uint64_t before = sequence_.load(std::memory_order_acquire);
    Words words;
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = words_[i].load(std::memory_order_acquire);
    }
    if ((before & 1U) != 0 || sequence_.load(std::memory_order_relaxed) != before) {
      return false;
    }
    message = std::bit_cast<T>(words);
    count = before / 2;
    return true;
  }

 private:
  std::atomic<std::uint64_t> sequence_{0};
  std::array<std::atomic<std::uint64_t>, sizeof(T) / sizeof(std::uint64_t)> words_{};
};

struct SegmentCommand {
  std::uint32_t order = 0;
  std::uint32_t reserved = 0;
  std::uint64_t from_epoch = 0;
  std::uint64_t epoch = 0;
  std::uint64_t at_step = 0;
  std::uint64_t term = 0;  ///< of the daemon that gave the order
};

/// The rank's last answer, and where it stands after it.
struct SegmentReply {
  std::uint32_t order = 0;
  std::uint32_t ok = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  double seconds = 0.0;
  std::uint64_t active_epoch = 0;
  std::uint64_t pending_epoch = 0;
  std::uint64_t done = 0;  ///< last order carried out for pending_epoch
  std::uint64_t term = 0;  ///< highest of the orders so far
  char reason[160] = {};   ///< zero-terminated
};

struct Segment {
  // Written once, before the segment gets its name.
  std::uint64_t magic = kSegmentMagic;
  std::uint32_t layout = kSegmentLayout;
  std::uint32_t segment_bytes = 0;  ///< sizeof(Segment); the ring follows
  std::uint32_t record_bytes = 0;
  std::uint32_t ring_records = 0;  ///< power of two
  std::uint64_t job_hash = 0;
  std::uint64_t session = 0;
  std::uint64_t nonce = 0;  ///< random per open
  std::uint32_t rank = 0;
  std::uint32_t pid = 0;
  wire::DeviceUuid device = {};
  char job[kSegmentNameBytes] = {};   ///< zero-terminated
  char node[kSegmentNameBytes] = {};  ///< zero-terminated

  // Each side writes its own cache lines only.
  alignas(64) std::atomic<std::uint64_t> head{0};  ///< records written, by the rank
  std::atomic<std::uint64_t> dropped{0};           ///< by the rank
  std::atomic<std::uint32_t> closed{0};            ///< by the rank
  alignas(64) std::atomic<std::uint64_t> tail{0};  ///< records read, by the agent
  alignas(64) Mailbox<SegmentCommand> command;     ///< by the agent
  alignas(64) Mailbox<SegmentReply> reply;         ///< by the rank
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(Segment) == 1088, "a change of the layout needs a new kSegmentLayout");

/// The ring starts at the next record boundary after the segment.
inline constexpr std::size_t kRingOffset =
    (sizeof(Segment) + wire::kRecordBytes - 1) / wire::kRecordBytes * wire::kRecordBytes;

/// One side's view of the ring: the rank pushes, the agent pops. The size is each side's own copy,
/// as the other one could change what is in the segment.
class RecordRing {
 public:
  RecordRing() = default;
  RecordRing(Segment* segment, std::uint64_t records)
      : segment_(segment),
        slots_(reinterpret_cast<std::byte*>(segment) + kRingOffset),
        records_(records) {}

  /// A StepRecord or a LinkRecord. False, and the loss counted, when it is full.
  template <typename Record = wire::StepRecord>
  bool push(const Record& record) {
    static_assert(sizeof(Record) == wire::kRecordBytes);
    const std::uint64_t head = segment_->head.load(std::memory_order_relaxed);
    if (head - segment_->tail.load(std::memory_order_acquire) >= records_) {
      segment_->dropped.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    std::memcpy(slot(head), &record, sizeof(record));
    segment_->head.store(head + 1, std::memory_order_release);
    return true;
  }

  /// False when there is none. Its kind tells whether it is one: the bytes are as they lie there.
  bool pop(wire::StepRecord& record) {
    const std::uint64_t tail = segment_->tail.load(std::memory_order_relaxed);
    if (segment_->head.load(std::memory_order_acquire) == tail) {
      return false;
    }
    std::memcpy(&record, slot(tail), sizeof(record));
    segment_->tail.store(tail + 1, std::memory_order_release);
    return true;
  }

  /// Goes on at the rank's position when that is further than a ring away, which only a broken rank
  /// gets to. True when it did.
  bool resynchronise() {
    const std::uint64_t head = segment_->head.load(std::memory_order_acquire);
    if (head - segment_->tail.load(std::memory_order_relaxed) <= records_) {
      return false;
    }
    segment_->tail.store(head, std::memory_order_release);
    return true;
  }

 private:
  [[nodiscard]] std::byte* slot(std::uint64_t position) const {
    return slots_ + position % records_ * wire::kRecordBytes;
  }

  Segment* segment_ = nullptr;
  std::byte* slots_ = nullptr;
  std::uint64_t records_ = 1;
};

}  // namespace tapas::agent
