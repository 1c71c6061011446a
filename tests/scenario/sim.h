#pragma once

#include "daemon/core/core.h"
#include "daemon/jobs.h"
#include "solver/model/cluster_state.h"
#include "wire/message.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tapas::agent {
class AgentProtocol;
struct RankCommand;
struct RankReply;
}  // namespace tapas::agent

/// A cluster in one process and in virtual time: the real core, the real solver and the agents'
/// real protocol, with ranks, network and store as small models. Everything is drawn from one seed.
namespace tapas::daemon::sim {

/// What goes wrong by itself; rates are of the whole cluster unless they say otherwise.
struct Faults {
  double link_cuts_per_s = 0;       ///< of each node's connection; what is on the way is lost
  double agent_restarts_per_s = 0;  ///< of each agent
  double core_crashes_per_s = 0;    ///< the core loses all that is not durable
  double store_failures = 0;        ///< share of awaited writes that are refused
  double max_delay_s = 0.02;        ///< of a message
  // More than the transport does to messages; the protocol must stand it.
  double lost = 0;       ///< share of messages
  double repeated = 0;   ///< share that arrive once more, much later, whoever is there by then
  double overtaken = 0;  ///< share that do not keep their place in the line
  double partitions_per_s = 0;   ///< several nodes are cut off at once, for a while
  double one_way_per_s = 0;      ///< a node hears and is not heard, or the reverse
  double core_dies_between = 0;  ///< share of events that it dies at, between two of its actions
  double slow_writes = 0;        ///< share of writes that take seconds
  double full_disks_per_s = 0;   ///< every write is refused for a while
  double clock_jumps_per_s = 0;  ///< of a node's wall clock, or the head's
  double clashes_per_s = 0;      ///< a second agent claims to be a node, for a while
  double rank_deaths_per_s = 0;  ///< the job is started anew, some devices in other slots
  double commands_per_s = 0;     ///< of an operator
};

/// Protocols that are broken on purpose, to see that it is noticed.
enum class Mutation : std::uint8_t {
  kNone,
  kCommitBeforeDurable,  ///< COMMIT goes out together with the write of the decision
  kNoFencing,            ///< agents take whatever comes, old as it may be
  kVotesNotCounted,      ///< every order counts as carried out by everybody
};

struct Options {
  std::uint64_t seed = 1;
  CoreConfig config;
  Faults faults;
  double jitter = 0.005;      ///< of each rank's compute, redrawn each step
  double step_scale_s = 1.0;  ///< length of a healthy step
  Mutation mutation = Mutation::kNone;
  bool second_core = false;  ///< a second one hears the same, and must do the same
  bool record = false;       ///< as tapasd does, see recordings()
};

/// What is durable.
struct Disk {
  std::uint64_t term = 0;
  std::map<Epoch, PlanRow> plans;
  std::map<Epoch, SwitchRow> switches;
  std::map<std::uint64_t, DecisionRow> decisions;
  std::map<std::string, NodeStateRow> nodes;
  std::map<std::string, DeviceRow> devices;
  LearntRow learnt;
  std::map<Epoch, AutomaticSwitchRow> automatic_switches;
  TrialRow trial;
  LossRow loss;
  std::map<std::pair<std::string, std::string>, SlowLinkRow> slow_links;
  std::map<std::pair<std::string, std::uint32_t>, LateLoaderRow> late_loaders;
  std::optional<std::string> paused;
  std::vector<OperatorRow> operators;
  std::vector<EventRow> events;
};

/// What is odd about one step.
struct OddStep {
  std::uint32_t flags = 0;
  double job_factor = 1;        ///< of everybody's compute: batches packed to other lengths
  double extra_s = 0;           ///< of the step, nobody's compute
  std::set<RankId> lost = {};   ///< their records never arrive
  std::set<RankId> in_ms = {};  ///< they take milliseconds for seconds
  std::map<RankId, double> input_s = {};  ///< what they wait for their batches
  std::map<RankId, double> work = {};     ///< tokens of their batches, which they tell; 1 = usual
};

class Sim {
 public:
  Sim(std::shared_ptr<const solver::Job> job, Options options);
  ~Sim();

  /// Runs until virtual time `until_s`; throws std::logic_error when an invariant breaks.
  void run_until(double until_s);
  /// Runs at most `for_s` longer, until `done`; false when it never was.
  bool run_till(const std::function<bool()>& done, double for_s);

  /// True slowdown of all devices of a node from now on.
  void slow(const std::string& node, double slowdown);
  void slow_device(RankId rank, double slowdown) {
    truth_.device_slowdown[rank.value()] = slowdown;
  }
  /// True slowness of a node's NICs, and of the only way between two nodes that is slow.
  void slow_links(const std::string& node, const solver::NodeLinks& links);
  void slow_path(const std::string& from, const std::string& to, double factor);
  /// The step takes this much longer with everybody's compute as it was.
  void slow_everything(double ratio) { extra_ratio_ = ratio; }
  void stop_faults();
  void fail_store(bool fails) { options_.faults.store_failures = fails ? 1 : 0; }
  /// Every write is refused for so long.
  void fill_disk(double for_s) { disk_full_until_s_ = now_s_ + for_s; }
  /// It is away for `down_s`; training goes on.
  void crash_core(double down_s = 0);
  /// It loses its life after so many more actions, each time in the middle of what it does.
  void crash_core_after(std::uint64_t actions) { dies_after_ = actions; }
  /// The job's processes are started anew: another session, its steps counted from 1.
  void restart_job();
  /// The ranks of a node die; after `down_s` the job is started anew.
  void kill_ranks(const std::string& node, double down_s);
  /// Devices that the agents report; by default none has a name.
  void seat(RankId rank, const std::string& uuid) { seats_[rank] = uuid; }
  /// From now on the node's wall clock is off by so much.
  void set_clock(const std::string& node, double off_s);
  void tell(const Event& event) { tell_core(event); }
  void cut(const std::string& node);
  void restart_agent(const std::string& node);
  /// The agent is gone for good; its ranks train on.
  void kill_agent(const std::string& node);
  /// Messages from the node, or to it, are lost for so long.
  void mute(const std::string& node, double for_s);
  void deafen(const std::string& node, double for_s);
  /// A second agent with the node's key, but without ranks, for so long.
  void clash(const std::string& node, double for_s);
  void send(OperatorCommand command);
  /// Flags for the steps to come.
  void flag_steps(std::uint32_t flags) { flags_ = flags; }
  /// Asked before each step, by its number.
  void odd_steps(std::function<OddStep(std::uint64_t)> odd) { odd_ = std::move(odd); }
  [[nodiscard]] std::mt19937_64& random() { return random_; }

  [[nodiscard]] double now() const { return now_s_; }
  [[nodiscard]] const Core& core() const { return *core_; }
  [[nodiscard]] StatusView status() const;
  [[nodiscard]] JobView view() const;
  [[nodiscard]] const Disk& disk() const { return disk_; }
  [[nodiscard]] const std::vector<OperatorReply>& replies() const { return replies_; }
  /// One per life of the core, the last of them still going on.
  [[nodiscard]] const std::vector<std::string>& recordings() const { return recordings_; }
  /// Commands to a core that lives on and has not answered them.
  [[nodiscard]] const std::map<std::uint64_t, OperatorCommand>& unanswered() const {
    return unanswered_;
  }
  [[nodiscard]] const std::map<std::string, std::uint64_t>& refusals() const { return refusals_; }
  [[nodiscard]] std::uint64_t last_step() const { return last_step_; }
  [[nodiscard]] double last_step_s() const { return last_step_s_; }
  [[nodiscard]] Epoch running_epoch() const { return running_epoch_; }
  /// Journal lines of a kind.
  [[nodiscard]] std::vector<EventRow> events(const std::string& kind) const;
  /// All agents run the core's plan and no switch is open anywhere.
  [[nodiscard]] bool settled() const;
  /// Why it is not, for a failed check.
  [[nodiscard]] std::string why() const;

 private:
  struct Rank;
  struct Agent;
  struct Timed {
    double at_s = 0;
    std::uint64_t order = 0;
    std::function<void()> what;
    friend bool operator<(const Timed& a, const Timed& b) {
      return a.at_s != b.at_s ? a.at_s > b.at_s : a.order > b.order;
    }
  };

  // sim.cc
  /// With TAPAS_TRACE set, what happens is printed.
  void trace(const std::string& what) const;
  void at(double delay_s, std::function<void()> what);
  double draw(double least, double most);
  bool chance(double probability) { return draw(0, 1) < probability; }
  [[nodiscard]] Now clock() const;
  void boot();
  void record(const Event& event, const std::vector<Action>& actions);
  void tell_core(const Event& event);
  void carry_out(Action action);
  void solve(const RequestReplan& request);

  // sim_store.cc
  [[nodiscard]] Restored restored() const;
  void queue_write(StoreWrite write);
  void write_next();
  void make_durable(const StoreRow& row);
  void keep_no_longer();
  void lose_writes();

  // sim_checks.cc
  void check_plan_of_core(const std::shared_ptr<const solver::Plan>& before);
  void check_actions(const Event& event, const std::vector<Action>& actions);
  void check_proposal(const StoreWrite& write);
  void check_reply(const OperatorReply& reply);
  void check_second_core(const Event& event, const std::vector<Action>& actions);
  void check_may_run(const Agent& agent, const Rank& rank, Epoch epoch) const;
  void check_barrier() const;

  // sim_agents.cc
  void connect(Agent& agent);
  void start_agent(Agent& agent);
  void attach_ranks(Agent& agent);
  void detach_ranks(Agent& agent);
  void to_core(Agent& agent, const Event& event, bool from_clone = false);
  void hear(Agent& agent, const Event& event, bool from_clone);
  void to_agent(const SendToAgent& message);
  void receive(Agent& agent, const SendToAgent& message);
  void forget(Agent& agent, Term term);
  void carry(double delay_s, double& free_s, const std::function<void(bool late)>& deliver);
  void pump(Agent& agent);
  void pump_clone(Agent& agent);
  [[nodiscard]] Event event_of(const Agent& agent, const wire::ToDaemon& message) const;
  void obey(Agent& agent, const agent::RankCommand& command);
  void reply(Agent& agent, const agent::RankReply& reply);
  void tick_agents();

  // sim_faults.cc
  void fault_tick();
  void command_something();
  [[nodiscard]] Agent& any_agent();

  // sim_training.cc
  void start_step();
  void end_step(Epoch epoch, std::uint64_t session, double begin_s, const OddStep& odd);
  void send_links(const solver::Plan& plan, std::map<NodeId, StepBatch>& batches);
  [[nodiscard]] const solver::Plan& plan_of(Epoch epoch) const;

  std::shared_ptr<const solver::Job> job_;
  Options options_;
  std::mt19937_64 random_;
  std::mt19937_64 link_random_;  ///< apart, so that links do not change what ranks draw
  double now_s_ = 0;
  std::uint64_t order_ = 0;
  std::priority_queue<Timed> queue_;

  std::unique_ptr<Core> core_;
  std::unique_ptr<Core> second_core_;
  std::uint64_t life_ = 0;  ///< of the core; messages of an older one are void
  std::optional<std::uint64_t> dies_after_;
  double wall_off_s_ = 0;

  Disk disk_;
  std::deque<StoreWrite> writes_;
  std::deque<StoreWrite> kept_;  ///< nobody waits for them, and the disk was full
  bool writing_ = false;
  double disk_full_until_s_ = 0;

  std::vector<std::unique_ptr<Agent>> agents_;
  std::map<std::string, Agent*> agent_by_node_;
  std::map<Epoch, std::shared_ptr<const solver::Plan>> plans_;  ///< as any agent got them

  JobMap jobs_;  ///< the one job
  std::vector<std::string> recordings_;
  std::vector<OperatorReply> replies_;
  std::map<std::uint64_t, OperatorCommand> unanswered_;
  std::uint64_t last_command_ = 1'000'000;          ///< by themselves; tests number theirs from 1
  std::map<std::string, NodeStateRow> told_nodes_;  ///< as the core knows to be durable
  std::optional<std::string> told_pause_;
  std::map<std::uint64_t, std::vector<StoreRow>> untold_;  ///< durable, by write
  std::vector<double> automatic_;  ///< job time at which automatic switches were decided
  std::map<std::string, std::uint64_t> refusals_;

  solver::ClusterState truth_;
  double scale_ = 1;
  double extra_ratio_ = 1;
  std::uint64_t ticks_ = 0;
  std::uint32_t flags_ = 0;
  std::function<OddStep(std::uint64_t)> odd_;
  std::map<RankId, std::string> seats_;
  std::map<std::string, double> clock_off_s_;
  std::uint64_t session_ = 0x5e55;
  bool ranks_down_ = false;  ///< some died, the job is not started anew yet
  bool stepping_ = false;
  std::uint64_t last_step_ = 0;
  double last_step_s_ = 0;
  double last_end_s_ = 0;
  Epoch running_epoch_;
};

}  // namespace tapas::daemon::sim
