#pragma once

#include "agent/collect/agent_protocol.h"
#include "agent/collect/rank_segment.h"
#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::agent {

/// Whether a file of rank_dir with this name is a rank's segment.
[[nodiscard]] bool is_rank_file(std::string_view name);

/// The ranks of this node, found as files in one folder, and the plans they read from it. Moves
/// what they say into the protocol and the protocol's orders to them. One thread.
///
/// A rank may have two files: its script's own, and that of NCCL's plugin, which observes it. The
/// script's goes first: while it is there, orders go to it and the plugin's step records are left
/// out, so that no step is told twice.
class RankDirectory {
 public:
  RankDirectory(std::string dir, std::string node, AgentProtocol& protocol);

  /// Looks for ranks that came, died or were started anew. Remains of dead ones are read, then
  /// removed.
  void scan(TimePoint now);
  /// Records and replies since the last call.
  void poll(TimePoint now);

  void send(const RankCommand& command);
  /// Writes the plan where libtapas_rank reads it and removes the job's plans other than this and
  /// the active one.
  [[nodiscard]] Result<void> store(const StorePlan& plan);

 private:
  struct Entry {
    RankSegment segment;
    bool attached = false;
    std::uint64_t bad_reported = 0;
  };
  void drain(const std::string& file, Entry& entry, TimePoint now);
  void leave(const std::string& file, Entry& entry, TimePoint now);
  void detach(Entry& entry, TimePoint now);
  /// True for a plugin's file when the rank's script has its own.
  [[nodiscard]] bool outranked(const std::string& file) const;
  void visit(const std::string& file, TimePoint now);

  const std::string dir_;
  const std::string node_;
  AgentProtocol& protocol_;
  std::map<std::string, Entry> ranks_;  ///< by file name
  std::vector<std::byte> buffer_;
};

}  // namespace tapas::agent
