#include "solver/topo/nccl_topo.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto topo = tapas::solver::parse_nccl_topo(tapas::fuzz::as_text(data, size), "fuzz.xml");
  if (topo) {
    tapas::fuzz::require(topo->nics_of_gpu.size() == topo->gpus.size(), "one list of NICs per GPU");
    for (const auto& nics : topo->nics_of_gpu) {
      for (const std::uint32_t nic : nics) {
        tapas::fuzz::require(nic < topo->nics.size(), "lists name NICs that exist");
      }
    }
  } else {
    tapas::fuzz::require(!topo.error().message.empty(), "a refusal says why");
  }
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  return {project_file("config/examples/topo-a800-8gpu-roce.xml"),
          R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel"/></system>)"};
}
