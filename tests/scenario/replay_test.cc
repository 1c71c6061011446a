// What a simulated daemon recorded is replayed to the same decisions, whatever went wrong
// meanwhile.
#include "daemon/recording/replay.h"

#include "tests/scenario/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <sstream>
#include <variant>

namespace tapas::daemon::sim {
namespace {

using recording::Replayed;
using recording::Step;

/// What the core did during replays, so that one in which nothing happens does not pass.
struct Tally {
  std::size_t lives = 0;
  std::size_t bytes = 0;
  std::map<std::string, std::size_t> actions;
  std::map<std::size_t, std::size_t> events;
};

void count(const Step& step, const std::vector<Action>& actions, Tally& tally) {
  ++tally.events[step.event.index()];
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<SendToAgent>(&action)) {
      tally.actions["switch"] += std::holds_alternative<SwitchMessage>(send->message) ? 1 : 0;
    } else if (const auto* write = std::get_if<StoreWrite>(&action)) {
      for (const StoreRow& row : write->rows) {
        tally.actions["decision"] += std::holds_alternative<DecisionRow>(row) ? 1 : 0;
        const auto* event = std::get_if<EventRow>(&row);
        tally.actions["verdict"] += event != nullptr && event->kind == "verdict" ? 1 : 0;
      }
    }
  }
}

void replay_all(const Sim& sim, std::uint64_t seed, Tally& tally) {
  for (const std::string& text : sim.recordings()) {
    std::istringstream in(text);
    const auto replayed =
        recording::replay(in, [&](const Step& step, const std::vector<Action>& actions,
                                  bool /*same*/) { count(step, actions, tally); });
    ASSERT_TRUE(replayed) << "seed " << seed << ": " << replayed.error().message;
    ASSERT_FALSE(replayed->first) << "seed " << seed << " life " << tally.lives << " line "
                                  << replayed->first->line << "\nexpected "
                                  << json::dump(replayed->first->expected) << "\nseen     "
                                  << json::dump(replayed->first->seen);
    EXPECT_FALSE(replayed->cut);
    ++tally.lives;
    tally.bytes += text.size();
  }
}

TEST(Replay, OfASimulatedDaemonDoesTheSameWhateverWentWrong) {
  Tally tally;
  const std::uint64_t last = number_from("TAPAS_SEEDS", 24);
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    replay_all(*play(seed, Mutation::kNone, true), seed, tally);
    if (HasFatalFailure()) {
      return;
    }
  }
  std::printf("%zu lives of the core, %.1f MB: %zu verdicts, %zu decisions, %zu orders\n",
              tally.lives, static_cast<double>(tally.bytes) * 1e-6, tally.actions["verdict"],
              tally.actions["decision"], tally.actions["switch"]);
  EXPECT_GT(tally.lives, 40U);
  EXPECT_GT(tally.actions["verdict"], 20U);
  EXPECT_GT(tally.actions["decision"], 20U);
  EXPECT_GT(tally.actions["switch"], 100U);
}

TEST(Replay, OfAnotherCoreSaysWhereItBeginsToDiffer) {
  const auto sim = play(8, Mutation::kNone, true);
  std::string text = sim->recordings().back();
  // A core that was told another patience does something else, sooner or later.
  const std::string before = "\"min_gain_ratio\":0.02";
  ASSERT_NE(text.find(before), std::string::npos);
  text.replace(text.find(before), before.size(), "\"min_gain_ratio\":0.99");
  std::istringstream in(text);
  std::uint64_t line = 1;
  std::uint64_t first = 0;
  const auto replayed =
      recording::replay(in, [&](const Step&, const std::vector<Action>&, bool same) {
        ++line;
        first = first == 0 && !same ? line : first;
      });
  ASSERT_TRUE(replayed) << replayed.error().message;
  ASSERT_TRUE(replayed->first);
  EXPECT_EQ(replayed->first->line, first);
  EXPECT_GE(replayed->differing, 1U);
  EXPECT_NE(replayed->first->expected, replayed->first->seen);
}

}  // namespace
}  // namespace tapas::daemon::sim
