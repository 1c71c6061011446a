#include "daemon/core/link_watch.h"

#include "tests/unit/solver/jobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace tapas::daemon {
namespace {

using Pair = std::pair<NodeId, NodeId>;

NodeId node(std::uint32_t index) { return NodeId(index); }

/// Both directions between neighbours of rows of `stages` nodes each.
std::vector<Pair> pipelines(std::uint32_t rows, std::uint32_t stages) {
  std::vector<Pair> links;
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t s = 0; s + 1 < stages; ++s) {
      const NodeId a = node(r * stages + s);
      const NodeId b = node(r * stages + s + 1);
      links.emplace_back(a, b);
      links.emplace_back(b, a);
    }
  }
  return links;
}

std::tuple<LinkFault::Part, NodeId, NodeId> key(const LinkFault& fault) {
  return {fault.part, fault.from, fault.to};
}

TEST(LinkParts, ASingleSlowPartIsNamedWhereverItIs) {
  const std::vector<Pair> links = pipelines(2, 5);
  const auto split = [&](const std::function<bool(const Pair&)>& is_slow) {
    std::vector<Pair> slow;
    std::vector<Pair> fine;
    for (const Pair& link : links) {
      (is_slow(link) ? slow : fine).push_back(link);
    }
    return parts_of(slow, fine);
  };
  for (std::uint32_t n = 0; n < 10; ++n) {
    const bool inner = n % 5 != 0 && n % 5 != 4;
    const auto sends = split([&](const Pair& link) { return link.first == node(n); });
    ASSERT_EQ(sends.size(), 1U);
    // The end of a row has one neighbour: its NIC and the way there look the same.
    EXPECT_EQ(sends.front().part, inner ? LinkFault::Part::kSend : LinkFault::Part::kPath);
    EXPECT_EQ(sends.front().from, node(n));
    const auto receives = split([&](const Pair& link) { return link.second == node(n); });
    ASSERT_EQ(receives.size(), 1U);
    EXPECT_EQ(receives.front().part, inner ? LinkFault::Part::kReceive : LinkFault::Part::kPath);
    EXPECT_EQ(receives.front().to, node(n));
  }
  for (const Pair& path : links) {
    const auto parts = split([&](const Pair& link) { return link == path; });
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(key(parts.front()), std::tuple(LinkFault::Part::kPath, path.first, path.second));
  }
}

TEST(LinkParts, ExplainEverySlowLinkAndNoOther) {
  std::mt19937_64 random(5);
  const std::vector<Pair> links = pipelines(3, 4);
  for (int k = 0; k < 2000; ++k) {
    std::vector<Pair> slow;
    std::vector<Pair> fine;
    for (const Pair& link : links) {
      (random() % 4 == 0 ? slow : fine).push_back(link);
    }
    std::set<Pair> explained;
    for (const LinkFault& part : parts_of(slow, fine)) {
      for (const Pair& link : links) {
        if (part.part == LinkFault::Part::kSend      ? link.first == part.from
            : part.part == LinkFault::Part::kReceive ? link.second == part.to
                                                     : link == Pair(part.from, part.to)) {
          explained.insert(link);
        }
      }
    }
    EXPECT_EQ(explained, std::set<Pair>(slow.begin(), slow.end()));
  }
}

/// Links of rows of four nodes, told once a step.
class Rig {
 public:
  explicit Rig(double jitter, std::uint64_t seed = 7) : jitter_(jitter), random_(seed) {}

  void step(const std::function<double(const Pair&)>& slowdown) {
    ++step_;
    for (const Pair& link : links_) {
      watch.observe(link.first, link.second,
                    5e-11 * slowdown(link) * std::exp(jitter_ * normal_(random_)),
                    {step_, static_cast<double>(step_)});
    }
  }
  void healthy(std::uint32_t steps) {
    for (std::uint32_t k = 0; k < steps; ++k) {
      step([](const Pair&) { return 1.0; });
    }
  }
  [[nodiscard]] std::uint64_t now() const { return step_; }

  const solver::Job job = solver::testing::gpt3_175b_on_1024();
  LinkWatch watch{job.cluster};

 private:
  const std::vector<Pair> links_ = pipelines(4, 4);
  const double jitter_;
  std::uint64_t step_ = 0;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

TEST(LinkWatch, NamesTheDirectionOfANicAndItsReturn) {
  for (const double jitter : {0.01, 0.05, 0.15}) {
    Rig rig(jitter);
    rig.healthy(200);
    EXPECT_FALSE(rig.watch.any_suspect());
    const auto slow = [](const Pair& link) { return link.first == node(5) ? 2.5 : 1.0; };
    const std::uint64_t begin = rig.now();
    while (!rig.watch.verdict_due() && rig.now() < begin + 40) {
      rig.step(slow);
    }
    EXPECT_LE(rig.now() - begin, 12U) << jitter;
    const std::vector<LinkFault> faults = rig.watch.take_faults();
    ASSERT_EQ(faults.size(), 1U);
    EXPECT_EQ(key(faults.front()), std::tuple(LinkFault::Part::kSend, node(5), node(5)));
    EXPECT_NEAR(faults.front().slowdown, 2.5, 2.5 * jitter);
    EXPECT_NEAR(faults.front().after_s / faults.front().before_s, faults.front().slowdown, 1e-9);
    EXPECT_EQ(faults.front().since.step, begin + 1);
    solver::ClusterState state;
    rig.watch.add_to(state);
    EXPECT_EQ(state.links(node(5)).send, faults.front().slowdown);
    EXPECT_EQ(state.links(node(5)).receive, 1);

    for (int k = 0; k < 30; ++k) {
      rig.step(slow);
    }
    EXPECT_TRUE(rig.watch.take_recovered().empty());
    EXPECT_FALSE(rig.watch.any_suspect());
    rig.healthy(30);
    ASSERT_EQ(rig.watch.take_recovered().size(), 1U);
    EXPECT_TRUE(rig.watch.faults().empty());
  }
}

TEST(LinkWatch, ANicIsToldAsOneThoughItsLinksShowOneByOne) {
  // In noise one of the two links is sure long before the other.
  int told = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rig rig(0.05, seed);
    rig.healthy(200);
    const auto slow = [](const Pair& link) { return link.first == node(5) ? 1.3 : 1.0; };
    const std::uint64_t begin = rig.now();
    while (!rig.watch.verdict_due() && rig.now() < begin + 60) {
      rig.step(slow);
    }
    for (const LinkFault& fault : rig.watch.take_faults()) {
      EXPECT_EQ(key(fault), std::tuple(LinkFault::Part::kSend, node(5), node(5))) << seed;
      ++told;
    }
  }
  EXPECT_EQ(told, 20);
}

TEST(LinkWatch, TellsTwoFaultsApart) {
  Rig rig(0.03);
  rig.healthy(100);
  const auto slow = [](const Pair& link) {
    return link.second == node(2) ? 3.0 : (link == Pair(node(9), node(10)) ? 2.0 : 1.0);
  };
  for (int k = 0; k < 12; ++k) {
    rig.step(slow);
  }
  ASSERT_TRUE(rig.watch.verdict_due());
  std::set<std::tuple<LinkFault::Part, NodeId, NodeId>> found;
  for (const LinkFault& fault : rig.watch.take_faults()) {
    found.insert(key(fault));
  }
  EXPECT_EQ(found, (std::set<std::tuple<LinkFault::Part, NodeId, NodeId>>{
                       {LinkFault::Part::kReceive, node(2), node(2)},
                       {LinkFault::Part::kPath, node(9), node(10)}}));
}

TEST(LinkWatch, IsQuietInNoiseAndOverSpikes) {
  for (const double jitter : {0.01, 0.05, 0.15}) {
    Rig rig(jitter);
    std::mt19937_64 random(3);
    for (int k = 0; k < 3000; ++k) {
      const bool spike = random() % 50 == 0;
      rig.step(
          [&](const Pair& link) { return spike && link.first == node(random() % 16) ? 3.0 : 1.0; });
      ASSERT_FALSE(rig.watch.verdict_due()) << jitter << ", step " << k;
    }
  }
}

TEST(LinkWatch, ALinkThatIsSlowFromItsFirstDayIsHeldAgainstItsTier) {
  Rig rig(0.03);
  rig.healthy(100);
  rig.watch.follow_plan();
  for (std::uint64_t k = 0; k < 20; ++k) {
    rig.healthy(1);
    rig.watch.observe(node(0), node(9), 5e-11 * 4, {rig.now(), static_cast<double>(rig.now())});
  }
  ASSERT_TRUE(rig.watch.verdict_due());
  const std::vector<LinkFault> faults = rig.watch.take_faults();
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(key(faults.front()), std::tuple(LinkFault::Part::kPath, node(0), node(9)));
  EXPECT_NEAR(faults.front().slowdown, 4, 0.2);
}

TEST(LinkWatch, ForgetsLinksThatNoPlanUsesAndKeepsFewForEachNode) {
  Rig rig(0.03);
  rig.healthy(20);
  const std::size_t used = rig.watch.links();
  const auto nodes = static_cast<std::uint32_t>(rig.job.cluster.nodes.size());
  for (std::uint32_t from = 0; from < nodes; ++from) {
    for (std::uint32_t to = 0; to < nodes; ++to) {
      if (from != to) {
        rig.watch.observe(node(from), node(to), 5e-11, {21, 21});
      }
    }
  }
  EXPECT_EQ(rig.watch.links(), LinkWatch::kLinksPerNode * nodes);
  rig.watch.follow_plan();
  rig.healthy(20);
  EXPECT_EQ(rig.watch.links(), LinkWatch::kLinksPerNode * nodes);
  rig.watch.follow_plan();
  EXPECT_EQ(rig.watch.links(), used);
  EXPECT_FALSE(rig.watch.any_suspect());
}

}  // namespace
}  // namespace tapas::daemon
