#include "daemon/store/store.h"

#include "base/json/json.h"
#include "tests/unit/daemon/fixtures.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <future>
#include <iterator>
#include <tuple>
#include <vector>

namespace tapas::daemon {
namespace {

/// A store with a way to wait for its callbacks.
class RunningStore {
 public:
  explicit RunningStore(const std::string& dir, std::int64_t event_rows = 1'000'000)
      : store_(Store::open({dir, event_rows}, tiny_jobs()).value()) {
    store_->start(
        [this](StoreDone done) {
          EXPECT_EQ(done.write, expected_);
          outcome_.set_value(std::move(done.outcome));
        },
        [this](std::int64_t last) { last_event_ = last; });
  }
  Store& operator*() { return *store_; }
  Store* operator->() { return store_.get(); }

  Result<void> write(std::vector<StoreRow> rows) {
    outcome_ = {};
    ++expected_;
    store_->write({expected_, std::move(rows)});
    return outcome_.get_future().get();
  }
  template <typename T, typename Ask>
  Result<T> ask(Ask ask) {
    std::promise<Result<T>> answer;
    ask([&](Result<T> result) { answer.set_value(std::move(result)); });
    return answer.get_future().get();
  }
  std::vector<StoredEvent> events(std::optional<std::int64_t> after, std::size_t limit = 1000) {
    return ask<std::vector<StoredEvent>>([&](auto reply) { store_->events(after, limit, reply); })
        .value();
  }
  std::int64_t last_event() const { return last_event_; }

 private:
  std::uint64_t expected_ = 0;
  std::promise<Result<void>> outcome_;
  std::atomic<std::int64_t> last_event_{-1};
  std::unique_ptr<Store> store_;
};

EventRow event(const std::string& sentence) {
  return {tiny_job().name, "test", "node-1", sentence, {{"slowdown", 1.5}}, 1'000'000'000};
}
PlanRow plan(std::uint64_t epoch, PlanStatus status) {
  return {tiny_job().name, tiny_plan(epoch), status, "offline", 5};
}

TEST(Store, GivesBackWhatItHeldWithAHigherTerm) {
  const TempDir dir;
  const std::string job = tiny_job().name;
  {
    RunningStore store(dir.path());
    EXPECT_EQ(store->restored().term, Term(1));
    EXPECT_EQ(store->restored().jobs.at(job).active, nullptr);
    ASSERT_TRUE(store.write({plan(1, PlanStatus::kActive), plan(2, PlanStatus::kProposed),
                             plan(3, PlanStatus::kAborted),
                             SwitchRow{job, Epoch(1), Epoch(2), SwitchState::kCommitDecided, "", 7},
                             SwitchRow{job, Epoch(1), Epoch(3), SwitchState::kAborted, "late", 6},
                             DecisionRow{job, 4, Epoch(2), "micro_replan", "because", {}, 8},
                             TrialRow{job, Epoch(2), 4, {"node-2"}, 1.6, 1.5, true, true, 8},
                             NodeStateRow{"node-2", true, "fan", 9}}));
  }
  RunningStore store(dir.path());
  const Restored& restored = store->restored();
  EXPECT_EQ(restored.term, Term(2));
  const RestoredJob& back = restored.jobs.at(job);
  ASSERT_NE(back.active, nullptr);
  EXPECT_EQ(back.active->epoch, Epoch(1));
  EXPECT_EQ(solver::plan_to_json(*back.active, tiny_job()),
            solver::plan_to_json(*tiny_plan(1), tiny_job()));
  ASSERT_EQ(back.open_switches.size(), 1U);
  EXPECT_EQ(back.open_switches[0].state, SwitchState::kCommitDecided);
  EXPECT_EQ(back.open_switches[0].to, Epoch(2));
  ASSERT_NE(back.pending, nullptr);
  EXPECT_EQ(back.pending->epoch, Epoch(2));
  ASSERT_NE(back.before_trial, nullptr);
  EXPECT_EQ(back.before_trial->epoch, Epoch(1));
  EXPECT_EQ(back.highest_epoch, Epoch(3));
  EXPECT_EQ(back.last_decision, 4U);
  ASSERT_EQ(restored.nodes.size(), 1U);
  EXPECT_TRUE(restored.nodes[0].drained);
  EXPECT_EQ(restored.nodes[0].reason, "fan");
}

TEST(Store, GivesBackWhatTheCoreRemembers) {
  const TempDir dir;
  const std::string job = tiny_job().name;
  DeviceRow device{job, "GPU-1", "node-1", 3, true, 1.6, 100, 50, 2, 20, 1.5, 7};
  {
    RunningStore store(dir.path());
    EXPECT_FALSE(store->restored().paused);
    ASSERT_TRUE(store.write({device, LearntRow{job, 1.4, Epoch(3), 1.1, 8},
                             AutomaticSwitchRow{job, Epoch(3), 90, {"node-1", "node-2"}, 0, 9},
                             AutomaticSwitchRow{job, Epoch(2), 40, {"node-1"}, 640, 9},
                             NodeStateRow{"node-2", false, "", 9, true, "profiling"},
                             OperatorRow{"uid 0 (root)", "auto on", "try", "accepted", 10},
                             OperatorRow{"uid 0 (root)", "auto off", "stop", "accepted", 11}}));
    SlowLinkRow link{job, "node-1", "node-2", "send", 3, 5e-11, 60, true, 9};
    ASSERT_TRUE(store.write({link, LossRow{job, 30, 95, 9}, LossRow{job, 40, 105, 9},
                             TrialRow{job, Epoch(7), 2, {"node-1"}, 1.6, 1.5, true, true, 9}}));
    link.slowdown = 1;
    ASSERT_TRUE(store.write({link}));
    ASSERT_TRUE(store.write({LateLoaderRow{job, "node-1", 3, ~std::uint64_t{7}, 1.01, 1.4, 9}}));
    device.slowdown = 1.7;
    device.slow = false;
    ASSERT_TRUE(store.write({device}));
  }
  {
    RunningStore store(dir.path());
    const RestoredJob& back = store->restored().jobs.at(job);
    ASSERT_EQ(back.devices.size(), 1U);
    const DeviceRow& row = back.devices[0];
    EXPECT_EQ(std::tie(row.device, row.node, row.index, row.slow, row.slowdown, row.since_s,
                       row.until_s, row.episodes, row.slow_s, row.planned_at),
              std::tie(device.device, device.node, device.index, device.slow, device.slowdown,
                       device.since_s, device.until_s, device.episodes, device.slow_s,
                       device.planned_at));
    EXPECT_EQ(back.learnt.healthy_step_s, 1.4);
    EXPECT_EQ(back.learnt.healthy_epoch, Epoch(3));
    EXPECT_EQ(back.learnt.calibration, 1.1);
    ASSERT_EQ(back.slow_links.size(), 1U);
    const SlowLinkRow& link = back.slow_links[0];
    EXPECT_EQ(std::tie(link.from, link.to, link.part, link.slowdown, link.before_s, link.since_s,
                       link.planned),
              std::make_tuple("node-1", "node-2", "send", 1.0, 5e-11, 60.0, true));
    ASSERT_EQ(back.late_loaders.size(), 1U);
    const LateLoaderRow& late = back.late_loaders[0];
    EXPECT_EQ(std::tie(late.node, late.index, late.session, late.before, late.slowdown),
              std::make_tuple("node-1", 3U, ~std::uint64_t{7}, 1.01, 1.4));
    EXPECT_EQ(back.loss.lost_s, 40);
    EXPECT_EQ(back.loss.until_s, 105);
    EXPECT_EQ(back.trial.epoch, Epoch(7));
    EXPECT_EQ(back.trial.decision, 2U);
    EXPECT_EQ(back.trial.nodes, std::vector<std::string>{"node-1"});
    EXPECT_EQ(back.trial.before_s, 1.6);
    EXPECT_EQ(back.trial.before_model_s, 1.5);
    EXPECT_TRUE(back.trial.open && back.trial.may_roll_back);
    EXPECT_EQ(back.before_trial, nullptr);  // no such plan is active
    ASSERT_EQ(back.switches.size(), 2U);
    EXPECT_EQ(back.switches[0].rests_until_s, 640);
    EXPECT_EQ(back.switches[1].nodes, (std::vector<std::string>{"node-1", "node-2"}));
    ASSERT_EQ(store->restored().nodes.size(), 1U);
    EXPECT_TRUE(store->restored().nodes[0].pinned);
    EXPECT_EQ(store->restored().nodes[0].pin_reason, "profiling");
    EXPECT_EQ(store->restored().paused, "off by uid 0 (root): stop");
    ASSERT_TRUE(store.write({OperatorRow{"uid 0 (root)", "auto on", "", "accepted", 12}}));
  }
  EXPECT_FALSE(RunningStore(dir.path())->restored().paused);
}

/// A connection of somebody else.
class Sql {
 public:
  explicit Sql(const std::string& path) {
    EXPECT_EQ(sqlite3_open(path.c_str(), &handle_), SQLITE_OK);
  }
  ~Sql() { sqlite3_close(handle_); }
  Sql(const Sql&) = delete;
  Sql& operator=(const Sql&) = delete;
  void run(const std::string& sql) {
    EXPECT_EQ(sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(handle_);
  }
  std::int64_t number(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_prepare_v2(handle_, sql.c_str(), -1, &statement, nullptr), SQLITE_OK);
    EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW);
    const std::int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return value;
  }
  sqlite3* handle() { return handle_; }

 private:
  sqlite3* handle_ = nullptr;
};

TEST(Store, TakesOverADatabaseOfEachOlderSchema) {
  for (const int version : {1, 2, 3}) {
    SCOPED_TRACE(version);
    const TempDir dir;
    {
      Sql sql(dir / "tapas.db");
      for (int step = 1; step <= version; ++step) {
        std::ifstream file(
            fmt::format("{}/tests/unit/daemon/schema-{}.sql", TAPAS_SOURCE_DIR, step));
        sql.run(std::string(std::istreambuf_iterator<char>(file), {}));
      }
      EXPECT_EQ(sql.number("PRAGMA user_version"), version);
      sql.run(fmt::format(
          "INSERT INTO plan VALUES ('gpt-tiny', 1, 0, 'active', 'offline', 5, 0.02, '{}')",
          json::dump(solver::plan_to_json(*tiny_plan(1), tiny_job()))));
    }
    RunningStore store(dir.path());
    EXPECT_EQ(store->restored().term, Term(8));
    const RestoredJob& job = store->restored().jobs.at("gpt-tiny");
    ASSERT_TRUE(job.active);
    EXPECT_EQ(job.active->placement, tiny_plan(1)->placement);
    EXPECT_EQ(job.last_decision, 3U);
    EXPECT_TRUE(job.open_switches.empty());
    ASSERT_EQ(store->restored().nodes.size(), version == 1 ? 1U : 2U);
    EXPECT_TRUE(store->restored().nodes[0].drained);
    EXPECT_EQ(store->restored().nodes[0].reason, "fan");
    EXPECT_FALSE(store->restored().nodes[0].pinned);
    EXPECT_EQ(store.events(0).at(0).id, 41);
    if (version >= 2) {
      EXPECT_EQ(store->restored().nodes[1].pin_reason, "profiling");
      ASSERT_EQ(job.devices.size(), 1U);
      EXPECT_EQ(job.devices[0].planned_at, 1.5);
      EXPECT_EQ(job.learnt.calibration, 1.1);
      ASSERT_EQ(job.switches.size(), 1U);
    }
    EXPECT_EQ(job.slow_links.size(), version == 3 ? 1U : 0U);
    EXPECT_EQ(job.loss.lost_s, version == 3 ? 40 : 0);
    EXPECT_TRUE(store.write({LearntRow{"gpt-tiny", 1, Epoch(1), 1, 5}, LossRow{"gpt-tiny", 1, 2, 5},
                             TrialRow{"gpt-tiny", Epoch(1), 1, {"node-1"}, 1, 1, true, false, 5},
                             SlowLinkRow{"gpt-tiny", "node-1", "node-2", "send", 2, 1, 1, false, 5},
                             LateLoaderRow{"gpt-tiny", "node-1", 0, 7, 1, 1.5, 5}}));
  }
}

/// While one is there no file of this process may grow beyond some size: the disk is full.
class FullDisk {
 public:
  explicit FullDisk(std::uint64_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit low{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_ = {};
};

TEST(Store, RefusesOnAFullDiskKeepsWhatNobodyWaitsForAndGoesOn) {
  const TempDir dir;
  RunningStore store(dir.path());
  ASSERT_TRUE(store.write({plan(1, PlanStatus::kActive)}));
  {
    const FullDisk full(std::filesystem::file_size(dir / "tapas.db-wal"));
    const Result<void> refused =
        store.write({plan(2, PlanStatus::kProposed), event(std::string(20'000, 'x'))});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kIo);
    EXPECT_NE(refused.error().message.find(dir / "tapas.db"), std::string::npos);
    store->write({0, {event("kept one")}});
    store->write({0, {event("kept two")}});
    EXPECT_FALSE(store.write({plan(2, PlanStatus::kProposed)}));
    EXPECT_TRUE(store.events(0).empty());
  }
  ASSERT_TRUE(store.write({event("after")}));
  const auto lines = store.events(0);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].sentence, "kept one");
  EXPECT_EQ(lines[1].sentence, "kept two");
  EXPECT_EQ(lines[2].sentence, "after");
  EXPECT_EQ(Sql(dir / "tapas.db").number("SELECT max(epoch) FROM plan"), 1);
}

TEST(Store, ForgetsOldHistoryButNothingThatRuns) {
  const TempDir dir;
  RunningStore store(dir.path());
  std::vector<StoreRow> rows{plan(1, PlanStatus::kSuperseded), plan(2, PlanStatus::kActive)};
  for (std::uint64_t epoch = 3; epoch <= 700; ++epoch) {
    rows.emplace_back(plan(epoch, PlanStatus::kAborted));
    rows.emplace_back(
        SwitchRow{tiny_job().name, Epoch(2), Epoch(epoch), SwitchState::kAborted, "", 5});
  }
  rows.emplace_back(OperatorRow{"uid 0 (root)", "auto off", "stop", "accepted", 5});
  for (std::uint64_t i = 1; i <= 10'100; ++i) {
    rows.emplace_back(OperatorRow{"uid 0 (root)", "replan", "", "", 5});
    rows.emplace_back(DecisionRow{tiny_job().name, i, Epoch(2), "gain_too_small", "no", {}, 5});
  }
  for (int i = 0; i < 1001; ++i) {
    rows.emplace_back(event("line"));
  }
  ASSERT_TRUE(store.write(std::move(rows)));
  static_cast<void>(store.events(0, 1));  // It trims after the write.
  Sql sql(dir / "tapas.db");
  EXPECT_EQ(sql.number("SELECT count(*) FROM plan"), 502);
  EXPECT_EQ(sql.number("SELECT count(*) FROM plan WHERE epoch <= 2"), 2)
      << "the active one and its parent";
  EXPECT_EQ(sql.number("SELECT count(*) FROM switch"), 500);
  EXPECT_EQ(sql.number("SELECT count(*) FROM decision"), 10'000);
  EXPECT_EQ(sql.number("SELECT count(*) FROM operator_action"), 10'001);
  EXPECT_EQ(sql.number("SELECT count(*) FROM operator_action WHERE action = 'auto off'"), 1);
}

TEST(Store, IsCopiedWhileItIsInUse) {
  const TempDir dir;
  const TempDir backup;
  RunningStore store(dir.path());
  ASSERT_TRUE(store.write({plan(1, PlanStatus::kActive), event("before")}));
  {
    // What `sqlite3 tapas.db ".backup copy.db"` does.
    Sql from(dir / "tapas.db");
    Sql to(backup / "tapas.db");
    sqlite3_backup* copying = sqlite3_backup_init(to.handle(), "main", from.handle(), "main");
    ASSERT_NE(copying, nullptr);
    EXPECT_EQ(sqlite3_backup_step(copying, 1), SQLITE_OK);
    ASSERT_TRUE(store.write({event("meanwhile")}));
    EXPECT_EQ(sqlite3_backup_step(copying, -1), SQLITE_DONE);
    sqlite3_backup_finish(copying);
  }
  RunningStore copy(backup.path());
  EXPECT_EQ(copy->restored().jobs.at(tiny_job().name).active->epoch, Epoch(1));
  EXPECT_EQ(copy.events(0).size(), 2U);
}

TEST(Store, HoldsEveryAcknowledgedWriteWhenCopiedAsACrashLeavesIt) {
  const TempDir dir;
  RunningStore store(dir.path());
  for (std::uint64_t epoch = 1; epoch <= 5; ++epoch) {
    ASSERT_TRUE(store.write({plan(epoch, PlanStatus::kProposed)}));
    const TempDir crashed;
    for (const char* file : {"tapas.db", "tapas.db-wal"}) {
      std::filesystem::copy_file(dir / file, crashed / file);
    }
    const auto copy = Store::open({crashed.path()}, tiny_jobs());
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_EQ((*copy)->restored().jobs.at(tiny_job().name).highest_epoch, Epoch(epoch));
  }
}

TEST(Store, KeepsNoRowOfAWriteThatIsRefused) {
  const TempDir dir;
  RunningStore store(dir.path());
  PlanRow unknown_job = plan(1, PlanStatus::kActive);
  unknown_job.job = "nobody";
  const Result<void> refused = store.write({event("first"), unknown_job});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("nobody"), std::string::npos);
  EXPECT_TRUE(store.events(0).empty());
  ASSERT_TRUE(store.write({event("second")}));
  ASSERT_EQ(store.events(0).size(), 1U);
  EXPECT_EQ(store.events(0)[0].sentence, "second");
}

TEST(Store, PagesThroughTheJournalInOrder) {
  const TempDir dir;
  RunningStore store(dir.path());
  for (int i = 1; i <= 10; ++i) {
    store->write({0, {event(std::to_string(i))}});
  }
  const auto page = store.events(3, 4);
  ASSERT_EQ(page.size(), 4U);
  EXPECT_EQ(page[0].id, 4);
  EXPECT_EQ(page[3].sentence, "7");
  EXPECT_EQ(json::parse(page[0].evidence).value()["slowdown"], 1.5);
  const auto latest = store.events(std::nullopt, 2);
  ASSERT_EQ(latest.size(), 2U);
  EXPECT_EQ(latest[0].sentence, "9");
  EXPECT_EQ(latest[1].sentence, "10");
  EXPECT_EQ(store.last_event(), 10);
}

TEST(Store, DropsTheOldestJournalLinesBeyondItsBound) {
  const TempDir dir;
  RunningStore store(dir.path(), 1000);
  for (int i = 0; i < 5000; ++i) {
    store->write({0, {event("line")}});
  }
  ASSERT_TRUE(store.write({event("last")}));
  const auto kept =
      store.ask<std::vector<StoredEvent>>([&](auto reply) { store->events(0, 10'000, reply); });
  EXPECT_LE(kept.value().size(), 2000U + 1U);
  EXPECT_GE(kept.value().size(), 1000U);
  EXPECT_EQ(kept.value().back().id, 5001);
}

TEST(Store, AddsToADecisionWhatItLedTo) {
  const TempDir dir;
  const std::string job = tiny_job().name;
  {
    RunningStore store(dir.path());
    ASSERT_TRUE(store.write({DecisionRow{job,
                                         1,
                                         Epoch(2),
                                         "micro_replan",
                                         "because",
                                         {{"gain_s", 3.0}, {"verify", std::string("pending")}},
                                         8}}));
  }
  RunningStore store(dir.path());  // it may be another run of the daemon
  ASSERT_TRUE(store.write({DecisionAmendment{
      job, 1, {{"verify", std::string("kept")}, {"observed_after_s", 1.25}}, 9}}));
  ASSERT_TRUE(store.write({DecisionAmendment{job, 2, {{"verify", std::string("kept")}}, 9}}));
  const auto rows =
      store.ask<std::vector<StoredDecision>>([&](auto reply) { store->decisions(job, 10, reply); });
  ASSERT_EQ(rows.value().size(), 1U);
  EXPECT_EQ(json::parse(rows.value()[0].evidence).value(),
            (json::Value{{"gain_s", 3.0}, {"verify", "kept"}, {"observed_after_s", 1.25}}));
  EXPECT_EQ(rows.value()[0].sentence, "because");
}

TEST(Store, NeverChangesThePlanOfAnEpoch) {
  const TempDir dir;
  RunningStore store(dir.path());
  ASSERT_TRUE(store.write({plan(1, PlanStatus::kProposed)}));
  PlanRow other = plan(1, PlanStatus::kActive);
  auto changed = std::make_shared<solver::Plan>(*other.plan);
  changed->predicted.step_time_s *= 2;
  other.plan = changed;
  other.trigger = "somebody else";
  ASSERT_TRUE(store.write({other}));
  const auto rows =
      store.ask<std::vector<StoredPlan>>([&](auto reply) { store->plans(tiny_job().name, reply); });
  ASSERT_EQ(rows.value().size(), 1U);
  EXPECT_EQ(rows.value()[0].status, "active");
  EXPECT_EQ(rows.value()[0].trigger, "offline");
  const auto body = store.ask<std::string>(
      [&](auto reply) { store->plan_body(tiny_job().name, Epoch(1), reply); });
  EXPECT_EQ(json::parse(body.value()).value(), solver::plan_to_json(*tiny_plan(1), tiny_job()));
  const auto missing = store.ask<std::string>(
      [&](auto reply) { store->plan_body(tiny_job().name, Epoch(9), reply); });
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST(Store, IsClaimedByOneDaemonAtATime) {
  const TempDir dir;
  {
    RunningStore first(dir.path());
    const auto second = Store::open({dir.path()}, tiny_jobs());
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kConflict);
    EXPECT_NE(second.error().message.find(std::to_string(getpid())), std::string::npos);
  }
  EXPECT_TRUE(Store::open({dir.path()}, tiny_jobs()));
}

TEST(Store, ItsJournalIsReadInUseAndAtRestWithoutChangingAnything) {
  const auto sentences = [](const std::string& path) {
    std::vector<std::string> out;
    const auto ok = read_journal(path, [&](const StoredEvent& line, double done) {
      EXPECT_EQ(line.evidence, "{\"slowdown\":1.5}");
      EXPECT_LT(done, 1);
      out.push_back(line.sentence);
    });
    EXPECT_TRUE(ok) << ok.error().message;
    return out;
  };
  const TempDir dir;
  const std::filesystem::path odd = dir / "50 %?mode=rw";
  std::filesystem::create_directory(odd);
  const std::string path = odd / "tapas.db";
  {
    RunningStore store(odd.string());
    ASSERT_TRUE(store.write({event("one"), event("two")}));
    EXPECT_EQ(sentences(path), (std::vector<std::string>{"one", "two"}));
    ASSERT_TRUE(store.write({event("three")}));
    EXPECT_EQ(sentences(path).size(), 3U);
    store->stop();
  }
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(odd),
                         std::filesystem::directory_iterator());
  };
  const auto before = files();
  EXPECT_EQ(sentences(path).size(), 3U);
  EXPECT_EQ(files(), before);

  const auto ignore = [](const StoredEvent&, double) {};
  EXPECT_FALSE(read_journal(dir / "none.db", ignore));
  EXPECT_FALSE(std::filesystem::exists(dir / "none.db"));
  write_file(dir / "noise.db", std::string(8192, 'x'));
  const auto noise = read_journal(dir / "noise.db", ignore);
  ASSERT_FALSE(noise);
  EXPECT_NE(noise.error().message.find("noise.db"), std::string::npos) << noise.error().message;
}

TEST(Store, RefusesDamageAForeignDatabaseAndANewerSchemaUntouched) {
  const auto refusal = [](const std::string& path, const std::string& word) {
    const std::string before = (std::ostringstream() << std::ifstream(path).rdbuf()).str();
    const auto store =
        Store::open({std::filesystem::path(path).parent_path().string()}, tiny_jobs());
    ASSERT_FALSE(store);
    EXPECT_NE(store.error().message.find(word), std::string::npos) << store.error().message;
    EXPECT_EQ(before, (std::ostringstream() << std::ifstream(path).rdbuf()).str());
  };
  const auto execute = [](const std::string& path, const char* sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(database);
  };
  const TempDir noise;
  write_file(noise / "tapas.db", std::string(8192, 'x'));
  refusal(noise / "tapas.db", "move it aside");

  const TempDir foreign;
  execute(foreign / "tapas.db", "CREATE TABLE mine (x)");
  refusal(foreign / "tapas.db", "not one of TAPAS");

  const TempDir newer;
  ASSERT_TRUE(Store::open({newer.path()}, tiny_jobs()));
  execute(newer / "tapas.db", "PRAGMA user_version = 5");
  refusal(newer / "tapas.db", "newer");

  const TempDir damaged;
  ASSERT_TRUE(Store::open({damaged.path()}, tiny_jobs()));
  {
    // The second page is the root of the first table.
    std::fstream file(damaged / "tapas.db", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(4096, '\xA5');
  }
  refusal(damaged / "tapas.db", "move it aside");
}

}  // namespace
}  // namespace tapas::daemon
