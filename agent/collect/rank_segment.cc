#include "agent/collect/rank_segment.h"

#include "agent/rank/segment.h"
#include "base/ids.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

namespace tapas::agent {

namespace {

/// The name in a fixed field, or empty when it is not a name.
std::string field_name(const char (&field)[kSegmentNameBytes]) {
  const std::string_view text(field, ::strnlen(field, sizeof(field)));
  return valid_name(text) ? std::string(text) : std::string{};
}

std::string to_hex(const wire::DeviceUuid& uuid) {
  std::string text;
  for (const std::uint8_t byte : uuid) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

std::size_t bytes_for(std::uint64_t ring_records) {
  return kRingOffset + ring_records * wire::kRecordBytes;
}

}  // namespace

Result<RankSegment> RankSegment::open(const std::string& path, const std::string& node) {
  RankSegment opened;
  opened.path_ = path;
  opened.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  struct stat info = {};
  if (opened.fd_ < 0 || ::fstat(opened.fd_, &info) != 0) {
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}", path,
                std::strerror(errno));
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || size < bytes_for(1) || size > bytes_for(kMaxRingRecords)) {
    return fail(ErrorCode::kInvalid, "{}: {} bytes are no rank segment", path, size);
  }
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, opened.fd_, 0);
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::kIo, "{}: mapping {} bytes: {}", path, size, std::strerror(errno));
  }
  auto* segment = static_cast<Segment*>(memory);
  opened.segment_ = segment;
  opened.mapped_bytes_ = size;
  opened.inode_ = info.st_ino;

  if (segment->magic != kSegmentMagic) {
    return fail(ErrorCode::kInvalid, "{}: not a rank segment, it starts with {:#018x}", path,
                segment->magic);
  }
  if (segment->layout != kSegmentLayout || segment->segment_bytes != sizeof(Segment) ||
      segment->record_bytes != wire::kRecordBytes) {
    return fail(ErrorCode::kConflict,
                "{}: segment layout {} of {} + {} bytes, this agent reads layout {} of {} + {}; "
                "install libtapas_rank and tapas-agent of one release",
                path, segment->layout, segment->segment_bytes, segment->record_bytes,
                kSegmentLayout, sizeof(Segment), wire::kRecordBytes);
  }
  opened.ring_records_ = segment->ring_records;
  if (!std::has_single_bit(opened.ring_records_) || bytes_for(opened.ring_records_) != size) {
    return fail(ErrorCode::kInvalid, "{}: a ring of {} records does not fit a file of {} bytes",
                path, opened.ring_records_, size);
  }
  opened.job_ = field_name(segment->job);
  opened.job_hash_ = segment->job_hash;
  const std::string its_node = field_name(segment->node);
  if (opened.job_.empty() || its_node.empty() || name_hash(opened.job_) != opened.job_hash_) {
    return fail(ErrorCode::kInvalid, "{}: the name of its job or node is malformed", path);
  }
  if (its_node != node) {
    return fail(ErrorCode::kConflict,
                "{}: the rank says it is on node {} but this is node {}; start it with the name "
                "that the cluster file gives this host",
                path, its_node, node);
  }
  opened.node_hash_ = name_hash(its_node);
  opened.session_ = segment->session;
  opened.rank_ = segment->rank;
  opened.pid_ = segment->pid;
  opened.device_uuid_ = to_hex(segment->device);
  opened.replies_seen_ = segment->reply.count();
  return opened;
}

RankSegment::RankSegment(RankSegment&& other) noexcept { *this = std::move(other); }

RankSegment& RankSegment::operator=(RankSegment&& other) noexcept {
  if (this != &other) {
    unmap();
    segment_ = std::exchange(other.segment_, nullptr);
    fd_ = std::exchange(other.fd_, -1);
    mapped_bytes_ = other.mapped_bytes_;
    path_ = std::move(other.path_);
    job_ = std::move(other.job_);
    device_uuid_ = std::move(other.device_uuid_);
    job_hash_ = other.job_hash_;
    node_hash_ = other.node_hash_;
    session_ = other.session_;
    inode_ = other.inode_;
    rank_ = other.rank_;
    pid_ = other.pid_;
    ring_records_ = other.ring_records_;
    replies_seen_ = other.replies_seen_;
    dropped_seen_ = other.dropped_seen_;
    bad_records_ = other.bad_records_;
  }
  return *this;
}

RankSegment::~RankSegment() { unmap(); }

void RankSegment::unmap() {
  if (segment_ != nullptr) {
    ::munmap(segment_, mapped_bytes_);
  }
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

LocalRank RankSegment::describe() const {
  LocalRank rank;
  rank.info = {rank_, device_uuid_, pid_};
  SegmentReply reply;
  std::uint64_t count = 0;
  if (segment_->reply.read(reply, count) && count > 0 &&
      reply.done <= static_cast<std::uint64_t>(RankOrder::kAbort)) {
    rank.epoch = std::min(reply.active_epoch, wire::kMaxCounter);
    rank.pending_epoch = std::min(reply.pending_epoch, wire::kMaxCounter);
    rank.done = static_cast<RankOrder>(reply.done);
    rank.term = std::min(reply.term, wire::kMaxCounter);
  }
  return rank;
}

bool RankSegment::intact() const {
  struct stat info = {};
  return ::fstat(fd_, &info) == 0 && static_cast<std::size_t>(info.st_size) == mapped_bytes_;
}

bool RankSegment::alive() const {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const bool held = ::fcntl(fd_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  return held && intact() && segment_->closed.load(std::memory_order_acquire) == 0;
}

std::size_t RankSegment::read_records(std::vector<std::byte>& out, std::size_t max_records,
                                      bool steps) {
  RecordRing ring(segment_, ring_records_);
  if (ring.resynchronise()) {
    ++bad_records_;
  }
  std::size_t taken = 0;
  wire::StepRecord raw;  // A copy: the rank could change its own between check and use.
  while (taken < max_records && ring.pop(raw)) {
    const auto bytes = std::as_bytes(std::span(&raw, 1));
    const auto decoded = wire::decode_records(bytes);
    if (!decoded || !is_own(decoded->front())) {
      ++bad_records_;
      continue;
    }
    if (!steps && raw.kind == wire::RecordKind::kStep) {
      continue;
    }
    out.insert(out.end(), bytes.begin(), bytes.end());
    ++taken;
  }
  return taken;
}

bool RankSegment::is_own(const wire::Record& record) const {
  const auto matches = [this](const auto& one, std::uint64_t node) {
    return one.job == job_hash_ && one.session == session_ && node == node_hash_ &&
           one.rank == rank_;
  };
  if (const auto* step = std::get_if<wire::StepRecord>(&record)) {
    return matches(*step, step->node);
  }
  const auto* link = std::get_if<wire::LinkRecord>(&record);
  return link != nullptr && matches(*link, link->source_node);
}

std::uint64_t RankSegment::take_dropped() {
  const std::uint64_t dropped = segment_->dropped.load(std::memory_order_relaxed);
  return dropped - std::exchange(dropped_seen_, dropped);
}

void RankSegment::send(const RankCommand& command) {
  segment_->command.write({static_cast<std::uint32_t>(command.order), 0, command.from_epoch,
                           command.epoch, command.at_step, command.term});
}

std::optional<RankReply> RankSegment::poll_reply() {
  if (segment_->reply.count() == replies_seen_) {
    return std::nullopt;
  }
  SegmentReply message;
  std::uint64_t count = 0;
  if (!segment_->reply.read(message, count) || count == replies_seen_) {
    return std::nullopt;
  }
  replies_seen_ = count;
  if (message.order > static_cast<std::uint32_t>(RankOrder::kAbort)) {
    ++bad_records_;
    return std::nullopt;
  }
  RankReply reply;
  reply.rank = rank_;
  reply.order = static_cast<RankOrder>(message.order);
  reply.epoch = message.epoch;
  reply.ok = message.ok != 0;
  reply.reason.assign(message.reason, ::strnlen(message.reason, sizeof(message.reason)));
  reply.step = message.step;
  reply.bytes = message.bytes;
  reply.seconds = message.seconds;
  return reply;
}

void RankSegment::remove_file() const {
  struct stat info = {};
  if (::lstat(path_.c_str(), &info) == 0 && info.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
}

}  // namespace tapas::agent
