#include "memory_file.h"
#include "solver/model/io/load.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tapas::fuzz::MemoryFile file(tapas::fuzz::as_text(data, size));
  const auto job = tapas::solver::load_job(file.path());
  if (!job) {
    tapas::fuzz::require(!job.error().message.empty(), "a refusal says why");
    return 0;
  }
  const auto graph = tapas::solver::graph_to_json(job->graph);
  const auto again = tapas::solver::graph_from_json(graph);
  tapas::fuzz::require(again.has_value() && tapas::solver::graph_to_json(*again) == graph,
                       "the graph of an accepted job goes out and comes back");
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  return {project_file("config/examples/gpt-tiny-4x2.json")};
}
