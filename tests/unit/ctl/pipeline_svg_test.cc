#include "ctl/pipeline_svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tapas::ctl {
namespace {

/// Equal stages, one second forward and two back.
solver::ReplicaTimeline even(std::uint32_t stages, std::uint32_t microbatches) {
  solver::Pipeline pipeline;
  pipeline.forward_s.assign(stages, 1);
  pipeline.backward_s.assign(stages, 2);
  pipeline.forward_delay_s.assign(stages - 1, 0);
  pipeline.backward_delay_s.assign(stages - 1, 0);
  solver::ReplicaTimeline timeline;
  timeline.groups = stages;
  timeline.microbatches = microbatches;
  timeline.actions = solver::PipelineClock().timeline(pipeline, microbatches);
  timeline.recompute_share.assign(stages, 0.25);
  timeline.ends.assign(stages, {0, 0, 0.25});
  for (const solver::Action& action : timeline.actions) {
    timeline.ends[action.stage].end_s = action.end_s;
    timeline.ends[action.stage].synchronised_s = action.end_s + 0.5;
  }
  timeline.update_at_s = timeline.ends[0].synchronised_s;
  timeline.step_time_s = timeline.update_at_s + 0.25;
  return timeline;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(PipelineSvg, DrawsEveryActionOfAShortStep) {
  const std::string svg = pipeline_svg(even(3, 4), "a job");
  // One more of each in the legend.
  EXPECT_EQ(count(svg, "class=\"f\""), 3U * 4 + 1);
  EXPECT_EQ(count(svg, "class=\"b\""), 3U * 4 + 1);
  EXPECT_EQ(count(svg, "class=\"r\""), 3U * 4 + 1);
  EXPECT_EQ(count(svg, "class=\"g\""), 3U + 1);
  EXPECT_EQ(count(svg, "class=\"u\""), 3U + 1);
  EXPECT_EQ(count(svg, "class=\"cut\""), 0U);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
}

TEST(PipelineSvg, DrawsThreePiecesOfALongStep) {
  const std::string svg = pipeline_svg(even(8, 500), "a job");
  EXPECT_EQ(count(svg, "class=\"cut\""), 2U);
  EXPECT_LT(svg.size(), 400'000U);
  EXPECT_NE(svg.find(">1</text>"), std::string::npos) << "the first microbatch";
  EXPECT_NE(svg.find(">500</text>"), std::string::npos) << "the last microbatch";
  EXPECT_NE(svg.find("the 500 microbatches"), std::string::npos);
}

TEST(PipelineSvg, StaysBoundedHoweverManyStages) {
  const std::string svg = pipeline_svg(even(400, 410), "a job");
  EXPECT_LT(svg.size(), 2'000'000U);
  EXPECT_NE(svg.find("the first 256 of 400 stages"), std::string::npos);
}

TEST(PipelineSvg, EscapesItsTitle) {
  const std::string svg = pipeline_svg(even(2, 2), "<a & \"b\">\x1b");
  EXPECT_EQ(svg.find("<a "), std::string::npos);
  EXPECT_NE(svg.find("&lt;a &amp; &quot;b&quot;&gt;?"), std::string::npos);
}

}  // namespace
}  // namespace tapas::ctl
