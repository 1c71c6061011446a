#include "agent/rank/tapas_rank.h"

#include "agent/rank/observer.h"
#include "agent/rank/segment.h"
#include "base/ids.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

// Only libc at run time: this lives inside other people's processes.

using tapas::agent::RecordRing;
using tapas::agent::Segment;
using tapas::agent::SegmentCommand;
using tapas::agent::SegmentReply;
using tapas::wire::StepRecord;

struct tapas_rank {
  Segment* segment = nullptr;
  RecordRing ring;
  std::size_t mapped_bytes = 0;
  int fd = -1;
  std::uint64_t commands_seen = 0;
  SegmentReply state;  ///< last reply written
  StepRecord record;   ///< identity filled in
  char dir[PATH_MAX] = {};
  char path[PATH_MAX] = {};
};

namespace {

struct flock whole_file(short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// True when a living process has the segment at `path` open.
bool in_use(const char* path) {
  const int fd = ::open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    return false;
  }
  // An OFD query also sees the record lock of this very process.
  struct flock lock = whole_file(F_WRLCK);
  const bool used = ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  if (!used || lock.l_pid != ::getpid()) {
    ::close(fd);  // Closing it drops every record lock of this process on the file, so not our own.
  }
  return used;
}

const char* segment_dir(const tapas_rank_options& options) {
  if (options.dir != nullptr) {
    return options.dir;
  }
  const char* dir = std::getenv("TAPAS_RANK_DIR");
  return dir != nullptr && *dir != '\0' ? dir : "/dev/shm";
}

bool valid(const tapas_rank_options& options) {
  const std::uint32_t ring = options.ring_records;
  return options.abi == TAPAS_RANK_ABI && options.job != nullptr && options.node != nullptr &&
         tapas::valid_name(options.job) && tapas::valid_name(options.node) &&
         (ring == 0 || (std::has_single_bit(ring) && ring <= tapas::agent::kMaxRingRecords));
}

void fill(Segment& segment, const tapas_rank_options& options, std::uint32_t ring,
          std::uint64_t nonce) {
  segment.segment_bytes = sizeof(Segment);
  segment.record_bytes = tapas::wire::kRecordBytes;
  segment.ring_records = ring;
  segment.job_hash = tapas::name_hash(options.job);
  segment.session = options.session;
  segment.nonce = nonce;
  segment.rank = options.rank;
  segment.pid = static_cast<std::uint32_t>(::getpid());
  std::copy(std::begin(options.device), std::end(options.device), segment.device.begin());
  std::snprintf(segment.job, sizeof(segment.job), "%s", options.job);
  std::snprintf(segment.node, sizeof(segment.node), "%s", options.node);
}

/// Makes the file under its temporary name, fills it, locks it and gives it its name.
int create(tapas_rank& rank, const tapas_rank_options& options) {
  const std::uint32_t ring =
      options.ring_records == 0 ? tapas::agent::kDefaultRingRecords : options.ring_records;
  std::uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof(nonce), 0) != static_cast<ssize_t>(sizeof(nonce))) {
    return -EIO;
  }
  char fresh[PATH_MAX];
  const int length = std::snprintf(fresh, sizeof(fresh), "%s/.tapas-rank.%016llx", rank.dir,
                                   static_cast<unsigned long long>(nonce));
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof(fresh)) {
    return -ENAMETOOLONG;
  }
  rank.fd = ::open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (rank.fd < 0) {
    return -errno;
  }
  rank.mapped_bytes = tapas::agent::kRingOffset + std::size_t{ring} * tapas::wire::kRecordBytes;
  // Group access whatever the umask is: in a set-gid folder that is the agent's group. Memory is
  // taken now, so that a full file system shows here and not as SIGBUS in a training step.
  int error = ::fchmod(rank.fd, 0660) != 0 ? errno : 0;
  if (error == 0) {
    error = ::posix_fallocate(rank.fd, 0, static_cast<off_t>(rank.mapped_bytes));
  }
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = ::mmap(nullptr, rank.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rank.fd, 0);
    error = memory == MAP_FAILED ? errno : 0;
  }
  if (error == 0) {
    rank.segment = new (memory) Segment;
    rank.ring = RecordRing(rank.segment, ring);
    fill(*rank.segment, options, ring, nonce);
    struct flock lock = whole_file(F_WRLCK);
    const bool named = ::fcntl(rank.fd, F_SETLK, &lock) == 0 && ::rename(fresh, rank.path) == 0;
    error = named ? 0 : errno;
  }
  if (error != 0) {
    ::unlink(fresh);
  }
  return -error;
}

void release(tapas_rank* rank) {
  if (rank->segment != nullptr) {
    ::munmap(rank->segment, rank->mapped_bytes);
  }
  if (rank->fd >= 0) {
    ::close(rank->fd);
  }
  std::free(rank);
}

std::uint64_t now_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);  // Through the vDSO: no system call.
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// Where the rank stands after an order that it carried out.
void advance(SegmentReply& state, const tapas_reply& reply) {
  switch (reply.order) {
    case TAPAS_ADOPT:
    case TAPAS_COMMIT:
      state.active_epoch = reply.epoch;
      state.pending_epoch = 0;
      break;
    case TAPAS_ABORT:
      state.pending_epoch = 0;
      break;
    default:
      state.pending_epoch = reply.epoch;
      break;
  }
  state.done = reply.order;
}

}  // namespace

int tapas::agent::open_rank(const tapas_rank_options* options, const char* prefix,
                            tapas_rank** rank) {
  if (rank == nullptr) {
    return -EINVAL;
  }
  *rank = nullptr;
  if (options == nullptr || !valid(*options)) {
    return -EINVAL;
  }
  void* memory = std::malloc(sizeof(tapas_rank));  // operator new would need libstdc++.
  if (memory == nullptr) {
    return -ENOMEM;
  }
  auto* fresh = new (memory) tapas_rank;
  const std::uint64_t job = tapas::name_hash(options->job);
  std::snprintf(fresh->dir, sizeof(fresh->dir), "%s", segment_dir(*options));
  const int length = std::snprintf(fresh->path, sizeof(fresh->path), "%s/%s.%016llx.%u", fresh->dir,
                                   prefix, static_cast<unsigned long long>(job), options->rank);
  int error = 0;
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof(fresh->path)) {
    error = -ENAMETOOLONG;
  } else if (in_use(fresh->path)) {
    error = -EBUSY;
  } else {
    error = create(*fresh, *options);
  }
  if (error != 0) {
    release(fresh);
    return error;
  }
  StepRecord& record = fresh->record;
  record.job = job;
  record.session = options->session;
  record.node = tapas::name_hash(options->node);
  record.rank = options->rank;
  record.device = fresh->segment->device;
  *rank = fresh;
  return 0;
}

int tapas_rank_open(const tapas_rank_options* options, tapas_rank** rank) {
  return tapas::agent::open_rank(options, "tapas-rank", rank);
}

bool tapas::agent::record_link(tapas_rank* rank, const wire::LinkRecord& link) {
  if (rank == nullptr) {
    return false;
  }
  wire::LinkRecord out = link;
  out.job = rank->record.job;
  out.session = rank->record.session;
  out.source_node = rank->record.node;
  out.rank = rank->record.rank;
  out.device = rank->record.device;
  out.end_time_ns = now_ns();
  return rank->ring.push(out);
}

int tapas_rank_record(tapas_rank* rank, const tapas_step_record* record) {
  if (rank == nullptr || record == nullptr) {
    return 0;
  }
  StepRecord& out = rank->record;
  out.flags = record->flags & tapas::wire::kKnownStepFlags;
  out.epoch = rank->state.active_epoch;
  out.step = record->step;
  out.end_time_ns = record->end_time_ns != 0 ? record->end_time_ns : now_ns();
  out.microbatches = record->microbatches;
  out.wall_us = record->wall_us;
  out.forward_us = record->forward_us;
  out.backward_us = record->backward_us;
  out.optimizer_us = record->optimizer_us;
  out.tp_collective_us = record->tp_collective_us;
  out.pp_wait_us = record->pp_wait_us;
  out.pp_transfer_us = record->pp_transfer_us;
  out.dp_collective_us = record->dp_collective_us;
  out.bytes_moved = record->bytes_moved;
  out.work_tokens = record->work_tokens;
  out.input_wait_us = record->input_wait_us;
  return rank->ring.push(out) ? 1 : 0;
}

int tapas_rank_poll(tapas_rank* rank, tapas_command* command) {
  if (rank == nullptr || command == nullptr ||
      rank->segment->command.count() == rank->commands_seen) {
    return 0;
  }
  SegmentCommand message;
  std::uint64_t count = 0;
  if (!rank->segment->command.read(message, count) || count == rank->commands_seen) {
    return 0;
  }
  rank->commands_seen = count;
  SegmentReply& state = rank->state;
  if (message.term < state.term) {
    // A daemon that was thought dead: another one leads by now.
    state.order = message.order;
    state.ok = 0;
    state.epoch = message.epoch;
    std::snprintf(state.reason, sizeof(state.reason), "an order of term %llu, term %llu leads",
                  static_cast<unsigned long long>(message.term),
                  static_cast<unsigned long long>(state.term));
    rank->segment->reply.write(state);
    return 0;
  }
  state.term = message.term;
  *command = {message.order, 0, message.from_epoch, message.epoch, message.at_step};
  return 1;
}

int tapas_rank_reply(tapas_rank* rank, const tapas_reply* reply) {
  if (rank == nullptr) {
    return 0;
  }
  if (reply == nullptr || reply->order > TAPAS_ABORT) {
    return -EINVAL;
  }
  SegmentReply& state = rank->state;
  state.order = reply->order;
  state.ok = reply->ok != 0 ? 1 : 0;
  state.epoch = reply->epoch;
  state.step = reply->step;
  state.bytes = reply->bytes;
  state.seconds = reply->seconds;
  std::memset(state.reason, 0, sizeof(state.reason));
  if (reply->reason != nullptr) {
    std::snprintf(state.reason, sizeof(state.reason), "%s", reply->reason);
  }
  if (state.ok != 0) {
    advance(state, *reply);
  }
  rank->segment->reply.write(state);
  return 0;
}

int64_t tapas_rank_plan(const tapas_rank* rank, uint64_t epoch, char* buffer, size_t size) {
  if (rank == nullptr) {
    return 0;
  }
  char path[PATH_MAX];
  const int length = std::snprintf(path, sizeof(path), "%s/tapas-plan.%016llx.%llu", rank->dir,
                                   static_cast<unsigned long long>(rank->record.job),
                                   static_cast<unsigned long long>(epoch));
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof(path)) {
    return -ENAMETOOLONG;
  }
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    return -errno;
  }
  struct stat info = {};
  std::int64_t result = ::fstat(fd, &info) == 0 ? info.st_size : -errno;
  const std::size_t wanted = result > 0 ? std::min(size, static_cast<std::size_t>(result)) : 0;
  std::size_t done = 0;
  while (done < wanted) {
    const ssize_t got = ::read(fd, buffer + done, wanted - done);
    if (got <= 0) {
      result = got == 0 ? -EIO : -errno;
      break;
    }
    done += static_cast<std::size_t>(got);
  }
  ::close(fd);
  return result;
}

uint64_t tapas_rank_epoch(const tapas_rank* rank) {
  return rank == nullptr ? 0 : rank->state.active_epoch;
}

uint64_t tapas_rank_dropped(const tapas_rank* rank) {
  return rank == nullptr ? 0 : rank->segment->dropped.load(std::memory_order_relaxed);
}

void tapas_rank_close(tapas_rank* rank) {
  if (rank == nullptr) {
    return;
  }
  Segment& segment = *rank->segment;
  segment.closed.store(1, std::memory_order_release);
  if (segment.tail.load(std::memory_order_acquire) ==
      segment.head.load(std::memory_order_relaxed)) {
    ::unlink(rank->path);  // Else the agent does, once it read the rest.
  }
  release(rank);
}
