#pragma once

#include "base/ids.h"
#include "daemon/core/level.h"
#include "solver/model/cluster_state.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tapas::daemon {

/// A part of the network over which transfers take longer than they used to.
struct LinkFault {
  enum class Part : std::uint8_t {
    kSend,     ///< out of the NICs of `from`
    kReceive,  ///< into the NICs of `to`
    kPath,     ///< from one node to the other, while both are fine with others
  };
  Part part = Part::kPath;
  NodeId from;
  NodeId to;
  double slowdown = 1;  ///< 3.0 = a transfer takes 3 times as long
  double before_s = 0;  ///< of a byte, the median of its links
  double after_s = 0;
  double confidence = 0;  ///< standard errors beyond the slack, of the surest link
  StepStamp since = {};
  std::uint32_t links = 0;  ///< that show it

  /// The node to whom it belongs; of a path, the sender.
  [[nodiscard]] NodeId owner() const { return part == Part::kReceive ? to : from; }
};

std::string_view to_string(LinkFault::Part part);
std::optional<LinkFault::Part> part_of(std::string_view name);

/// A link of a known fault.
struct SlowLink {
  LinkFault::Part part = LinkFault::Part::kPath;
  NodeId from;
  NodeId to;
  double before_s = 0;  ///< of a byte
  double slowdown = 1;
  double since_s = 0;  ///< job time
};

/// Which parts make these links slow, fewest first: NICs of which all links are slow (two at least,
/// as one alone does not tell its two ends apart), then paths. `slow` and `fine`: directed links.
[[nodiscard]] std::vector<LinkFault> parts_of(const std::vector<std::pair<NodeId, NodeId>>& slow,
                                              const std::vector<std::pair<NodeId, NodeId>>& fine);

/// Levels of a job's directed links between nodes: time of a byte without waiting, against what the
/// link itself used to take; a link that is new is also held against those of the same fabric tier.
/// At most kLinksPerNode links for each node of the cluster are kept, others are not judged. Not
/// thread-safe.
class LinkWatch {
 public:
  static constexpr std::size_t kLinksPerNode = 32;

  explicit LinkWatch(const solver::Cluster& cluster) : cluster_(cluster) {}

  /// The job runs on other pairs of nodes from now on; forgets those that the plan before did not
  /// use either.
  void follow_plan();
  /// The job's processes were started anew.
  void new_session();

  void observe(NodeId from, NodeId to, double seconds_per_byte, const StepStamp& stamp);

  /// True when links are slow and all others had their chance to show that they are, too.
  [[nodiscard]] bool verdict_due() const { return due_; }
  /// Slow links wait for a verdict.
  [[nodiscard]] bool any_suspect() const { return waiting_ > 0 || due_; }
  /// A link is half way to an alarm, or a slow one to its baseline.
  [[nodiscard]] bool rising() const;
  /// Faults that were not known; they are from now on, until take_recovered().
  [[nodiscard]] std::vector<LinkFault> take_faults();
  /// Known faults all of whose links that still carry anything are as fast as before.
  [[nodiscard]] std::vector<LinkFault> take_recovered();

  [[nodiscard]] const std::vector<LinkFault>& faults() const { return faults_; }
  [[nodiscard]] std::vector<SlowLink> slow_links() const;
  /// Known before the daemon was restarted.
  void restore(const SlowLink& slow);
  [[nodiscard]] std::size_t links() const { return links_.size(); }
  void add_to(solver::ClusterState& state) const;

 private:
  using Pair = std::pair<NodeId, NodeId>;
  struct Link {
    Level level;
    NoiseEstimate noise;
    double last = 0;   ///< log of seconds per byte
    bool live = true;  ///< seen under the running plan
    [[nodiscard]] Sensitivity sensitivity() const;
    /// Blamed already, or alarmed and still slow.
    [[nodiscard]] bool slow() const;
  };

  [[nodiscard]] std::uint32_t tier(const Pair& pair) const;
  [[nodiscard]] double usual(const Pair& pair) const;
  [[nodiscard]] bool shows(const LinkFault& fault, const Pair& pair) const;
  /// Slow links that are not told yet.
  using Untold = std::vector<std::pair<Pair, const Level*>>;
  [[nodiscard]] Untold untold() const;
  /// Beside a slow link this one is as slow, though alone it would not be sure.
  [[nodiscard]] static bool joins(const Pair& pair, const Link& link, const Untold& slow);
  /// A link may yet join one that is slow: whose fault it is would be told wrongly.
  [[nodiscard]] bool undecided() const;

  const solver::Cluster& cluster_;
  std::map<Pair, Link> links_;
  std::array<std::size_t, 4> learnt_{};  ///< [tier]: links that have had a level
  std::vector<LinkFault> faults_;
  std::size_t waiting_ = 0;   ///< observations until the verdict is due
  std::uint32_t rounds_ = 0;  ///< that it was put off
  bool due_ = false;
};

/// "node n37 takes 3.10 times as long to send".
[[nodiscard]] std::string to_text(const LinkFault& fault, const solver::Cluster& cluster);

}  // namespace tapas::daemon
