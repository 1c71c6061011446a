#include "agent/collect/agent_protocol.h"

#include "wire/record_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapas::agent {

namespace {

using wire::Phase;
using wire::SwitchOrder;

/// Ranks appear one by one; their HELLO goes out once.
constexpr std::chrono::milliseconds kHelloSettle{100};
constexpr int kMissedAcks = 3;
constexpr std::size_t kMaxFences = 64;
constexpr std::size_t kBatchRecords = wire::kMaxTelemetryBytes / wire::kRecordBytes;

TimePoint after(TimePoint now, Seconds wait) {
  return now + std::chrono::duration_cast<TimePoint::duration>(wait);
}

Phase phase_of(SwitchOrder order) { return static_cast<Phase>(order); }
static_assert(static_cast<int>(Phase::kPrepared) == static_cast<int>(SwitchOrder::kPrepare) &&
              static_cast<int>(Phase::kAborted) == static_cast<int>(SwitchOrder::kAbort));

std::string_view name_of(SwitchOrder order) {
  constexpr std::string_view kNames[] = {"prepare", "arm", "transfer", "commit", "abort"};
  return kNames[static_cast<std::size_t>(order)];
}

RankOrder rank_order(SwitchOrder order) {
  switch (order) {
    case SwitchOrder::kPrepare:
      return RankOrder::kPrepare;
    case SwitchOrder::kArm:
      return RankOrder::kArm;
    case SwitchOrder::kTransfer:
      return RankOrder::kTransfer;
    case SwitchOrder::kCommit:
      return RankOrder::kCommit;
    case SwitchOrder::kAbort:
      break;
  }
  return RankOrder::kAbort;
}

/// Past ABORT no order holds a switch open.
bool ends_switch(SwitchOrder order) {
  return order == SwitchOrder::kCommit || order == SwitchOrder::kAbort;
}

/// The last order that all ranks have carried out for `epoch`; kAdopt when some carried out none.
template <typename Ranks>
RankOrder done_by_all(const Ranks& ranks, std::uint64_t epoch) {
  RankOrder done = RankOrder::kTransfer;
  for (const auto& [number, rank] : ranks) {
    done = rank.pending_epoch == epoch ? std::min(done, rank.done) : RankOrder::kAdopt;
    if (done == RankOrder::kAdopt) {
      break;
    }
  }
  return done;
}

/// A rank's numbers, into what a message may carry.
void add_reply(wire::Vote& vote, const RankReply& reply) {
  if (!reply.ok) {
    if (vote.ok) {
      vote.reason = fmt::format("rank {}: {}", reply.rank, reply.reason);
    }
    vote.ok = false;
  }
  vote.step = std::max(vote.step, std::min(reply.step, wire::kMaxCounter));
  vote.bytes = std::min(vote.bytes + std::min(reply.bytes, wire::kMaxCounter), wire::kMaxCounter);
  if (std::isfinite(reply.seconds)) {
    vote.seconds = std::clamp(reply.seconds, vote.seconds, 1e9);
  }
}

}  // namespace

AgentProtocol::AgentProtocol(Options options)
    : options_(std::move(options)), telemetry_(options_.max_queued_records) {}

void AgentProtocol::stop_timers() { hello_at_ = answer_by_ = heartbeat_at_ = TimePoint::max(); }

void AgentProtocol::connected(TimePoint now) {
  state_ = State::kGreeting;
  stop_timers();
  const double fraction = static_cast<double>(options_.nonce % 1024U) / 1024.0;
  hello_at_ = greeted_before_ ? after(now, options_.rehello_spread * fraction) : now;
  tick(now);
}

void AgentProtocol::disconnected(TimePoint /*now*/) {
  state_ = State::kDown;
  stop_timers();
}

void AgentProtocol::send_hello(TimePoint now) {
  wire::Hello hello;
  hello.node = options_.node;
  hello.nonce = options_.nonce;
  hello.term = term_;
  for (const auto& [name, job] : jobs_) {
    wire::Attachment& attachment = hello.attachments.emplace_back();
    attachment.job = name;
    attachment.session = job.session;
    attachment.epoch = job.epoch;
    attachment.pending_epoch = job.pending_epoch;
    for (const auto& [number, rank] : job.ranks) {
      attachment.ranks.push_back(rank.info);
    }
  }
  actions_.emplace_back(wire::ToDaemon{std::move(hello)});
  hello_at_ = after(now, options_.rehello_interval);
  greeted_before_ = true;
  if (state_ == State::kGreeting) {
    answer_by_ = after(now, options_.answer_timeout);
  }
}

void AgentProtocol::hello_soon(TimePoint now) {
  if (state_ == State::kGreeting || state_ == State::kWelcome) {
    hello_at_ = std::min(hello_at_, now + kHelloSettle);
  }
}

void AgentProtocol::received(const wire::ToAgent& message, TimePoint now) {
  const bool greeting = std::holds_alternative<wire::Welcome>(message) ||
                        std::holds_alternative<wire::Reject>(message);
  if (state_ == State::kWelcome || (state_ == State::kGreeting && greeting)) {
    std::visit([this, now](const auto& typed) { on(typed, now); }, message);
  } else if (state_ != State::kDown) {
    notice(true, "early", "the daemon sent orders before its welcome; they are ignored");
  }
}

bool AgentProtocol::fence(std::uint64_t term, std::string_view what) {
  if (term < term_) {
    notice(true, "term",
           fmt::format("{} of term {} refused: a daemon of term {} leads; stop the older one", what,
                       term, term_));
    return false;
  }
  term_ = term;
  return true;
}

void AgentProtocol::on(const wire::Welcome& welcome, TimePoint now) {
  if (!fence(welcome.term, "welcome")) {
    return;
  }
  const bool fresh = state_ == State::kGreeting;
  state_ = State::kWelcome;
  heartbeat_ = Seconds{welcome.heartbeat_s};
  reconnect_spread_s_ = welcome.reconnect_spread_s;
  answer_by_ = after(now, heartbeat_ * kMissedAcks);
  if (!fresh) {
    return;
  }
  heartbeat_at_ = after(now, heartbeat_);
  notice(false, "welcome", fmt::format("welcomed by the daemon, term {}", term_));
  for (auto& [name, job] : jobs_) {
    const bool open = job.last_vote && job.last_vote->epoch == job.pending_epoch;
    if (job.last_vote && (open || job.vote_unsent)) {
      send_vote(*job.last_vote);
    }
    job.vote_unsent = false;
  }
  send_findings();
}

void AgentProtocol::on(const wire::Reject& reject, TimePoint now) {
  stop_timers();
  if (reject.retry_after_s > 0.0) {
    state_ = State::kGreeting;
    hello_at_ = after(now, Seconds{reject.retry_after_s});
    notice(true, "reject",
           fmt::format("the daemon asks to come back in {} s: {}", reject.retry_after_s,
                       reject.reason));
    return;
  }
  state_ = State::kRejected;
  notice(true, "reject",
         fmt::format("the daemon rejects this node: {}; correct it, then restart the agent",
                     reject.reason));
}

void AgentProtocol::on(const wire::HeartbeatAck& ack, TimePoint now) {
  const std::uint64_t before = term_;
  if (!fence(ack.term, "heartbeat answer")) {
    return;
  }
  answer_by_ = after(now, heartbeat_ * kMissedAcks);
  if (ack.term > before) {
    hello_soon(now);  // Another daemon leads now and does not know us.
  }
}

void AgentProtocol::on(const wire::PlanChunk& chunk, TimePoint now) {
  if (!fence(chunk.term, "plan")) {
    return;
  }
  const auto found = jobs_.find(chunk.job);
  if (found == jobs_.end()) {
    notice(true, "plan-job",
           fmt::format("plan of job {} dropped: no rank of it runs on this node", chunk.job));
    return;
  }
  JobState& job = found->second;
  if (chunk.epoch < fence_of(chunk.job).active || (chunk.epoch == job.epoch && !chunk.active)) {
    notice(true, "plan-epoch",
           fmt::format("plan of epoch {} refused: job {} ran epoch {} here", chunk.epoch, job.name,
                       fence_of(chunk.job).active));
    return;
  }
  const auto complete = job.assembler.add(chunk);
  if (!complete) {
    notice(true, "plan-pieces", fmt::format("job {}: {}", job.name, complete.error().message));
    return;
  }
  if (!*complete) {
    return;
  }
  std::string text = job.assembler.take_text();
  if (job.plan_epoch != chunk.epoch) {
    job.plan_epoch = chunk.epoch;
    actions_.emplace_back(StorePlan{job.name, chunk.epoch, std::move(text)});
  }
  if (chunk.active && chunk.epoch > job.epoch) {
    adopt(job, chunk.epoch, now);
  }
}

AgentProtocol::Fence& AgentProtocol::fence_of(const std::string& job) {
  if (fences_.size() >= kMaxFences && !fences_.contains(job)) {
    const auto gone = std::find_if(fences_.begin(), fences_.end(), [this](const auto& entry) {
      return !jobs_.contains(entry.first);
    });
    fences_.erase(gone);  // There are more of them than jobs.
  }
  return fences_[job];
}

void AgentProtocol::adopt(JobState& job, std::uint64_t epoch, TimePoint now) {
  if (job.round && job.round->command.order == SwitchOrder::kCommit &&
      job.round->command.epoch == epoch) {
    return;  // It is on its way there.
  }
  const bool voted = done_by_all(job.ranks, epoch) == RankOrder::kTransfer;
  if (job.pending_epoch == epoch && voted) {
    // The daemon committed while the connection was away.
    start_round(job, {SwitchOrder::kCommit, job.name, term_, job.epoch, epoch, 0, {}}, now);
    return;
  }
  job.round.reset();
  job.pending_epoch = 0;
  job.order_deadline = TimePoint::max();
  job.epoch = fence_of(job.name).active = epoch;
  for (auto& [number, rank] : job.ranks) {
    rank.pending_epoch = 0;
  }
  notice(false, "adopt", fmt::format("job {} starts with plan epoch {}", job.name, epoch));
  settle(job);
  hello_soon(now);
}

/// Tells ranks that are behind the active epoch: those that took part in its switch finish it.
void AgentProtocol::settle(JobState& job) {
  for (auto& [number, rank] : job.ranks) {
    if (rank.epoch >= job.epoch || rank.told_epoch == job.epoch) {
      continue;
    }
    const bool ready = rank.pending_epoch == job.epoch && rank.done == RankOrder::kTransfer;
    rank.told_epoch = job.epoch;
    command(job, number, ready ? RankOrder::kCommit : RankOrder::kAdopt,
            {SwitchOrder::kCommit, job.name, term_, rank.epoch, job.epoch, 0, {}});
  }
}

void AgentProtocol::command(const JobState& job, std::uint32_t rank, RankOrder order,
                            const wire::SwitchCommand& from) {
  actions_.emplace_back(
      RankCommand{job.name, rank, order, from.from_epoch, from.epoch, from.at_step, from.term});
}

void AgentProtocol::on(const wire::SwitchCommand& command, TimePoint now) {
  if (!fence(command.term, "switch order")) {
    return;
  }
  wire::Vote vote;
  vote.job = command.job;
  vote.epoch = command.epoch;
  vote.phase = phase_of(command.order);
  const auto found = jobs_.find(command.job);
  if (found == jobs_.end()) {
    vote.ok = command.order == SwitchOrder::kAbort;
    vote.reason = fmt::format("no rank of job {} runs on node {}", command.job, options_.node);
    send_vote(vote);
    return;
  }
  JobState& job = found->second;
  if (command.order == SwitchOrder::kAbort && command.epoch > job.epoch) {
    Fence& past = fence_of(job.name);
    past.ended = std::max(past.ended, command.epoch);
  }
  if (job.round && job.round->command.order == command.order &&
      job.round->command.epoch == command.epoch) {
    return;  // Its vote is on the way.
  }
  if (job.last_vote && job.last_vote->epoch == command.epoch &&
      job.last_vote->phase == vote.phase) {
    send_vote(*job.last_vote);
    return;
  }
  if (already_done(job, command)) {
    vote.step = job.last_vote ? job.last_vote->step : 0;
    send_vote(vote);
    return;
  }
  vote.reason = objection(job, command);
  vote.ok = vote.reason.empty();
  if (!vote.ok) {
    send_vote(vote);
    return;
  }
  start_round(job, command, now);
}

bool AgentProtocol::already_done(const JobState& job, const wire::SwitchCommand& command) {
  switch (command.order) {
    case SwitchOrder::kCommit:
      return command.epoch == job.epoch;
    case SwitchOrder::kAbort:
      return command.epoch != job.epoch && command.epoch != job.pending_epoch;
    default:
      return !job.round && command.epoch == job.pending_epoch &&
             done_by_all(job.ranks, command.epoch) >= rank_order(command.order);
  }
}

std::string AgentProtocol::objection(const JobState& job, const wire::SwitchCommand& command) {
  if (command.epoch <= job.epoch) {
    return fmt::format("epoch {} is not above the active epoch {}", command.epoch, job.epoch);
  }
  if (job.round &&
      (command.order != SwitchOrder::kAbort || ends_switch(job.round->command.order))) {
    return fmt::format("{} of epoch {} is still under way", name_of(job.round->command.order),
                       job.round->command.epoch);
  }
  if (command.order == SwitchOrder::kAbort) {
    return {};
  }
  if (command.from_epoch != job.epoch) {
    return fmt::format("the switch starts from epoch {} but the node runs epoch {}",
                       command.from_epoch, job.epoch);
  }
  if (job.pending_epoch != 0 && job.pending_epoch != command.epoch) {
    return fmt::format("a switch to epoch {} is under way", job.pending_epoch);
  }
  if (command.order == SwitchOrder::kPrepare) {
    if (command.epoch <= fence_of(job.name).ended) {
      return fmt::format("the switch to epoch {} is over", command.epoch);
    }
    return job.plan_epoch == command.epoch
               ? std::string{}
               : fmt::format("the plan of epoch {} did not arrive", command.epoch);
  }
  const auto needed = static_cast<RankOrder>(static_cast<int>(rank_order(command.order)) - 1);
  if (done_by_all(job.ranks, command.epoch) < needed) {
    return fmt::format("not all ranks carried out the order before {}", name_of(command.order));
  }
  return {};
}

void AgentProtocol::start_round(JobState& job, const wire::SwitchCommand& order, TimePoint now) {
  Round round;
  round.command = order;
  round.vote.job = job.name;
  round.vote.epoch = order.epoch;
  round.vote.phase = phase_of(order.order);
  round.vote.reason = order.reason;
  round.deadline = after(now, options_.phase_timeout);
  job.pending_epoch = order.epoch;
  job.order_deadline = TimePoint::max();
  for (const auto& [number, rank] : job.ranks) {
    round.waiting.insert(number);
    command(job, number, rank_order(order.order), order);
  }
  job.round = std::move(round);
}

void AgentProtocol::rank_replied(const std::string& name, const RankReply& reply, TimePoint now) {
  const auto found = jobs_.find(name);
  if (found == jobs_.end() || !found->second.ranks.contains(reply.rank)) {
    return;  // The rank left in the meantime.
  }
  JobState& job = found->second;
  RankState& rank = job.ranks.at(reply.rank);
  if (reply.ok) {
    const bool switched = reply.order == RankOrder::kAdopt || reply.order == RankOrder::kCommit;
    if (switched) {
      rank.epoch = reply.epoch;
    }
    rank.pending_epoch = switched || reply.order == RankOrder::kAbort ? 0 : reply.epoch;
    rank.done = reply.order;
  } else {
    notice(true, fmt::format("rank-{}", reply.rank),
           fmt::format("job {} rank {} refused an order of epoch {}: {}", name, reply.rank,
                       reply.epoch, reply.reason));
  }
  if (!job.round || rank_order(job.round->command.order) != reply.order ||
      job.round->command.epoch != reply.epoch || job.round->waiting.erase(reply.rank) == 0) {
    return;
  }
  add_reply(job.round->vote, reply);
  if (job.round->waiting.empty()) {
    finish_round(job, now);
  }
}

void AgentProtocol::finish_round(JobState& job, TimePoint now) {
  const SwitchOrder order = job.round->command.order;
  wire::Vote vote = std::move(job.round->vote);
  job.round.reset();
  if (order == SwitchOrder::kCommit) {
    // Decided by the daemon, whatever a rank made of it.
    job.epoch = fence_of(job.name).active = vote.epoch;
  }
  if (ends_switch(order)) {
    job.pending_epoch = 0;
    notice(!vote.ok, "switch",
           fmt::format("job {} {} epoch {}{}{}", job.name,
                       order == SwitchOrder::kCommit ? "committed" : "aborted", vote.epoch,
                       vote.reason.empty() ? "" : ": ", vote.reason));
    settle(job);
  } else {
    job.order_deadline = after(now, options_.order_timeout);
  }
  job.vote_unsent = state_ != State::kWelcome;
  send_vote(vote);
  job.last_vote = std::move(vote);
}

void AgentProtocol::fail_round(JobState& job, const std::string& reason, TimePoint now) {
  wire::Vote& vote = job.round->vote;
  if (vote.ok) {
    vote.reason = reason;
  }
  vote.ok = false;
  finish_round(job, now);
}

void AgentProtocol::send_vote(const wire::Vote& vote) {
  if (state_ == State::kWelcome) {
    actions_.emplace_back(wire::ToDaemon{vote});
  }
}

bool AgentProtocol::attach_rank(const std::string& name, std::uint64_t session,
                                const LocalRank& rank, TimePoint now) {
  auto found = jobs_.find(name);
  if (found == jobs_.end()) {
    if (jobs_.size() >= wire::kMaxAttachments) {
      notice(true, "attach",
             fmt::format("rank {} of job {} ignored: a node serves {} jobs at most", rank.info.rank,
                         name, wire::kMaxAttachments));
      return false;
    }
    found = jobs_.try_emplace(name).first;
    found->second.name = name;
    found->second.session = session;
  }
  JobState& job = found->second;
  if (job.session != session) {
    notice(true, "attach",
           fmt::format("rank {} of job {} waits: ranks of an older start of the job still run here",
                       rank.info.rank, name));
    return false;
  }
  if (job.ranks.size() >= wire::kMaxRanksPerAttachment && !job.ranks.contains(rank.info.rank)) {
    notice(true, "attach",
           fmt::format("rank {} of job {} ignored: a node serves {} ranks of a job", rank.info.rank,
                       name, wire::kMaxRanksPerAttachment));
    return false;
  }
  job.ranks[rank.info.rank] = RankState{rank, 0};
  term_ = std::max(term_, rank.term);
  job.epoch = std::max(job.epoch, rank.epoch);
  Fence& past = fence_of(name);
  past.active = std::max(past.active, job.epoch);
  if (rank.pending_epoch > job.epoch && !job.round) {
    job.pending_epoch = rank.pending_epoch;
    job.order_deadline = after(now, options_.order_timeout);
  }
  if (job.pending_epoch <= job.epoch) {
    job.pending_epoch = 0;
  }
  settle(job);
  hello_soon(now);
  return true;
}

void AgentProtocol::detach_rank(const std::string& name, std::uint32_t rank, TimePoint now) {
  const auto found = jobs_.find(name);
  if (found == jobs_.end() || found->second.ranks.erase(rank) == 0) {
    return;
  }
  hello_soon(now);
  JobState& job = found->second;
  if (job.round && job.round->waiting.erase(rank) != 0) {
    fail_round(job, fmt::format("rank {} left", rank), now);
  }
  if (job.ranks.empty()) {
    jobs_.erase(found);
  }
}

void AgentProtocol::queue_records(std::span<const std::byte> records, TimePoint now) {
  if (telemetry_.size() == 0) {
    flush_at_ = next_flush(now);
  }
  telemetry_.push(records);
}

bool AgentProtocol::telemetry_due(TimePoint now) const {
  return state_ == State::kWelcome &&
         (telemetry_.size() >= kBatchRecords || (telemetry_.size() > 0 && now >= flush_at_));
}

/// The next of this agent's own moments, so that a fleet whose steps end together does not send
/// together.
TimePoint AgentProtocol::next_flush(TimePoint now) const {
  const auto interval = after(TimePoint{}, options_.flush_interval).time_since_epoch();
  if (interval <= interval.zero()) {
    return now;
  }
  const auto phase = interval / 1024 * static_cast<int>(options_.nonce % 1024U);
  return now + interval - (now.time_since_epoch() + interval - phase) % interval;
}

std::optional<wire::Telemetry> AgentProtocol::next_telemetry(TimePoint now) {
  if (!telemetry_due(now)) {
    return std::nullopt;
  }
  wire::Telemetry telemetry{telemetry_.pop_batch()};
  records_sent_ += telemetry.records.size() / wire::kRecordBytes;
  flush_at_ = next_flush(now);
  return telemetry;
}

void AgentProtocol::tick(TimePoint now) {
  if (now >= hello_at_) {
    send_hello(now);
  }
  if (now >= answer_by_) {
    const bool greeting = state_ == State::kGreeting;
    state_ = State::kDown;
    stop_timers();
    actions_.emplace_back(
        Reconnect{greeting ? "no answer to the hello" : "no answer to three heartbeats"});
  }
  if (now >= heartbeat_at_) {
    heartbeat_at_ = after(now, heartbeat_);
    const auto uptime =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
    actions_.emplace_back(wire::ToDaemon{wire::Heartbeat{static_cast<std::uint64_t>(uptime.count()),
                                                         records_sent_, records_dropped()}});
  }
  for (auto& [name, job] : jobs_) {
    check_deadlines(job, now);
  }
}

void AgentProtocol::check_deadlines(JobState& job, TimePoint now) {
  if (job.round && now >= job.round->deadline) {
    fail_round(job,
               fmt::format("{} rank(s) did not answer in {} s, the first is rank {}",
                           job.round->waiting.size(), options_.phase_timeout.count(),
                           *job.round->waiting.begin()),
               now);
  }
  if (job.round || now < job.order_deadline) {
    return;
  }
  job.order_deadline = TimePoint::max();
  const bool in_doubt = done_by_all(job.ranks, job.pending_epoch) == RankOrder::kTransfer;
  if (job.pending_epoch != 0 && !in_doubt) {
    start_round(job,
                {SwitchOrder::kAbort, job.name, term_, job.epoch, job.pending_epoch, 0,
                 fmt::format("no order from the daemon for {} s", options_.order_timeout.count())},
                now);
  }
}

TimePoint AgentProtocol::next_wakeup() const {
  TimePoint wakeup = std::min({hello_at_, answer_by_, heartbeat_at_});
  if (state_ == State::kWelcome && telemetry_.size() > 0) {
    wakeup = std::min(wakeup, flush_at_);
  }
  for (const auto& [name, job] : jobs_) {
    wakeup = std::min(wakeup, job.round ? job.round->deadline : job.order_deadline);
  }
  return wakeup;
}

std::vector<Action> AgentProtocol::take_actions() { return std::exchange(actions_, {}); }

std::uint64_t AgentProtocol::active_epoch(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : found->second.epoch;
}

std::uint64_t AgentProtocol::pending_epoch(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : found->second.pending_epoch;
}

std::size_t AgentProtocol::rank_count() const {
  std::size_t count = 0;
  for (const auto& [name, job] : jobs_) {
    count += job.ranks.size();
  }
  return count;
}

std::uint64_t AgentProtocol::records_dropped() const {
  return telemetry_.dropped() + rank_dropped_;
}

void AgentProtocol::set_findings(std::vector<wire::Finding> findings) {
  findings.resize(std::min(findings.size(), wire::kMaxFindings));
  if (findings_ != findings) {
    findings_ = std::move(findings);
    send_findings();
  }
}

void AgentProtocol::send_findings() {
  if (findings_ && state_ == State::kWelcome) {
    actions_.emplace_back(wire::ToDaemon{wire::Findings{*findings_}});
  }
}

void AgentProtocol::notice(bool warning, std::string key, std::string text) {
  actions_.emplace_back(Notice{warning, std::move(key), std::move(text)});
}

}  // namespace tapas::agent
