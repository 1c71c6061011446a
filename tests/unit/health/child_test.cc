#include "agent/health/child.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

namespace tapas::agent::health {
namespace {

using namespace std::chrono_literals;

constexpr auto kLong = 60s;   // Not to hang when the child does.
constexpr auto kEnough = 3s;  // For a few steps before it hangs.
constexpr auto kShort = 50ms;

void expect_no_child_left() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Child, ReturnsWhatTheWorkReturned) {
  const std::string bytes("a\0b\xff\n", 5);
  const auto result = in_child([&](const Step&) -> Result<std::string> { return bytes; }, kLong);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(*result, bytes);
  expect_no_child_left();
}

TEST(Child, ReturnsMoreThanAPipeHolds) {
  const auto result = in_child(
      [](const Step& step) -> Result<std::string> {
        for (int i = 0; i < 5000; ++i) {
          step("a step of some length, many times");
        }
        return std::string(3000000, 'x');
      },
      kLong);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->size(), 3000000U);
}

TEST(Child, ReturnsTheErrorOfTheWork) {
  const auto result = in_child(
      [](const Step&) -> Result<std::string> {
        return fail(ErrorCode::kNotFound, "there is no {{}}");
      },
      kLong);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(result.error().message, "there is no {}");
  expect_no_child_left();
}

TEST(Child, IsKilledWhenItHangsAndItsLastStepIsTold) {
  const auto result = in_child(
      [](const Step& step) -> Result<std::string> {
        std::signal(SIGTERM, SIG_IGN);
        step("the first");
        step("the second");
        for (;;) {
          ::pause();
        }
      },
      kEnough);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(result.error().message, "did not answer within 3 s, at the second");
  expect_no_child_left();
}

/// A process that a device holds in the kernel outlives SIGKILL. One that is traced by somebody who
/// does not look is the same to its parent: killed, and not to be had.
TEST(Child, IsLeftBehindWhenTheKernelDoesNotGiveItBack) {
  int release[2] = {};
  ASSERT_EQ(::pipe(release), 0);
  const auto result = in_child(
      [&](const Step& step) -> Result<std::string> {
        int traced[2] = {};
        const pid_t child = ::getpid();
        const pid_t tracer = ::pipe(traced) == 0 ? ::fork() : -1;
        if (tracer == 0) {
          ::close(traced[0]);
          ::close(release[1]);
          char byte = ::ptrace(PTRACE_SEIZE, child, nullptr, nullptr) == 0 ? 'y' : 'n';
          const bool told = ::write(traced[1], &byte, 1) == 1;
          ::_exit(told && ::read(release[0], &byte, 1) == 0 ? 0 : 1);
        }
        ::prctl(PR_SET_PTRACER, tracer);
        char byte = 0;
        if (::read(traced[0], &byte, 1) != 1 || byte != 'y') {
          return "no process may be traced here";
        }
        step("a call");
        for (;;) {
          ::pause();
        }
      },
      kEnough);
  ::close(release[0]);
  ::close(release[1]);
  if (result) {
    GTEST_SKIP() << *result;
  }
  const std::string& text = result.error().message;
  EXPECT_EQ(result.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(text.find("did not answer within 3 s, at a call; process "), 0U) << text;
  EXPECT_NE(text.find(" cannot be killed, the kernel waits for a device"), std::string::npos);
  int status = 0;
  EXPECT_GT(::waitpid(-1, &status, 0), 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(Child, MayHangBeforeItsFirstStep) {
  const auto result = in_child(
      [](const Step&) -> Result<std::string> {
        for (;;) {
          ::pause();
        }
      },
      kShort);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "did not answer within 0.05 s, at its start");
}

TEST(Child, IsGivenUpWhenItStepsForEver) {
  const auto result = in_child(
      [](const Step& step) -> Result<std::string> {
        for (;;) {
          step("again");
        }
      },
      kShort);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kTimeout);
  expect_no_child_left();
}

TEST(Child, MayCrash) {
  const auto result = in_child(
      [](const Step& step) -> Result<std::string> {
        step("a call");
        std::raise(SIGSEGV);
        return "not reached";
      },
      kLong);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(result.error().message, "crashed (Segmentation fault) at a call");
  expect_no_child_left();
}

TEST(Child, MayEndInsideOfTheWork) {
  const auto result = in_child([](const Step&) -> Result<std::string> { ::_exit(3); }, kLong);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "ended with status 3 at its start");
  expect_no_child_left();
}

TEST(Child, IsBoundedInWhatItReturns) {
  const auto result = in_child(
      [](const Step&) -> Result<std::string> { return std::string(kMaxAnswerBytes + 1, 'x'); },
      kLong);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kIo);
  EXPECT_EQ(result.error().message, "has more than 33554432 bytes to tell");
}

/// A driver's library may start processes that outlive the child and hold its end of the pipe.
TEST(Child, IsNotWaitedForThroughItsOwnChildren) {
  int alive[2] = {};
  ASSERT_EQ(::pipe(alive), 0);
  const auto result = in_child(
      [&](const Step&) -> Result<std::string> {
        const pid_t grandchild = ::fork();
        if (grandchild == 0) {
          ::close(alive[1]);
          char byte = 0;
          const bool woken = ::read(alive[0], &byte, 1) == 0;
          ::_exit(woken ? 0 : 1);
        }
        return std::to_string(grandchild);
      },
      kLong);
  ::close(alive[0]);
  ::close(alive[1]);  // The grandchild ends with this.
  ASSERT_TRUE(result) << result.error().message;
  expect_no_child_left();
}

TEST(Child, PrintsNothingIntoTheReport) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const int own_output = ::dup(STDOUT_FILENO);
  std::fflush(stdout);
  ASSERT_GE(::dup2(ends[1], STDOUT_FILENO), 0);
  const auto result = in_child(
      [](const Step&) -> Result<std::string> {
        std::printf("a library's chatter\n");
        std::fflush(stdout);
        return "the result";
      },
      kLong);
  ::dup2(own_output, STDOUT_FILENO);
  ::close(own_output);
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
  EXPECT_TRUE(result);
}

}  // namespace
}  // namespace tapas::agent::health
