#include "daemon/core/team.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace tapas::daemon {
namespace {

constexpr std::uint32_t kDevices = 8;
constexpr double kSigma = 0.05;

/// A node of eight devices whose levels are learnt.
class Node {
 public:
  explicit Node(std::uint64_t seed) : random_(seed), team_(ranks()) { steps(400, 0, 0); }

  /// `count` steps with the first `slow` devices higher by `height`; true when the team was slow.
  bool steps(int count, std::uint32_t slow, double height) {
    bool found = false;
    for (int i = 0; i < count && !found; ++i) {
      ++step_;
      std::vector<double> latest;
      for (std::uint32_t rank = 0; rank < kDevices; ++rank) {
        std::normal_distribution<double> noise(rank < slow ? height : 0, kSigma);
        latest.push_back(noise(random_));
        levels_[rank].observe(latest.back(), sensitivity_, {step_, 0});
      }
      static_cast<void>(team_.observe(latest, levels_, sensitivity_, 0, {step_, 0}));
      found = team_.slow(levels_, sensitivity_);
      taken_ = i + 1;
    }
    return found;
  }
  [[nodiscard]] int taken() const { return taken_; }
  [[nodiscard]] bool any_alarmed() const {
    for (const Level& level : levels_) {
      if (level.alarmed()) {
        return true;
      }
    }
    return false;
  }
  void blame(RankId rank) { levels_[rank.value()].blame(0.1); }
  [[nodiscard]] const Team& team() const { return team_; }

 private:
  static std::vector<RankId> ranks() {
    std::vector<RankId> out;
    for (std::uint32_t rank = 0; rank < kDevices; ++rank) {
      out.emplace_back(rank);
    }
    return out;
  }
  std::mt19937_64 random_;
  static Sensitivity sensitivity() {
    Sensitivity out = Sensitivity::of(kSigma, 3, 0.005);
    out.least = 0.04;
    return out;
  }
  Sensitivity sensitivity_ = sensitivity();
  std::vector<Level> levels_{kDevices, Level(8, 0.12, 0.03)};
  Team team_;
  std::uint64_t step_ = 0;
  int taken_ = 0;
};

TEST(Team, ShowsASmallRiseLongBeforeItsDevicesDo) {
  int alone = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Node node(seed);
    ASSERT_TRUE(node.steps(200, kDevices, 0.05)) << "seed " << seed;
    EXPECT_LE(node.taken(), 60) << "seed " << seed;
    alone += node.any_alarmed() ? 1 : 0;
  }
  EXPECT_LE(alone, 3);
}

TEST(Team, IsNotSlowForOneDeviceNorForFewOfThem) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    for (const double height : {0.05, 0.2, 0.7}) {
      EXPECT_FALSE(Node(seed).steps(300, 1, height)) << "seed " << seed << " height " << height;
      EXPECT_FALSE(Node(seed).steps(300, 3, height)) << "seed " << seed << " height " << height;
    }
  }
}

TEST(Team, StaysQuietWhenNothingIsSlow) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_FALSE(Node(seed).steps(5000, 0, 0)) << "seed " << seed;
  }
}

TEST(Team, OfWhomAllAreBlamedStartsAnew) {
  Node node(1);
  for (std::uint32_t rank = 0; rank < kDevices; ++rank) {
    node.blame(RankId(rank));
  }
  EXPECT_FALSE(node.steps(50, kDevices, 0.2));
  EXPECT_TRUE(node.team().level().learning());
}

}  // namespace
}  // namespace tapas::daemon
