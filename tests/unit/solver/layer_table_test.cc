#include "solver/cost/layer_table.h"

#include "jobs.h"
#include "solver/cost/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tapas::solver {
namespace {

/// Layers drawn from a few kinds in random order, so that some are alike and some stand alone.
Job patchwork(std::uint64_t seed, std::uint32_t layers, std::uint32_t kinds) {
  testing::Draw draw(seed);
  const Job parts = testing::uneven_job(seed, kinds, 1, 8, 8);
  Job job = parts;
  job.graph.nodes.clear();
  job.graph.edges.clear();
  for (std::uint32_t l = 0; l < layers; ++l) {
    const std::uint32_t kind = draw.between(0U, kinds - 1);
    for (const OpNode& part : parts.graph.nodes) {
      if (part.layer == kind) {
        OpNode op = part;
        op.layer = l;
        op.id = static_cast<std::uint32_t>(job.graph.nodes.size());
        if (op.id > 0) {
          job.graph.edges.push_back({op.id - 1, op.id, job.graph.nodes.back().out_bytes, "bf16"});
        }
        job.graph.nodes.push_back(op);
      }
    }
  }
  return job;
}

TEST(LayerTable, AnswersForEveryRangeAsAWalkOverItsLayersDoes) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Job job = patchwork(seed, 37, seed % 2 == 0 ? 5 : 30);
    job.graph.nodes.back().kind = OpKind::kHead;
    const auto model = make_cost_model(job);
    const LayerTable table(job, *model, {0, static_cast<std::uint16_t>(1U << seed % 3), true});
    for (std::uint32_t first = 0; first <= table.layers(); ++first) {
      for (std::uint32_t last = first; last <= table.layers(); ++last) {
        LayerCost walked;
        double scratch = 0;
        double gradients = 0;
        double heads = 0;
        std::vector<std::uint32_t> counts(table.types(), 0);
        for (std::uint32_t l = first; l < last; ++l) {
          walked.params += table[l].params;
          walked.stash_bytes += table[l].stash_bytes;
          walked.times.backward_s += table[l].times.backward_s;
          scratch = std::max(scratch, table[l].work_bytes - table[l].gradient_bytes);
          gradients = std::max(gradients, l + 1 == table.layers() ? 0 : table[l].gradient_bytes);
          heads += l + 1 == table.layers() ? table[l].gradient_bytes : 0;
          ++counts[table.type(l)];
        }
        const LayerCost sum = table.sum({first, last});
        EXPECT_NEAR(sum.gradient_bytes, gradients + heads, 1) << first << " to " << last;
        EXPECT_NEAR(sum.work_bytes, scratch + gradients + heads, 1) << first << " to " << last;
        EXPECT_NEAR(sum.params, walked.params, 1e-9 * table.sum({0, table.layers()}).params);
        EXPECT_NEAR(sum.stash_bytes, walked.stash_bytes, 1);
        EXPECT_NEAR(sum.times.backward_s, walked.times.backward_s, 1e-12);
        for (std::uint32_t type = 0; type < table.types(); ++type) {
          EXPECT_EQ(table.count(type, {first, last}), counts[type]);
        }
      }
    }
  }
}

TEST(LayerTable, GivesEqualTypesToEqualLayersOnly) {
  const Job job = patchwork(7, 60, 9);
  const auto model = make_cost_model(job);
  const LayerTable table(job, *model, {0, 2, false});
  EXPECT_GT(table.types(), 5U);
  for (std::uint32_t a = 0; a < table.layers(); ++a) {
    for (std::uint32_t b = 0; b < table.layers(); ++b) {
      EXPECT_EQ(table.type(a) == table.type(b), table[a] == table[b]);
    }
  }
}

TEST(LayerTable, HoldsTenThousandLayersThatAllDiffer) {
  const Job job = testing::uneven_job(1, 10'000, 1, 8, 8);
  const auto model = make_cost_model(job);
  const LayerTable table(job, *model, {0, 8, true});
  EXPECT_EQ(table.types(), 10'000U);
  EXPECT_EQ(table.count(table.type(9'999), {0, 10'000}), 1U);
  EXPECT_EQ(table.count(table.type(9'999), {0, 9'999}), 0U);
}

}  // namespace
}  // namespace tapas::solver
