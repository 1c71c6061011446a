#include "daemon/recording/format.h"
#include "solver/model/io/load.h"
#include "target.h"

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace {

using namespace tapas;
using namespace tapas::daemon;

const JobMap& jobs() {
  static const JobMap kJobs = [] {
    auto loaded = load_jobs({TAPAS_SOURCE_DIR "/config/examples/gpt-tiny-4x2.json"});
    fuzz::require(loaded.has_value(), "the example job loads");
    return *std::move(loaded);
  }();
  return kJobs;
}

std::string beginning_text(const recording::Beginning& beginning) {
  std::string text;
  recording::append_beginning(beginning, text);
  return text;
}
std::string step_text(const recording::Step& step) {
  std::string text;
  recording::append_step(jobs(), step.event, step.now, {}, text);
  return text;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line = fuzz::as_text(data, size);
  if (recording::is_recording(line)) {
    const auto beginning = recording::read_beginning(line);
    if (!beginning) {
      fuzz::require(!beginning.error().message.empty(), "a refusal says why");
      return 0;
    }
    const std::string written = beginning_text(*beginning);
    const auto again = recording::read_beginning(written);
    fuzz::require(again && beginning_text(*again) == written,
                  "an accepted beginning goes out and comes back");
    return 0;
  }
  const auto read = recording::read_line(line, jobs());
  if (!read) {
    fuzz::require(!read.error().message.empty(), "a refusal says why");
    return 0;
  }
  if (const auto* step = std::get_if<recording::Step>(&*read)) {
    const std::string written = step_text(*step);
    const auto again = recording::read_line(written, jobs());
    fuzz::require(again && step_text(std::get<recording::Step>(*again)) == written,
                  "an accepted event goes out and comes back");
  }
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  StepSample step;
  step.rank = RankId(1);
  step.wall_s = 0.25;
  const LinkSample link;
  AgentVote vote;
  vote.node = "node-0";
  vote.job = "gpt-tiny";
  std::vector<std::string> seeds = {beginning_text({"1.0.0", {}, jobs(), {}}), R"({"end":"why"})"};
  for (const Event& event : std::vector<Event>{
           AgentHello{"node-0",
                      1,
                      Term(2),
                      {{"gpt-tiny", 3, Epoch(4), Epoch(5), {{RankId(1), "00ff", 7}}}}},
           AgentHeartbeat{"node-0", 1, 2},
           AgentFindings{"node-0", {{"eth0", "no_carrier", "cable"}}},
           StepBatch{"node-0", {step, step}, {link}}, vote,
           PlanSolved{"gpt-tiny", fail(ErrorCode::kInfeasible, "no"), "", 0.5},
           ReplanSolved{"gpt-tiny", 11, solver::Proposal{}, 0.01, {}}, StoreDone{17, {}},
           OperatorCommand{9, "uid 0 (root)", Drain{"node-1", "fan"}}, Reconfigured{{}, "x"},
           Tick{}}) {
    seeds.push_back(step_text({{std::chrono::nanoseconds(1), 2}, event, {}}));
  }
  return seeds;
}
