// `tapas-agent ras` as an operator or a script runs it.
#include "base/json/json.h"
#include "fake_ras.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace tapas::agent::ras {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string output;
};

/// `environment` as in "NAME=value"; what it prints on both streams.
Outcome run(const std::string& arguments, const std::string& environment = "") {
  const std::string command = "env -u NCCL_RAS_ADDR " + environment +
                              " '" TAPAS_PROGRAM_DIR "/tapas-agent' ras " + arguments + " 2>&1";
  Outcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  char bytes[4096];
  while (const std::size_t got = std::fread(bytes, 1, sizeof(bytes), pipe)) {
    outcome.output.append(bytes, got);
  }
  const int status = ::pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(RasProgram, ExitsWithZeroWhenNothingIsWrong) {
  const FakeRas server([](Visitor& visitor, int) {
    if (greet(visitor, false)) {
      visitor.say(text_report());
    }
  });
  const Outcome outcome = run(server.address());
  EXPECT_EQ(outcome.output,
            "NCCL 2.25.1: 1 node, 1 process, 1 GPU, 1 communicator\n"
            "Nothing wrong: every rank answers, none lags.\n");
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST(RasProgram, TakesTheAddressThatTheJobUses) {
  const FakeRas server([](Visitor& visitor, int) {
    if (greet(visitor, false)) {
      visitor.say(
          text_report("DEAD\n  1 job process is considered dead\n"
                      "  Process 5 on node 10.1.0.1 managing GPU 3\n\n"));
    }
  });
  const Outcome outcome = run("", "NCCL_RAS_ADDR=" + server.address());
  EXPECT_EQ(outcome.output,
            "NCCL 2.25.1: 1 node, 1 process, 1 GPU, 1 communicator\n"
            "Process 5 on 10.1.0.1 (GPU 3) is dead: NCCL has given up reaching it.\n");
  EXPECT_EQ(outcome.exit_code, 1);
}

TEST(RasProgram, LooksTwiceBeforeItCallsARankBehind) {
  const FakeRas moving([](Visitor& visitor, int number) {
    if (greet(visitor, true)) {
      visitor.say(json_report(10 + number, 1));
    }
  });
  EXPECT_EQ(run(moving.address() + " --wait 0.01").exit_code, 0);
  EXPECT_EQ(run(moving.address() + " --wait 0").exit_code, 1);

  const FakeRas stuck([](Visitor& visitor, int) {
    if (greet(visitor, true)) {
      visitor.say(json_report(10, 1));
    }
  });
  const Outcome outcome = run(stuck.address() + " --wait 0.01 -o json");
  EXPECT_EQ(outcome.exit_code, 1);
  const auto said = json::parse(outcome.output);
  ASSERT_TRUE(said.has_value()) << said.error().message;
  EXPECT_EQ((*said)["schema"], "tapas.ras/1");
  ASSERT_EQ((*said)["findings"].size(), 1U);
  EXPECT_EQ((*said)["findings"][0]["kind"], "lagging");
  EXPECT_EQ((*said)["findings"][0]["ranks"][0]["rank"], 1);
}

TEST(RasProgram, ExitsWithThreeWithoutAnAnswer) {
  const FakeRas silent([](Visitor& visitor, int) { visitor.hang(); });
  const Outcome hung = run(silent.address() + " --timeout 0.2");
  EXPECT_EQ(hung.exit_code, 3);
  EXPECT_NE(hung.output.find("no answer in time"), std::string::npos) << hung.output;

  std::string gone;
  {
    const FakeRas closed([](Visitor&, int) {});
    gone = closed.address();
  }
  const Outcome refused = run(gone);
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.output.find("NCCL_RAS_ADDR"), std::string::npos) << refused.output;
}

TEST(RasProgram, ExitsWithTwoOnAWrongCall) {
  EXPECT_EQ(run("somewhere").exit_code, 2);
  EXPECT_EQ(run("localhost:1 --wait -1").exit_code, 2);
  EXPECT_EQ(run("-o yaml").exit_code, 2);
  const Outcome help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.output.find("Exit codes: 0 nothing wrong"), std::string::npos);
}

}  // namespace
}  // namespace tapas::agent::ras
