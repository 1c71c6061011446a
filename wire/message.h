#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

/// The messages between agents (DEALER) and the daemon (ROUTER), as plain values. Frame 1 is a
/// small JSON header, frame 2 the payload: packed records for telemetry, JSON for the rest
/// (docs/protocol.md). Message text is bounded; names are those of valid_name().
namespace tapas::wire {

inline constexpr int kProtocolVersion = 1;

// Bounds of what a message may hold; the decoders refuse more.
inline constexpr std::size_t kMaxAttachments = 8;
inline constexpr std::size_t kMaxRanksPerAttachment = 64;
/// Reasons are cut to this before they are sent.
inline constexpr std::size_t kMaxReasonBytes = 512;
/// Counters (term, epoch, step, ...) stay exact in every JSON reader: 2^53 - 1. Random ids (nonce,
/// session) use all 64 bits and travel as 16 hexadecimal digits.
inline constexpr std::uint64_t kMaxCounter = (1ULL << 53U) - 1;

struct RankInfo {
  std::uint32_t rank = 0;
  std::string device_uuid;  ///< 32 hexadecimal digits
  std::uint32_t pid = 0;
};

/// What an agent runs for one job: in HELLO, and again whenever it changes.
struct Attachment {
  std::string job;
  std::uint64_t session = 0;
  std::uint64_t epoch = 0;          ///< active plan, 0 = none yet
  std::uint64_t pending_epoch = 0;  ///< prepared or later, not yet committed; 0 = none
  std::vector<RankInfo> ranks;
};

// Agent -> daemon.
struct Hello {
  std::string node;         ///< must be the node that the CURVE key belongs to
  std::uint64_t nonce = 0;  ///< random per start of the agent
  std::uint64_t term = 0;   ///< highest term seen
  std::vector<Attachment> attachments;
};
struct Heartbeat {
  std::uint64_t monotonic_ms = 0;
  std::uint64_t records_sent = 0;
  std::uint64_t records_dropped = 0;  ///< ring or queue was full
};
/// Payload of packed records, not JSON.
struct Telemetry {
  std::vector<std::byte> records;
};
enum class Phase { kPrepared, kArmed, kTransferred, kCommitted, kAborted };
/// An agent's answer for all its ranks to PREPARE, ARM, TRANSFER, COMMIT or ABORT.
struct Vote {
  std::string job;
  std::uint64_t epoch = 0;  ///< the switch's target
  Phase phase = Phase::kPrepared;
  bool ok = true;
  std::string reason;       ///< why not
  std::uint64_t step = 0;   ///< last finished step
  std::uint64_t bytes = 0;  ///< received in TRANSFER
  double seconds = 0.0;     ///< job time the phase took on this node
};

/// Something that is wrong with the node's hardware, or looks so (docs/agent.md).
struct Finding {
  std::string device;  ///< unique in the node
  std::string kind;    ///< stable word
  std::string text;    ///< one sentence
  friend bool operator==(const Finding&, const Finding&) = default;
};
/// All that the agent finds wrong now: after each WELCOME, and whenever it changes.
struct Findings {
  std::vector<Finding> findings;
};
/// So that all of them fit into a payload.
inline constexpr std::size_t kMaxFindings = 32;

// Daemon -> agent. All carry the term; agents refuse a lower (term, epoch).
struct Welcome {
  std::uint64_t term = 0;
  double heartbeat_s = 1.0;
  /// Agents wait a random part of this before each connection anew, so that all come back at a pace
  /// that the daemon can take.
  double reconnect_spread_s = 1.0;
};
struct Reject {
  std::string reason;
  double retry_after_s = 0.0;  ///< 0 = do not retry with this identity
};
/// Answer to a heartbeat: an agent that hears none for three intervals rebuilds its socket.
struct HeartbeatAck {
  std::uint64_t term = 0;
};
/// One piece of a plan's JSON text. `active` plans replace what the agent has; others wait for
/// PREPARE. Pieces arrive in order on one connection.
struct PlanChunk {
  std::string job;
  std::uint64_t term = 0;
  std::uint64_t epoch = 0;
  bool active = false;
  std::uint32_t index = 0;
  std::uint32_t count = 1;
  std::string text;  ///< at most kMaxPlanChunkBytes
};
inline constexpr std::size_t kMaxPlanChunkBytes = 32U << 10U;
inline constexpr std::uint32_t kMaxPlanChunks = 512;

/// PREPARE, ARM, TRANSFER, COMMIT and ABORT have one shape.
enum class SwitchOrder { kPrepare, kArm, kTransfer, kCommit, kAbort };
struct SwitchCommand {
  SwitchOrder order = SwitchOrder::kPrepare;
  std::string job;
  std::uint64_t term = 0;
  std::uint64_t from_epoch = 0;
  std::uint64_t epoch = 0;    ///< target
  std::uint64_t at_step = 0;  ///< ARM: finish this step, then hold
  std::string reason;         ///< ABORT
};

using ToDaemon = std::variant<Hello, Heartbeat, Telemetry, Vote, Findings>;
using ToAgent = std::variant<Welcome, Reject, HeartbeatAck, PlanChunk, SwitchCommand>;

}  // namespace tapas::wire
