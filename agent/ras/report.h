#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::agent::ras {

/// What can be wrong with a process or a rank, as NCCL's RAS service sees it.
enum class Kind {
  kDead,          ///< RAS gave up reaching the process (after about 60 s); final.
  kUnresponsive,  ///< The process did not answer RAS this time.
  kMissing,       ///< The process answers, but is not in a communicator that counts on it.
  kLagging,       ///< Launched fewer collectives than another rank of its communicator.
  kFailed,        ///< NCCL returned an error on this rank.
  kStatus,        ///< Initialises, finalises or aborts while most others do something else.
  kUnexplained,   ///< RAS reports trouble in words unknown here, or names nobody.
};

std::string_view to_string(Kind kind);

struct Member {
  std::string communicator;          ///< NCCL's hash, 16 hexadecimal digits.
  std::optional<std::int64_t> rank;  ///< In that communicator; none where RAS names no rank.
};

/// One process (dead, unresponsive) or one rank (the other kinds). Text of the other side is
/// printable ASCII of bounded length.
struct Finding {
  Kind kind = Kind::kUnexplained;
  std::string host;        ///< As RAS writes it, usually an address; empty: not told.
  std::int64_t pid = -1;   ///< -1: not told.
  std::string gpu;         ///< CUDA index, with NVML's where it differs: "0 (NVML 3)".
  std::int64_t count = 1;  ///< Of processes or ranks; above 1 only where RAS names none.
  std::vector<Member> members;
  std::string operation;       ///< Lagging: "AllReduce"; "collective" before NCCL 2.26.
  std::uint64_t launched = 0;  ///< Lagging: operations launched there.
  std::uint64_t most = 0;      ///< Lagging: launched by the rank that is furthest.
  std::string detail;          ///< Failed: the error. Status, unexplained: what RAS says.
};

/// Communicators that RAS tells of together: one in JSON, those of a table line in text.
struct Communicators {
  std::string hash;        ///< Empty in text.
  std::int64_t count = 1;  ///< How many.
  std::int64_t size = 0;   ///< Ranks of each.
};

struct Report {
  std::string nccl_version;
  /// Of the job. Text: as RAS says, 0 when it does not. JSON: those that are in a communicator.
  std::int64_t nodes = 0;
  std::int64_t processes = 0;
  std::int64_t gpus = 0;
  std::vector<Communicators> communicators;
  std::int64_t timeouts = 0;  ///< Of RAS's own messages while it collected this.
  std::vector<Finding> findings;
  std::size_t left_out = 0;  ///< Findings beyond kMaxFindings.
};

inline constexpr std::size_t kMaxFindings = 100'000;
inline constexpr std::size_t kMaxReportBytes = 64U << 20U;

/// Reads what RAS answers to STATUS or VERBOSE STATUS: text of NCCL 2.24 and later, or JSON of
/// 2.28.7 and later, with the comma that 2.28 forgets. Unknown lines and fields are passed over.
/// kInvalid: it is no such report, it is cut off, too large, or contradicts itself; the message
/// says what was seen, and on which line or in which field. Thread-safe.
[[nodiscard]] Result<Report> parse_report(std::string_view text);

/// Counts are sampled at slightly different times, so a healthy job shows ranks that lag, leave or
/// are not there yet for a moment. Of those findings of `second` keeps the ones that `first`, asked
/// some seconds earlier, has as well with no operation launched since; keeps all other kinds.
[[nodiscard]] Report lasting(const Report& first, Report second);

/// Whether a finding may be such a moment's.
[[nodiscard]] bool may_pass(Kind kind);

}  // namespace tapas::agent::ras
