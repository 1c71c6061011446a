#pragma once

#include "agent/collect/agent_protocol.h"
#include "base/result.h"
#include "wire/record_codec.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tapas::agent {

struct Segment;

/// The agent's end of one rank's shared memory (agent/rank/segment.h). What the rank wrote is data
/// from outside: checked on opening, and record by record. Any agent may take over where another
/// one died, as positions and messages live in the segment. One thread.
class RankSegment {
 public:
  /// Opens and checks the file. kNotFound when it is gone by now; kConflict when it is not ours to
  /// read: another layout version, or the node's name is not `node`.
  [[nodiscard]] static Result<RankSegment> open(const std::string& path, const std::string& node);

  RankSegment(RankSegment&&) noexcept;
  RankSegment& operator=(RankSegment&&) noexcept;
  ~RankSegment();

  [[nodiscard]] const std::string& job() const { return job_; }
  [[nodiscard]] std::uint64_t session() const { return session_; }
  /// Who it is and where it stands, read anew.
  [[nodiscard]] LocalRank describe() const;
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  /// Identity of the file: another one under the same name is another start of the rank.
  [[nodiscard]] std::uint64_t inode() const { return inode_; }

  /// False once the rank closed the segment or died; its last records can still be read.
  [[nodiscard]] bool alive() const;

  /// False when somebody cut the file: touching the memory would then kill this process.
  [[nodiscard]] bool intact() const;

  /// Appends up to `max_records` checked step and link records to `out`. Records that are malformed
  /// or name another rank, job, node or session are left out and counted in bad_records(). With
  /// `steps` false step records are left out, too.
  std::size_t read_records(std::vector<std::byte>& out, std::size_t max_records, bool steps = true);
  [[nodiscard]] std::uint64_t bad_records() const { return bad_records_; }
  /// Records that the rank lost to a full ring since the last call.
  [[nodiscard]] std::uint64_t take_dropped();

  void send(const RankCommand& command);
  /// The rank's newest reply, once.
  [[nodiscard]] std::optional<RankReply> poll_reply();

  /// Removes the file, unless another start of the rank has taken the name.
  void remove_file() const;

 private:
  RankSegment() = default;
  void unmap();
  [[nodiscard]] bool is_own(const wire::Record& record) const;

  Segment* segment_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  int fd_ = -1;
  std::string path_;
  std::string job_;
  std::string device_uuid_;
  std::uint64_t job_hash_ = 0;
  std::uint64_t node_hash_ = 0;
  std::uint64_t session_ = 0;
  std::uint64_t inode_ = 0;
  std::uint32_t rank_ = 0;
  std::uint32_t pid_ = 0;
  std::uint64_t ring_records_ = 0;
  std::uint64_t replies_seen_ = 0;
  std::uint64_t dropped_seen_ = 0;
  std::uint64_t bad_records_ = 0;
};

}  // namespace tapas::agent
