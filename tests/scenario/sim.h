#pragma once

#include "daemon/core/core.h"
#include "solver/model/cluster_state.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

/// A cluster in one process and in virtual time: the real core and the real solver, with agents,
/// training job, network and store as small models. Everything is drawn from one seed.
namespace tapas::daemon::sim {

struct Faults {
  double link_cuts_per_s = 0;       ///< a node's connection breaks; what is on the way is lost
  double agent_restarts_per_s = 0;  ///< the agent forgets a switch that it has not transferred
  double core_crashes_per_s = 0;    ///< the core loses all that is not durable
  double store_failures = 0;        ///< share of awaited writes that are refused
  double max_delay_s = 0.02;        ///< of a message
};

struct Options {
  std::uint64_t seed = 1;
  CoreConfig config;
  Faults faults;
  double jitter = 0.005;      ///< of each rank's compute, redrawn each step
  double step_scale_s = 1.0;  ///< length of a healthy step
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
  std::optional<std::string> paused;
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
  void stop_faults() { options_.faults = {.max_delay_s = options_.faults.max_delay_s}; }
  void fail_store(bool fails) { options_.faults.store_failures = fails ? 1 : 0; }
  /// It is away for `down_s`; training goes on.
  void crash_core(double down_s = 0);
  /// The job's processes are started anew: another session, its steps counted from 1.
  void restart_job();
  /// Devices that the agents report; by default none has a name.
  void seat(RankId rank, const std::string& uuid) { seats_[rank] = uuid; }
  /// From now on the node's wall clock is off by so much.
  void set_clock(const std::string& node, double off_s);
  void tell(const Event& event) { tell_core(event); }
  void cut(const std::string& node);
  void restart_agent(const std::string& node);
  /// The agent is gone for good; its ranks train on.
  void kill_agent(const std::string& node);
  void send(OperatorCommand command);
  /// Flags for the steps to come.
  void flag_steps(std::uint32_t flags) { flags_ = flags; }
  /// Asked before each step, by its number.
  void odd_steps(std::function<OddStep(std::uint64_t)> odd) { odd_ = std::move(odd); }
  [[nodiscard]] std::mt19937_64& random() { return random_; }

  [[nodiscard]] double now() const { return now_s_; }
  [[nodiscard]] const Core& core() const { return *core_; }
  [[nodiscard]] JobView view() const;
  [[nodiscard]] const Disk& disk() const { return disk_; }
  [[nodiscard]] const std::vector<OperatorReply>& replies() const { return replies_; }
  [[nodiscard]] const std::map<std::string, std::uint64_t>& refusals() const { return refusals_; }
  [[nodiscard]] std::uint64_t last_step() const { return last_step_; }
  [[nodiscard]] double last_step_s() const { return last_step_s_; }
  [[nodiscard]] Epoch running_epoch() const { return running_epoch_; }
  /// Journal lines of a kind.
  [[nodiscard]] std::vector<EventRow> events(const std::string& kind) const;
  /// All agents run the core's plan and no switch is open anywhere.
  [[nodiscard]] bool settled() const;

 private:
  struct Agent;
  void send_links(const solver::Plan& plan, std::map<NodeId, StepBatch>& batches);
  struct Timed {
    double at_s = 0;
    std::uint64_t order = 0;
    std::function<void()> what;
    friend bool operator<(const Timed& a, const Timed& b) {
      return a.at_s != b.at_s ? a.at_s > b.at_s : a.order > b.order;
    }
  };

  void at(double delay_s, std::function<void()> what);
  double draw(double least, double most);
  bool chance(double probability) { return draw(0, 1) < probability; }
  [[nodiscard]] Now clock() const;

  void boot();
  void tell_core(const Event& event);
  void carry_out(Action action);
  void write(StoreWrite write);
  void make_durable(const StoreRow& row);
  void solve(const RequestReplan& request);

  void connect(Agent& agent);
  void to_core(Agent& agent, Event event);
  void to_agent(const SendToAgent& message);
  void receive(Agent& agent, const SendToAgent& message);
  void receive_plan(Agent& agent, const PlanMessage& message);
  void receive_order(Agent& agent, const SwitchMessage& order);
  void vote(Agent& agent, SwitchPhase phase, bool ok, const std::string& reason);
  void hello(Agent& agent);
  void commit(Agent& agent, Epoch epoch);
  void rest(Agent& agent);

  void fault_tick();
  void start_step();
  void end_step(Epoch epoch, double begin_s, const OddStep& odd);
  [[nodiscard]] const solver::Plan& plan_of(Epoch epoch) const;

  std::shared_ptr<const solver::Job> job_;
  Options options_;
  std::mt19937_64 random_;
  std::mt19937_64 link_random_;  ///< apart, so that links do not change what ranks draw
  double now_s_ = 0;
  std::uint64_t order_ = 0;
  std::priority_queue<Timed> queue_;

  std::unique_ptr<Core> core_;
  std::uint64_t life_ = 0;  ///< of the core; messages of an older one are void
  Disk disk_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::map<std::string, Agent*> agent_by_node_;
  std::map<Epoch, std::shared_ptr<const solver::Plan>> plans_;  ///< as any agent got them
  std::vector<OperatorReply> replies_;
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
  bool stepping_ = false;
  std::uint64_t last_step_ = 0;
  double last_step_s_ = 0;
  Epoch running_epoch_;
};

}  // namespace tapas::daemon::sim
