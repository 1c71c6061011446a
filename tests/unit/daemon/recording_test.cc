#include "daemon/recording/replay.h"
#include "fixtures.h"
#include "solver/cost/transfer_order.h"
#include "solver/replan/micro_replan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <sstream>
#include <variant>

namespace tapas::daemon::recording {
namespace {

constexpr Now kNow{std::chrono::nanoseconds(5'000'000'001), 1'780'000'000'123'456'789};

StepSample sample(std::uint32_t rank, std::uint64_t step) {
  StepSample out;
  out.job = name_hash("gpt-tiny");
  out.session = 0xfedcba9876543210;
  out.node = name_hash("node-0");
  out.rank = RankId(rank);
  out.epoch = Epoch(3);
  out.step = step;
  out.end_time_s = 1.7800000001234567e9;
  out.flags = 5;
  out.microbatches = 8;
  out.wall_s = 123'457 * 1e-6;  // as records have it
  out.forward_s = 1.0 / 3;      // as nobody measured it
  out.backward_s = 2;
  out.optimizer_s = 4'294'967'295 * 1e-6;
  out.tp_collective_s = std::numeric_limits<double>::denorm_min();
  out.pp_wait_s = 1e22;
  out.pp_transfer_s = -0.0;
  out.dp_collective_s = std::numeric_limits<double>::infinity();
  out.input_wait_s = -1.5;
  out.work_tokens = 4096;
  return out;
}

/// A real proposal: a slow node in a real plan.
const solver::Proposal& proposal() {
  static const solver::Proposal kProposal = [] {
    const solver::Job& job = tiny_job();
    solver::ReplanRequest request;
    request.current = *tiny_plan(3);
    request.state.device_slowdown.assign(job.cluster.device_count(), 1.0);
    request.state.device_slowdown[2] = request.state.device_slowdown[3] = 1.7;
    request.expected_episode_s = 3600;
    auto found = solver::micro_replan(job, request);
    found->transfers = solver::transfer_times(job, found->moves, request.state);
    return *std::move(found);
  }();
  return kProposal;
}

/// Each kind of event, each with something in every field.
std::vector<Event> all_events() {
  CoreConfig config;
  config.heartbeat_s = 0.1;
  config.replans_per_hour = 3;
  config.auto_replan = true;
  StepSample other = sample(2, 8);
  other.session = 1;
  const LinkSample link{name_hash("gpt-tiny"),
                        0xfedcba9876543210,
                        name_hash("node-1"),
                        RankId(1),
                        RankId(2),
                        1.78e9 + 0.25,
                        4096,
                        0.000321};
  std::vector<Event> out = {
      AgentHello{"node-0",
                 0xffffffffffffffff,
                 Term(7),
                 {{"gpt-tiny",
                   0xfedcba9876543210,
                   Epoch(3),
                   Epoch(4),
                   {{RankId(0), "00112233445566778899aabbccddeeff", 4242}, {RankId(1), "", 0}}}}},
      AgentHeartbeat{"node-0", 1, 2},
      AgentFindings{"node-0", {{"eth0", "no_carrier", "eth0 has no carrier"}}},
      StepBatch{"node-0", {sample(0, 7), sample(1, 7), other, sample(0, 8)}, {link, link}},
      StepBatch{"node-0", {}, {}},
      AgentVote{"node-0", "gpt-tiny", Epoch(4), SwitchPhase::kTransferred, false,
                "no \"room\":\n\tü \x01", 99, 1U << 30U, 2.25},
      PlanSolved{"gpt-tiny", *tiny_plan(1), "found it", 0.5},
      PlanSolved{"gpt-tiny", fail(ErrorCode::kInfeasible, "too small"), "", 0.5},
      ReplanSolved{"gpt-tiny", 11, proposal(), 0.01, {proposal()}},
      ReplanSolved{"gpt-tiny", 12, fail(ErrorCode::kUnavailable, "too many"), 0, {}},
      StoreDone{17, {}},
      StoreDone{18, fail(ErrorCode::kIo, "disk full")},
      Reconfigured{config, "heartbeat_s 1 -> 0.1"},
      Tick{}};
  const decltype(OperatorCommand::verb) verbs[] = {
      Drain{"node-1", "fan"}, Undrain{"node-1"},        Pin{"node-2", "debugged"},
      Unpin{"node-2"},        Replan{"gpt-tiny", true}, SetAuto{true, "night"}};
  for (const auto& verb : verbs) {
    out.push_back(OperatorCommand{9, "uid 1000 (alice)", verb});
  }
  return out;
}

std::string text_of(const Event& event, const std::vector<Action>& actions = {}) {
  std::string out;
  append_step(tiny_jobs(), event, kNow, actions, out);
  return out;
}

TEST(RecordingFormat, EveryEventGoesOutAndComesBack) {
  std::set<std::size_t> kinds;
  std::set<std::size_t> verbs;
  for (const Event& event : all_events()) {
    kinds.insert(event.index());
    if (const auto* command = std::get_if<OperatorCommand>(&event)) {
      verbs.insert(command->verb.index());
    }
    const std::string text = text_of(event);
    const auto line = read_line(text, tiny_jobs());
    ASSERT_TRUE(line) << line.error().message << "\n" << text;
    const auto& step = std::get<Step>(*line);
    EXPECT_EQ(step.now.steady, kNow.steady);
    EXPECT_EQ(step.now.wall_ns, kNow.wall_ns);
    EXPECT_EQ(step.event.index(), event.index());
    EXPECT_EQ(text_of(step.event), text);
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Event>) << "a kind of event is not tried";
  EXPECT_EQ(verbs.size(), std::variant_size_v<decltype(OperatorCommand::verb)>);
}

TEST(RecordingFormat, RecordsKeepEveryBit) {
  const std::string text = text_of(StepBatch{"node-0", {sample(1, 7)}, {}});
  const auto line = read_line(text, tiny_jobs());
  ASSERT_TRUE(line) << line.error().message;
  const auto& batch = std::get<StepBatch>(std::get<Step>(*line).event);
  ASSERT_EQ(batch.samples.size(), 1U);
  const StepSample& read = batch.samples[0];
  const StepSample written = sample(1, 7);
  EXPECT_EQ(read.job, written.job);
  EXPECT_EQ(read.session, written.session);
  EXPECT_EQ(read.node, written.node);
  EXPECT_EQ(read.rank, written.rank);
  EXPECT_EQ(read.epoch, written.epoch);
  EXPECT_EQ(read.step, written.step);
  EXPECT_EQ(read.end_time_s, written.end_time_s);
  EXPECT_EQ(read.flags, written.flags);
  EXPECT_EQ(read.microbatches, written.microbatches);
  EXPECT_EQ(read.wall_s, written.wall_s);
  EXPECT_EQ(read.forward_s, written.forward_s);
  EXPECT_EQ(read.backward_s, written.backward_s);
  EXPECT_EQ(read.optimizer_s, written.optimizer_s);
  EXPECT_EQ(read.tp_collective_s, written.tp_collective_s);
  EXPECT_EQ(read.pp_wait_s, written.pp_wait_s);
  EXPECT_EQ(read.pp_transfer_s, written.pp_transfer_s);
  EXPECT_TRUE(std::signbit(read.pp_transfer_s));
  EXPECT_EQ(read.dp_collective_s, written.dp_collective_s);
  EXPECT_EQ(read.input_wait_s, written.input_wait_s);
  EXPECT_EQ(read.work_tokens, written.work_tokens);
}

TEST(RecordingFormat, ARecordOfAFleetTakesLessThanOnTheWire) {
  StepBatch batch{"node-0", {}, {}};
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    StepSample one = sample(rank, 123'456);
    for (double* time :
         {&one.wall_s, &one.forward_s, &one.backward_s, &one.optimizer_s, &one.tp_collective_s,
          &one.pp_wait_s, &one.pp_transfer_s, &one.dp_collective_s, &one.input_wait_s}) {
      *time = (1'234'567 + rank) * 1e-6;
    }
    batch.samples.push_back(one);
  }
  const double bytes = static_cast<double>(text_of(batch).size()) / 8;
  RecordProperty("bytes_per_record", std::to_string(bytes));
  EXPECT_LT(bytes, 150) << text_of(batch);
}

TEST(RecordingFormat, TheBeginningGoesOutAndComesBack) {
  Restored restored{Term(5), {}, {{"node-1", true, "fan", 1, true, "pinned too"}}, "alice said so"};
  RestoredJob& job = restored.jobs["gpt-tiny"];
  job.active = tiny_plan(3);
  job.open_switches = {{"gpt-tiny", Epoch(3), Epoch(4), SwitchState::kCommitDecided, "why", 2}};
  job.pending = tiny_plan(4);
  job.last_decision = 6;
  job.highest_epoch = Epoch(9);
  job.learnt = {"gpt-tiny", 0.25, Epoch(3), 1.125, 3};
  job.devices = {{"gpt-tiny", "uuid", "node-1", 1, true, 1.6, 10, 20, 3, 40, 1.5, 4}};
  job.switches = {{"gpt-tiny", Epoch(3), 30, {"node-1", "node-2"}, 50, 5}};
  job.trial = {"gpt-tiny", Epoch(3), 6, {"node-1"}, 0.5, 0.25, true, true, 6};
  job.before_trial = tiny_plan(2);
  job.loss = {"gpt-tiny", 7, 8, 9};
  job.slow_links = {{"gpt-tiny", "node-0", "node-1", "path", 2, 1e-9, 11, true, 12}};
  job.late_loaders = {{"gpt-tiny", "node-0", 1, 0xffffffffffffffff, 1.25, 3, 13}};
  CoreConfig config;
  config.cooldown_s = 31.5;
  std::string text;
  append_beginning({"1.2.3", config, tiny_jobs(), restored}, text);
  const auto read = read_beginning(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->version, "1.2.3");
  EXPECT_EQ(read->config.cooldown_s, 31.5);
  EXPECT_EQ(read->restored.paused, "alice said so");
  EXPECT_EQ(read->restored.jobs.at("gpt-tiny").late_loaders[0].session, 0xffffffffffffffff);
  std::string again;
  append_beginning(*read, again);
  EXPECT_EQ(again, text);
}

TEST(RecordingFormat, WordsAreThoseOfTheFiles) {
  // The same things have words elsewhere, in job files and in NCCL's; they must not differ.
  std::string text;
  append_beginning({"", {}, tiny_jobs(), {}}, text);
  const auto value = json::parse(text);
  ASSERT_TRUE(value);
  const solver::Job& job = tiny_job();
  const json::Value& written = (*value)["jobs"][0];
  EXPECT_EQ(written["schedule"], solver::to_string(job.schedule));
  EXPECT_EQ(written["search"]["model"], solver::to_string(job.search.model));
  for (std::size_t i = 0; i < job.graph.nodes.size(); ++i) {
    EXPECT_EQ(written["graph"]["nodes"][i]["kind"], solver::to_string(job.graph.nodes[i].kind));
  }
}

std::string error_of(const std::string& text) {
  std::istringstream in(text);
  const auto replayed = replay(in, [](const Step&, const std::vector<Action>&, bool) {});
  return replayed ? "" : replayed.error().message;
}
Replayed replayed(const std::string& text) {
  std::istringstream in(text);
  auto out = replay(in, [](const Step&, const std::vector<Action>&, bool) {});
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? *std::move(out) : Replayed{};
}

/// Two ticks and a drain, as a core did them.
std::string recorded() {
  Core core({}, {tiny_jobs().begin()->second}, {});
  std::string text;
  append_beginning({"0", {}, tiny_jobs(), {}}, text);
  text += '\n';
  Now now = kNow;
  for (const Event& event : std::vector<Event>{
           Tick{}, OperatorCommand{1, "uid 0 (root)", Drain{"node-1", "fan"}}, Tick{}}) {
    now.steady += std::chrono::milliseconds(100);
    append_step(tiny_jobs(), event, now, core.apply(event, now), text);
    text += '\n';
  }
  return text;
}

TEST(RecordingReplay, SaysHowTheRecordingEnds) {
  const std::string text = recorded();
  const Replayed killed = replayed(text);
  EXPECT_EQ(killed.events, 3U);
  EXPECT_FALSE(killed.first);
  EXPECT_FALSE(killed.end);
  EXPECT_FALSE(killed.cut);
  const Replayed stopped = replayed(text + "{\"end\":\"tapasd stopped\"}\n");
  EXPECT_EQ(stopped.end, "tapasd stopped");
  for (const std::size_t bytes : {2U, 20U, 50U}) {
    const Replayed cut = replayed(text.substr(0, text.size() - bytes));
    EXPECT_EQ(cut.events, 2U);
    EXPECT_TRUE(cut.cut);
  }
}

TEST(RecordingReplay, NamesTheFirstDifference) {
  std::string text = recorded();
  const std::size_t at = text.find("fan", text.find("\"did\":[{\"store\""));
  ASSERT_NE(at, std::string::npos);
  const std::size_t did = text.find("\"did\"", text.find("operator_command"));
  text.replace(text.find("fan", did), 3, "tan");
  const Replayed out = replayed(text);
  EXPECT_EQ(out.differing, 1U);
  ASSERT_TRUE(out.first);
  EXPECT_EQ(out.first->line, 3U);
  EXPECT_NE(json::dump(out.first->expected).find("tan"), std::string::npos);
  EXPECT_NE(json::dump(out.first->seen).find("fan"), std::string::npos);
}

TEST(RecordingReplay, RefusesWhatIsDamagedOrForeignAndSaysWhere) {
  const std::string text = recorded();
  const std::size_t second = text.find('\n') + 1;
  const auto after = [&](std::string_view what, std::string_view with) {
    std::string out = text;
    out.replace(out.find(what, second), what.size(), with);
    return error_of(out);
  };
  EXPECT_EQ(error_of(""), "the file is empty");
  EXPECT_NE(error_of("{\"schema\":\"tapas.recording/9\"}\n").find("tapas.recording/1"),
            std::string::npos);
  EXPECT_EQ(after("{\"tick\":{}}", "{\"tock\":{}}").substr(0, 8), "line 2: ");
  EXPECT_NE(after("{\"tick\":{}}", "{\"tock\":{}}").find("\"tock\""), std::string::npos);
  EXPECT_NE(after("\"who\"", "\"hwo\"").find("event.operator_command.who is missing"),
            std::string::npos)
      << after("\"who\"", "\"hwo\"");
  EXPECT_NE(after("\"request\":1", "\"request\":-1").find("must be an integer"), std::string::npos);
  EXPECT_NE(after("\"tick\"", "\"tick").find("line 2"), std::string::npos);
  EXPECT_NE(error_of(text + "{\"end\":\"a\"}\n{\"end\":\"b\"}\n").find("follows"),
            std::string::npos);
  // One endless line is refused without reading all of it.
  EXPECT_NE(error_of(text + std::string(70U << 20U, 'x')).find("line 5"), std::string::npos);
  std::string jobs = text;
  const std::string name = "\"jobs\":[{\"name\":\"gpt-tiny\"";
  ASSERT_NE(jobs.find(name), std::string::npos);
  jobs.replace(jobs.find(name), name.size(), "\"jobs\":[{\"name\":\"no good name\"");
  EXPECT_EQ(error_of(jobs).substr(0, 8), "line 1: ") << error_of(jobs);
}

}  // namespace
}  // namespace tapas::daemon::recording
