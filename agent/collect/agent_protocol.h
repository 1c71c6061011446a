#pragma once

#include "agent/collect/plan_assembler.h"
#include "agent/collect/telemetry_queue.h"
#include "wire/message.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tapas::agent {

using TimePoint = std::chrono::steady_clock::time_point;
using Seconds = std::chrono::duration<double>;

/// What a rank is told: the daemon's switch orders, and kAdopt for the plan to start with.
enum class RankOrder { kAdopt, kPrepare, kArm, kTransfer, kCommit, kAbort };

struct RankCommand {
  std::string job;
  std::uint32_t rank = 0;
  RankOrder order = RankOrder::kAdopt;
  std::uint64_t from_epoch = 0;
  std::uint64_t epoch = 0;
  std::uint64_t at_step = 0;  ///< ARM: finish this step, then hold
  std::uint64_t term = 0;     ///< ranks refuse one lower than they have seen
};

/// A rank's answer to the command of the same order and epoch.
struct RankReply {
  std::uint32_t rank = 0;
  RankOrder order = RankOrder::kAdopt;
  std::uint64_t epoch = 0;
  bool ok = true;
  std::string reason;       ///< why not
  std::uint64_t step = 0;   ///< last finished step
  std::uint64_t bytes = 0;  ///< received in TRANSFER
  double seconds = 0.0;
};

/// A rank as it is found: new, or in the middle of a switch when the agent is the new one.
struct LocalRank {
  wire::RankInfo info;
  std::uint64_t epoch = 0;             ///< plan it runs, 0 = none
  std::uint64_t pending_epoch = 0;     ///< of a switch it takes part in, 0 = none
  RankOrder done = RankOrder::kAdopt;  ///< last order of that switch it carried out
  std::uint64_t term = 0;              ///< highest of the orders that it was given
};

// What the owner of the protocol has to do, in this order.
/// Keep the plan's text where the ranks of `job` can read it; comes before their commands.
struct StorePlan {
  std::string job;
  std::uint64_t epoch = 0;
  std::string text;
};
/// Give up the connection and make a new one; then call connected().
struct Reconnect {
  std::string reason;
};
/// A line for the operator. Repeats of one `key` may be held back.
struct Notice {
  bool warning = false;
  std::string key;
  std::string text;
};
using Action = std::variant<wire::ToDaemon, RankCommand, StorePlan, Reconnect, Notice>;

/// The agent's side of the protocol without its socket, ranks and clock: events in, actions out.
/// One per node; not thread-safe. Every call may leave actions, so drain take_actions() after it.
///
/// Promises: a term lower than one seen, an epoch not above the active one, or a switch that was
/// aborted here, changes nothing; the active epoch changes only by COMMIT, or by an active plan
/// from the daemon; a switch that the daemon forgot is aborted after `order_timeout`, but never
/// once this node voted TRANSFERRED, as the daemon may have decided by then; every order is
/// answered by one vote, a repeated order by the same vote again. A new agent learns the term and
/// the epoch from the ranks that it finds.
class AgentProtocol {
 public:
  struct Options {
    std::string node;
    std::uint64_t nonce = 0;       ///< random per start
    Seconds answer_timeout{20.0};  ///< for the answer to a HELLO
    Seconds phase_timeout{300.0};  ///< for the ranks' answers to an order
    Seconds order_timeout{120.0};  ///< for the daemon's next order of a switch
    Seconds flush_interval{0.2};   ///< between batches; the moment is drawn from the nonce
    /// A HELLO after a lost connection waits up to this long, so that a fleet does not come back
    /// in one moment. Drawn from the nonce.
    Seconds rehello_spread{1.0};
    /// HELLO is repeated this often, so that neither side stays wrong about the other for long
    /// whatever message got lost.
    Seconds rehello_interval{60.0};
    std::size_t max_queued_records = 65'536;
  };
  enum class State { kDown, kGreeting, kWelcome, kRejected };

  explicit AgentProtocol(Options options);

  // Events of the connection.
  /// The transport is up (again): a HELLO goes out.
  void connected(TimePoint now);
  void disconnected(TimePoint now);
  void received(const wire::ToAgent& message, TimePoint now);
  /// Time passed; call at least every next_wakeup().
  void tick(TimePoint now);

  // Events of the ranks.
  /// False when the job has too many ranks or sessions here, with a notice.
  bool attach_rank(const std::string& job, std::uint64_t session, const LocalRank& rank,
                   TimePoint now);
  void detach_rank(const std::string& job, std::uint32_t rank, TimePoint now);
  void rank_replied(const std::string& job, const RankReply& reply, TimePoint now);
  /// Packed records of wire/record.h; the oldest are dropped and counted when too many wait.
  void queue_records(std::span<const std::byte> records, TimePoint now);
  /// What is wrong with the node now; told to the daemon when it has changed, and after each
  /// WELCOME.
  void set_findings(std::vector<wire::Finding> findings);
  /// Records that a rank's full ring lost, for the heartbeat.
  void count_dropped(std::uint64_t records) { rank_dropped_ += records; }

  /// What to do, oldest first; empties the list.
  [[nodiscard]] std::vector<Action> take_actions();
  /// A batch waits to be sent.
  [[nodiscard]] bool telemetry_due(TimePoint now) const;
  /// A batch that is due, while welcome. Ask only when the transport can take it.
  [[nodiscard]] std::optional<wire::Telemetry> next_telemetry(TimePoint now);
  [[nodiscard]] TimePoint next_wakeup() const;

  [[nodiscard]] const std::string& node() const { return options_.node; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] std::uint64_t term() const { return term_; }
  /// The daemon's word on how long to spread reconnections of its agents.
  [[nodiscard]] double reconnect_spread_s() const { return reconnect_spread_s_; }
  /// 0 for a job that is not here.
  [[nodiscard]] std::uint64_t active_epoch(const std::string& job) const;
  [[nodiscard]] std::uint64_t pending_epoch(const std::string& job) const;
  [[nodiscard]] std::size_t rank_count() const;
  [[nodiscard]] std::uint64_t records_sent() const { return records_sent_; }
  [[nodiscard]] std::uint64_t records_dropped() const;

 private:
  /// An order on its way through the local ranks.
  struct Round {
    wire::SwitchCommand command;
    std::set<std::uint32_t> waiting;
    wire::Vote vote;  ///< what the answers add up to so far
    TimePoint deadline;
  };
  struct RankState : LocalRank {
    std::uint64_t told_epoch = 0;  ///< of the last ADOPT, or COMMIT outside a round
  };
  /// What must not come back, also after the ranks left and came anew.
  struct Fence {
    std::uint64_t active = 0;  ///< newest plan that was active here
    std::uint64_t ended = 0;   ///< newest switch that was aborted here
  };
  struct JobState {
    std::string name;
    std::uint64_t session = 0;
    std::uint64_t epoch = 0;
    std::uint64_t pending_epoch = 0;
    std::uint64_t plan_epoch = 0;  ///< of the newest plan given to StorePlan
    std::map<std::uint32_t, RankState> ranks;
    PlanAssembler assembler;
    std::optional<Round> round;
    std::optional<wire::Vote> last_vote;  ///< of the newest finished round
    bool vote_unsent = false;
    TimePoint order_deadline = TimePoint::max();  ///< while a switch waits for the daemon
  };

  void on(const wire::Welcome& welcome, TimePoint now);
  void on(const wire::Reject& reject, TimePoint now);
  void on(const wire::HeartbeatAck& ack, TimePoint now);
  void on(const wire::PlanChunk& chunk, TimePoint now);
  void on(const wire::SwitchCommand& command, TimePoint now);

  [[nodiscard]] TimePoint next_flush(TimePoint now) const;
  void send_hello(TimePoint now);
  void hello_soon(TimePoint now);
  void stop_timers();
  bool fence(std::uint64_t term, std::string_view what);
  [[nodiscard]] Fence& fence_of(const std::string& job);
  void adopt(JobState& job, std::uint64_t epoch, TimePoint now);
  void settle(JobState& job);
  void command(const JobState& job, std::uint32_t rank, RankOrder order,
               const wire::SwitchCommand& from);
  [[nodiscard]] static bool already_done(const JobState& job, const wire::SwitchCommand& command);
  /// Why the order cannot be carried out now; empty when it can.
  [[nodiscard]] std::string objection(const JobState& job, const wire::SwitchCommand& command);
  void start_round(JobState& job, const wire::SwitchCommand& command, TimePoint now);
  void finish_round(JobState& job, TimePoint now);
  void fail_round(JobState& job, const std::string& reason, TimePoint now);
  void send_findings();
  void send_vote(const wire::Vote& vote);
  void check_deadlines(JobState& job, TimePoint now);
  void notice(bool warning, std::string key, std::string text);

  const Options options_;
  State state_ = State::kDown;
  std::uint64_t term_ = 0;
  Seconds heartbeat_{1.0};
  double reconnect_spread_s_ = 1.0;
  bool greeted_before_ = false;
  TimePoint hello_at_ = TimePoint::max();      ///< when a HELLO goes out
  TimePoint answer_by_ = TimePoint::max();     ///< when the connection counts as dead
  TimePoint heartbeat_at_ = TimePoint::max();  ///< when a heartbeat goes out
  std::map<std::string, JobState> jobs_;
  std::map<std::string, Fence> fences_;  ///< by job
  TelemetryQueue telemetry_;
  TimePoint flush_at_;  ///< while records are queued
  std::uint64_t records_sent_ = 0;
  std::uint64_t rank_dropped_ = 0;
  std::optional<std::vector<wire::Finding>> findings_;  ///< none: nobody looks
  std::vector<Action> actions_;
};

}  // namespace tapas::agent
