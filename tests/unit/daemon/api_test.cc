#include "daemon/control/api.h"

#include "daemon/control/format.h"
#include "tests/unit/daemon/fixtures.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace tapas::daemon {
namespace {

/// The API on a real store; the core thread is the test's own, run by hand.
class ApiHarness {
 public:
  ApiHarness()
      : store_(Store::open({dir_.path()}, tiny_jobs()).value()),
        api_({.status =
                  [this] {
                    StatusView view;
                    view.term = Term(3);
                    view.jobs.push_back({tiny_job().name,
                                         255,
                                         plan_,
                                         "watching",
                                         9,
                                         1.5,
                                         1.25,
                                         1,
                                         1,
                                         "nobody is slow",
                                         {"node a takes 3.00 times as long to send"},
                                         8,
                                         8});
                    return view;
                  },
              .wire =
                  [] {
                    WireView wire;
                    wire.received = {{"step", 7}};
                    wire.over_limit = {{"a", 5}};
                    wire.answers = 3;
                    wire.answer_p99_s = 0.002;
                    return wire;
                  },
              .rejected =
                  [] {
                    return std::map<std::string, std::uint64_t>{{"unknown_key", 2}};
                  },
              .plan = [this](const std::string&) { return plan_; },
              .submit = [this](OperatorCommand command) { commands.push_back(std::move(command)); },
              .store = store_.get(),
              .post =
                  [this](std::function<void()> work) {
                    const std::lock_guard lock(mutex_);
                    work_.push_back(std::move(work));
                    ready_.notify_one();
                  }},
             tiny_jobs(), "") {
    store_->start([](const StoreDone&) {}, [this](std::int64_t last) { post_last(last); });
  }

  std::optional<HttpResponse> send(const std::string& method, const std::string& target,
                                   const std::string& body = "", uid_t uid = geteuid()) {
    answer_.reset();
    api_.handle({method, target, body, "tapas"}, OperatorPeer{uid, 99999},
                [this](HttpResponse response) { answer_ = std::move(response); });
    return answer_;
  }
  HttpResponse get(const std::string& target) {
    send("GET", target);
    return wait();
  }
  /// Runs posted work until the request is answered.
  HttpResponse wait() {
    for (int i = 0; !answer_ && i < 1000; ++i) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        if (!ready_.wait_for(lock, std::chrono::seconds(20), [this] { return !work_.empty(); })) {
          break;
        }
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
    return answer_.value_or(HttpResponse{0, ""});
  }
  json::Value body(const HttpResponse& response) { return json::parse(response.body).value(); }
  void journal(const std::string& sentence) {
    store_->write(
        {0, {EventRow{"", "test", "", sentence, {{"step", std::int64_t{4}}}, 1'500'000'000}}});
  }

  Api& api() { return api_; }
  bool answered() const { return answer_.has_value(); }
  std::shared_ptr<const solver::Plan> plan_;
  std::vector<OperatorCommand> commands;

 private:
  void post_last(std::int64_t last) {
    const std::lock_guard lock(mutex_);
    work_.push_back([this, last] { api_.events_stored(last); });
    ready_.notify_one();
  }

  TempDir dir_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> work_;
  std::optional<HttpResponse> answer_;
  std::unique_ptr<Store> store_;
  Api api_;
};

TEST(OperatorApi, ShowsTheStatus) {
  ApiHarness harness;
  const HttpResponse response = harness.get("/v1/status");
  EXPECT_EQ(response.status, 200U);
  const json::Value body = harness.body(response);
  EXPECT_EQ(body["schema"], "tapas.status/1");
  EXPECT_EQ(body["term"], 3);
  EXPECT_EQ(body["received"]["step"], 7);
  EXPECT_EQ(body["answers"]["count"], 3);
  EXPECT_EQ(body["answers"]["p99_s"], 0.002);
  EXPECT_EQ(body["rejected"]["unknown_key"], 2);
  EXPECT_EQ(body["jobs"][0]["session"], "00000000000000ff");
  EXPECT_EQ(body["jobs"][0]["epoch"], 0);
  EXPECT_EQ(body["jobs"][0]["slow_links"],
            json::Value::array({"node a takes 3.00 times as long to send"}));
}

TEST(OperatorApi, AnswersUnknownThingsWithTheirName) {
  ApiHarness harness;
  for (const char* target :
       {"/v1/nothing", "/status", "/v1/jobs/nobody/plan", "/v1/jobs/gpt-tiny/x",
        "/v1/jobs/gpt-tiny/plan", "/v1/jobs/gpt-tiny/plan?epoch=4"}) {
    const HttpResponse response = harness.get(target);
    EXPECT_EQ(response.status, 404U) << target;
    EXPECT_EQ(harness.body(response)["error"]["code"], "not_found") << target;
  }
  for (const char* target :
       {"/v1/events?after=x", "/v1/events?wait_s=31&after=0", "/v1/events?limit=99999",
        "/v1/events?since=3", "/v1/events?after=1&after=2", "/v1/jobs/gpt-tiny/plan?epoch=-1"}) {
    EXPECT_EQ(harness.get(target).status, 400U) << target;
  }
  harness.send("DELETE", "/v1/status");
  EXPECT_EQ(harness.wait().status, 400U);
}

TEST(OperatorApi, ShowsTheActivePlan) {
  ApiHarness harness;
  harness.plan_ = tiny_plan(2);
  const json::Value body = harness.body(harness.get("/v1/jobs/gpt-tiny/plan"));
  EXPECT_EQ(body, solver::plan_to_json(*harness.plan_, tiny_job()));
}

TEST(OperatorApi, RefusesChangesByStrangers) {
  ApiHarness harness;
  harness.send("POST", "/v1/nodes/node-1/drain", R"({"reason": "fan"})", 54321);
  EXPECT_EQ(harness.wait().status, 403U);
  EXPECT_TRUE(harness.commands.empty());
  harness.send("GET", "/v1/status", "", 54321);
  EXPECT_EQ(harness.wait().status, 200U);
}

TEST(OperatorApi, PassesAChangeOnAndReturnsItsOutcome) {
  ApiHarness harness;
  EXPECT_FALSE(harness.send("POST", "/v1/nodes/node-1/drain", R"({"reason": "fan"})"));
  ASSERT_EQ(harness.commands.size(), 1U);
  const auto& drain = std::get<Drain>(harness.commands[0].verb);
  EXPECT_EQ(drain.node, "node-1");
  EXPECT_EQ(drain.reason, "fan");
  EXPECT_EQ(harness.commands[0].who.rfind(fmt::format("uid {}", geteuid()), 0), 0U);
  harness.api().complete({harness.commands[0].request, std::string("node-1 is drained"), nullptr});
  EXPECT_EQ(harness.wait().status, 200U);
  EXPECT_EQ(harness.body(harness.wait())["message"], "node-1 is drained");
}

TEST(OperatorApi, PinsAndUnpinsANode) {
  ApiHarness harness;
  harness.send("POST", "/v1/nodes/node-1/pin", R"({"reason": "profiling"})");
  harness.send("POST", "/v1/nodes/node-1/unpin", "{}");
  ASSERT_EQ(harness.commands.size(), 2U);
  EXPECT_EQ(std::get<Pin>(harness.commands[0].verb).node, "node-1");
  EXPECT_EQ(std::get<Pin>(harness.commands[0].verb).reason, "profiling");
  EXPECT_EQ(std::get<Unpin>(harness.commands[1].verb).node, "node-1");
}

TEST(OperatorApi, ShowsAProposalWithItsPlan) {
  ApiHarness harness;
  harness.send("POST", "/v1/jobs/gpt-tiny/replan", R"({"dry_run": true})");
  ASSERT_EQ(harness.commands.size(), 1U);
  EXPECT_TRUE(std::get<Replan>(harness.commands[0].verb).dry_run);
  auto proposal = std::make_shared<solver::Proposal>();
  proposal->improves = true;
  proposal->plan = *tiny_plan(5);
  proposal->stages_touched = {0, 1};
  proposal->tried = {{"pair", 1.5, 20}, {"nodes", 1.25, 300}};
  proposal->stopped = "time is up";
  harness.api().complete({harness.commands[0].request, std::string("would help"), proposal});
  const json::Value body = harness.body(harness.wait());
  EXPECT_EQ(body["schema"], "tapas.proposal/1");
  EXPECT_EQ(body["plan"], solver::plan_to_json(proposal->plan, tiny_job()));
  EXPECT_EQ(body["message"], "would help");
  ASSERT_EQ(body["tried"].size(), 2U);
  EXPECT_EQ(body["tried"][1]["what"], "nodes");
  EXPECT_EQ(body["tried"][1]["step_s"], 1.25);
  EXPECT_EQ(body["tried"][1]["evaluations"], 300);
  EXPECT_EQ(body["stopped"], "time is up");
}

TEST(OperatorApi, RefusesBadBodiesWithoutACommand) {
  ApiHarness harness;
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"/v1/nodes/node-1/drain", "{}"},
      {"/v1/nodes/node-1/drain", R"({"reason": ""})"},
      {"/v1/nodes/node-1/drain", R"({"reason": "x", "soft": 1})"},
      {"/v1/nodes/node 1/drain", R"({"reason": "x"})"},
      {"/v1/nodes/node-1/pin", "{}"},
      {"/v1/nodes/node-1/unpin", R"({"reason": "x"})"},
      {"/v1/auto", R"({"reason": "x"})"},
      {"/v1/auto", R"({"on": 1, "reason": "x"})"},
      {"/v1/auto", "{"},
      {"/v1/jobs/gpt-tiny/replan?force=1", "{}"},
  };
  for (const auto& [target, body] : bad) {
    harness.send("POST", target, body);
    EXPECT_EQ(harness.wait().status, 400U) << target << " " << body;
  }
  harness.send("POST", "/v1/jobs/nobody/replan", "{}");
  EXPECT_EQ(harness.wait().status, 404U);
  EXPECT_TRUE(harness.commands.empty());
}

TEST(OperatorApi, TellsWhoWaitedTooLongThatTheOutcomeIsUnknown) {
  ApiHarness harness;
  harness.send("POST", "/v1/auto", R"({"on": true, "reason": "test"})");
  harness.api().tick(Api::Clock::now());
  EXPECT_FALSE(harness.answered());
  harness.api().tick(Api::Clock::now() + std::chrono::minutes(2));
  EXPECT_EQ(harness.wait().status, 504U);
  harness.api().complete({harness.commands[0].request, std::string("late"), nullptr});
}

TEST(OperatorApi, HoldsARequestForEventsUntilOneComes) {
  ApiHarness harness;
  harness.journal("one");
  // Until the API has heard of the line it may hold back a request that the line would answer.
  json::Value body = harness.body(harness.get("/v1/events?after=0&wait_s=20"));
  ASSERT_EQ(body["events"].size(), 1U);
  EXPECT_EQ(body["events"][0]["sentence"], "one");
  EXPECT_EQ(body["events"][0]["time"], "1970-01-01T00:00:01.500Z");
  EXPECT_EQ(body["events"][0]["evidence"]["step"], 4);
  EXPECT_EQ(body["last"], 1);

  EXPECT_FALSE(harness.send("GET", "/v1/events?after=1&wait_s=20"));
  harness.journal("two");
  body = harness.body(harness.wait());
  ASSERT_EQ(body["events"].size(), 1U);
  EXPECT_EQ(body["events"][0]["sentence"], "two");

  EXPECT_FALSE(harness.send("GET", "/v1/events?after=2&wait_s=20"));
  harness.api().tick(Api::Clock::now() + std::chrono::seconds(21));
  body = harness.body(harness.wait());
  EXPECT_TRUE(body["events"].empty());
  EXPECT_EQ(body["last"], 2);
}

}  // namespace
}  // namespace tapas::daemon
