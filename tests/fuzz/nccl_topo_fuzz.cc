#include "solver/topo/comm_tables.h"
#include "target.h"

#include <numeric>
#include <vector>

using tapas::fuzz::require;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto topo = tapas::solver::parse_nccl_topo(tapas::fuzz::as_text(data, size), "fuzz.xml");
  if (!topo) {
    require(!topo.error().message.empty(), "a refusal says why");
    return 0;
  }
  require(!topo->devices.empty(), "something is in the file");
  for (const auto& nic : topo->nics) {
    require(nic.device < topo->devices.size(), "NICs hang on devices that exist");
  }
  if (topo->gpus.empty()) {
    return 0;
  }
  // The search is bounded, but a large PCIe server takes all of its bound.
  if (topo->gpus.size() > 8) {
    std::vector<std::uint32_t> gpus(topo->gpus.size());
    std::iota(gpus.begin(), gpus.end(), 0U);
    require(tapas::solver::TopoSystem(*topo, gpus).gpus().size() == gpus.size(), "no GPU is lost");
    return 0;
  }
  const auto node = tapas::solver::describe_node(*topo);
  require(node.devices == topo->gpus.size(), "every GPU is a device");
  require(node.comm.shapes.back().per_node == node.devices, "the last group is the whole node");
  for (std::uint32_t i = 0; i < node.devices; ++i) {
    for (std::uint32_t j = 0; j < node.devices; ++j) {
      require(node.comm.path(i, j).bytes_per_s >= 0, "no path has a negative rate");
    }
  }
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  return {
      project_file("config/examples/topo-a800-8gpu-roce.xml"),
      R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel"/></system>)",
      R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">
<pci busid="0000:01:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
<pci busid="0000:02:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/></cpu></system>)",
      R"(<system version="1"><cpu numaid="1" arch="arm64"><pci busid="0000:01:00.0" class="0x060400"
link_speed="32.0 GT/s PCIe" link_width="16"><pcilink target="0000:09:00.0"/>
<pci busid="0000:02:00.0" class="0x030200" link_speed="" link_width="0"><gpu dev="0" sm="90" rank="0" gdr="1">
<nvlink target="0000:03:00.0" count="4" tclass="0x030200"/><c2c bw="43125" count="8"/></gpu></pci>
<pci busid="0000:03:00.0" class="0x030200" link_speed="" link_width="0"><gpu dev="1" sm="90" rank="1" gdr="0">
<nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu></pci></pci>
<pci busid="0000:09:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
<pcilink target="0000:01:00.0"/><pci busid="0000:0a:00.0" class="0x020000" link_speed="16 GT/s"
link_width="8"><nic><net name="a" dev="0" speed="100000" port="1" guid="0x1" gdr="1"/>
<net name="b" dev="1" speed="100000" port="2" guid="0x1" gdr="1"/></nic></pci></pci>
<nic><net name="veth0" dev="2" speed="10000"/></nic></cpu></system>)"};
}
