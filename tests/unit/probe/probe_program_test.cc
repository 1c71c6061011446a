// `tapas-agent probe` as operators and scripts run it, both ends of it.
#include "base/json/json.h"
#include "tests/system/process.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tapas::test {
namespace {

const std::vector<std::string> kSmall = {"--rate", "0.1", "--seconds", "0.2"};

struct Outcome {
  int exit_code = -1;
  std::string output;
};

/// What it prints on both streams.
Outcome run(const TempDir& dir, std::vector<std::string> arguments,
            const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  arguments.insert(arguments.begin(), {program("tapas-agent"), "probe"});
  static int number = 0;
  Process process(std::move(arguments), dir / ("out-" + std::to_string(number++)), environment);
  Outcome outcome;
  outcome.exit_code = process.wait_exit().value_or(-1);
  outcome.output = process.output();
  return outcome;
}

/// A listener of the real program, and what it printed for the other node.
class ProbeProgram : public ::testing::Test {
 protected:
  void listen(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {program("tapas-agent"), "probe", "--listen", "127.0.0.1:0",
                                         "--once", "--for", "60"});
    listener_.emplace(std::move(arguments), dir_ / "listener");
    ASSERT_TRUE(eventually([&] {
      return listener_->output().find("--token ") != std::string::npos &&
             listener_->output().back() == '\n';
    }));
    const std::string said = listener_->output();
    const std::size_t port = said.find("THIS_NODE:") + 10;
    address_ = "127.0.0.1:" + said.substr(port, said.find(' ', port) - port);
    const std::size_t token = said.find("--token ") + 8;
    token_ = said.substr(token, said.find('\n', token) - token);
  }

  TempDir dir_;
  std::optional<Process> listener_;
  std::string address_;
  std::string token_;
};

TEST_F(ProbeProgram, MeasuresBothDirectionsAndEnds) {
  listen(kSmall);
  const Outcome outcome =
      run(dir_, {address_, "-o", "json", "--rate", "1"}, {{"TAPAS_PROBE_TOKEN", token_}});
  const auto said = json::parse(outcome.output);
  ASSERT_TRUE(said.has_value()) << outcome.output;
  EXPECT_EQ((*said)["schema"], "tapas.probe/1");
  EXPECT_EQ((*said)["tried_bytes_per_s"], 0.1e9 / 8);
  EXPECT_TRUE((*said)["nominal_bytes_per_s"].is_null());
  bool healthy = true;
  for (const json::Value& direction : (*said)["directions"]) {
    EXPECT_GT(direction["bytes_per_s"], 0) << outcome.output;
    healthy = healthy && direction["verdict"] == "healthy";
  }
  EXPECT_EQ(outcome.exit_code, healthy ? 0 : 1) << outcome.output;
  EXPECT_EQ(listener_->wait_exit(), 0);
}

TEST_F(ProbeProgram, ExitsWithThreeWhenItIsRefused) {
  listen(kSmall);
  const Outcome stranger = run(dir_, {address_, "--token", "guess", "--rate", "1"});
  EXPECT_EQ(stranger.exit_code, 3);
  EXPECT_NE(stranger.output.find(address_ + ": refused: wrong token"), std::string::npos)
      << stranger.output;
  EXPECT_TRUE(listener_->running());

  const Outcome share = run(dir_, {address_, "--token", token_});
  EXPECT_EQ(share.exit_code, 3);
  EXPECT_NE(share.output.find("give --rate on both ends"), std::string::npos) << share.output;
}

TEST_F(ProbeProgram, ExitsWithThreeWithoutAnAnswer) {
  const Outcome nobody = run(dir_, {"127.0.0.1:" + std::to_string(free_port())});
  EXPECT_EQ(nobody.exit_code, 3);
  EXPECT_NE(nobody.output.find("probe --listen run there"), std::string::npos) << nobody.output;

  listen(kSmall);
  listener_->signal(SIGSTOP);
  const Outcome hung = run(dir_, {address_, "--token", token_, "--timeout", "0.3"});
  EXPECT_EQ(hung.exit_code, 3);
  EXPECT_NE(hung.output.find("no answer in time"), std::string::npos) << hung.output;
  EXPECT_NE(hung.output.find("is a finding"), std::string::npos) << hung.output;
}

TEST_F(ProbeProgram, ListensOnlyForItsTime) {
  const Outcome alone = run(dir_, {"--listen", "127.0.0.1:0", "--for", "0.1"});
  EXPECT_EQ(alone.exit_code, 3);
  EXPECT_NE(alone.output.find("nobody was served"), std::string::npos) << alone.output;
}

TEST_F(ProbeProgram, ExitsWithTwoOnAWrongCall) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"nowhere"},
      {"127.0.0.1:1", "--listen"},
      {"127.0.0.1:1", "--once"},
      {"127.0.0.1:1", "--rate", "1", "--full"},
      {"127.0.0.1:1", "--share", "1.5"},
      {"127.0.0.1:1", "--seconds", "61"},
      {"127.0.0.1:1", "--bytes", "1kb"},
      {"127.0.0.1:1", "-o", "yaml"},
      {"--listen", "here"},
      {"--listen", "127.0.0.1:0", "--allow", "10.0.0.0/33"},
  };
  for (const auto& arguments : wrong) {
    const Outcome outcome = run(dir_, arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_FALSE(outcome.output.empty());
  }
  EXPECT_EQ(run(dir_, {"--help"}).exit_code, 0);
}

}  // namespace
}  // namespace tapas::test
