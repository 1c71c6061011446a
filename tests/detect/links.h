#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::daemon::testing {

enum class LinkCase : std::uint8_t {
  kHealthy,
  kCongestion,  ///< all that a node receives takes 1.5 to 3 times as long, one or two intervals
  kSend,        ///< a NIC sends slowly
  kReceive,
  kPath,  ///< one way between two nodes
  kTwo,   ///< a NIC that sends slowly and a way elsewhere, from the same interval on
};
inline constexpr std::array kLinkCases = {LinkCase::kHealthy, LinkCase::kCongestion,
                                          LinkCase::kSend,    LinkCase::kReceive,
                                          LinkCase::kPath,    LinkCase::kTwo};
[[nodiscard]] std::string_view to_string(LinkCase link_case);

/// Transfers between the nodes of 2 to 16 pipelines of 4 to 8 stages, forward and back, one record
/// per link and interval. Links differ by 10 %, all drift together by 3 %.
struct LinkRun {
  LinkCase link_case = LinkCase::kHealthy;
  double depth = 1;     ///< the fault's transfers take 1 + depth times as long
  double noise = 0.05;  ///< of a record, standard deviation of the logarithm
  std::uint64_t seed = 1;
  std::uint32_t healthy = 200;  ///< intervals before the fault
  std::uint32_t faulty = 200;
};

struct LinkOutcome {
  std::uint64_t intervals = 0;
  std::uint32_t faults = 0;           ///< there were
  std::vector<std::uint32_t> delays;  ///< of those found: intervals from the first slow one on
  std::uint32_t partly = 0;           ///< ways told that are slow because of a NIC
  std::uint32_t wrong = 0;            ///< told, but not so
  void add(const LinkOutcome& other);
};
/// What daemon::LinkWatch says about the run.
[[nodiscard]] LinkOutcome judge_links(const LinkRun& run);

/// The table of docs/detection.md.
[[nodiscard]] std::string link_table(std::uint32_t seeds, std::uint64_t first_seed);

}  // namespace tapas::daemon::testing
