#include "base/json/json.h"
#include "solver/model/io/load.h"
#include "target.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace tapas;

const solver::Job& job() {
  static const solver::Job kJob = [] {
    auto loaded = solver::load_job(TAPAS_SOURCE_DIR "/config/examples/gpt-tiny-4x2.json");
    fuzz::require(loaded.has_value(), "the example job loads");
    return *std::move(loaded);
  }();
  return kJob;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto value = json::parse(fuzz::as_text(data, size), {.max_bytes = 1U << 20U});
  if (!value) {
    return 0;
  }
  const auto plan = solver::plan_from_json(*value, job());
  if (!plan) {
    fuzz::require(!plan.error().message.empty(), "a refusal says why");
    return 0;
  }
  const auto written = solver::plan_to_json(*plan, job());
  const auto again = solver::plan_from_json(written, job());
  fuzz::require(again.has_value() && solver::plan_to_json(*again, job()) == written,
                "an accepted plan goes out and comes back");
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  // Two replicas of two stages, each stage on one node's two devices.
  solver::Plan plan;
  plan.job = job().name;
  plan.epoch = Epoch{2};
  plan.parent = Epoch{1};
  const auto layers = job().graph.layer_count();
  plan.pp_splits = {0, layers / 2};
  plan.tp_width.assign(layers, 2);
  plan.checkpoint.assign(layers, false);
  plan.microbatches = {8, 8};
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    plan.placement.push_back({{NodeId{2 * replica}, {0, 1}}, {NodeId{2 * replica + 1}, {0, 1}}});
  }
  plan.predicted.stage_time_s = {0.1, 0.2};
  plan.predicted.stage_memory_bytes = {1e9, 2e9};
  std::vector<std::string> seeds = {json::dump(solver::plan_to_json(plan, job()))};
  plan.replica_splits = {{0, layers / 2 + 1}, {}};
  plan.replica_checkpoint = {{}, std::vector<bool>(layers, true)};
  seeds.push_back(json::dump(solver::plan_to_json(plan, job())));
  return seeds;
}
