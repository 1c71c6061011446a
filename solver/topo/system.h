#pragma once

#include "solver/model/comm.h"
#include "solver/topo/nccl_topo.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tapas::solver {

enum class NodeKind : std::uint8_t { kGpu, kPci, kSwitch, kCpu, kNic, kNet };
constexpr std::size_t kNodeKinds = 6;

/// Devices of one server and the links between them, as NCCL 2.28.9 builds its graph
/// (src/graph/{topo,paths}.cc), for a communicator of some of its GPUs. Rates in GB/s and single
/// precision, as there. GPUs are numbered in document order, interfaces as in NcclTopo::nics.
class TopoSystem {
 public:
  struct Link {
    std::uint32_t from = 0;
    std::uint32_t to = 0;  ///< nodes
    PathType type = PathType::kLoc;
    float gbs = 0;
  };
  struct Node {
    NodeKind kind = NodeKind::kPci;
    std::uint32_t index = 0;           ///< among its kind
    std::vector<std::uint32_t> links;  ///< fastest first, the way up last
  };
  struct Path {
    std::vector<std::uint32_t> links;  ///< in order
    float gbs = 0;                     ///< narrowest
    PathType type = PathType::kDis;
    [[nodiscard]] int hops() const { return static_cast<int>(links.size()); }
  };
  struct Gpu {
    std::uint32_t topo = 0;  ///< index into NcclTopo::gpus
    int dev = 0;
    int sm = 0;
    bool gdr = false;
  };
  struct Net {
    int dev = 0;
    int port = 0;
    std::uint64_t card = 0;
    float gbs = 0;
    float latency_us = 0;
    bool gdr = false;
    int local_gpu = -1;         ///< the one that it serves
    std::uint32_t same_as = 0;  ///< the first with this dev; itself mostly
  };
  enum class Host : std::uint8_t { kOther, kIntel, kAmd, kZhaoxin, kPower, kArm };

  /// `gpus`: indices into topo.gpus, not empty.
  TopoSystem(const NcclTopo& topo, const std::vector<std::uint32_t>& gpus);

  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<Link>& links() const { return links_; }
  [[nodiscard]] const std::vector<Gpu>& gpus() const { return gpus_; }
  [[nodiscard]] const std::vector<Net>& nets() const { return nets_; }
  [[nodiscard]] std::size_t count(NodeKind kind) const { return of_kind_[at(kind)].size(); }
  [[nodiscard]] bool has_switch() const { return count(NodeKind::kSwitch) > 0; }
  /// Of the first CPU, which stands for all.
  [[nodiscard]] Host host() const { return hosts_.front(); }
  [[nodiscard]] Host host_of(std::uint32_t cpu) const { return hosts_[cpu]; }
  [[nodiscard]] int min_sm() const;
  [[nodiscard]] bool same_sm() const;

  /// From a GPU, interface, switch or CPU to another; by their index among their kind.
  [[nodiscard]] const Path& path(NodeKind from, std::size_t i, NodeKind to, std::size_t j) const {
    return paths_[at(from)][at(to)][i * count(to) + j];
  }
  /// Interfaces with the widest path, of the nearest type among those.
  [[nodiscard]] const std::vector<std::uint32_t>& local_nets(std::size_t gpu) const {
    return local_nets_[gpu];
  }
  [[nodiscard]] const std::vector<std::uint32_t>& local_gpus(std::size_t net) const {
    return local_gpus_[net];
  }
  /// How many interfaces a GPU uses, and the one that it takes for its n-th channel. Both require
  /// local_nets().
  [[nodiscard]] std::uint32_t nets_per_gpu(std::size_t gpu) const;
  [[nodiscard]] std::uint32_t net_of_gpu(std::size_t gpu, std::uint32_t channel) const;

  /// The link back, from link.to to link.from.
  [[nodiscard]] std::uint32_t reverse(std::uint32_t link) const { return reverse_[link]; }

 private:
  static std::size_t at(NodeKind kind) { return static_cast<std::size_t>(kind); }
  static constexpr std::uint32_t kNone = ~0U;
  struct Builder;

  void build(const NcclTopo& topo, const std::vector<std::uint32_t>& gpus);
  void compute_paths();
  void paths_to(NodeKind kind, std::size_t index);
  Path& mutable_path(NodeKind from, std::size_t i, NodeKind to, std::size_t j) {
    return paths_[at(from)][at(to)][i * count(to) + j];
  }
  void find_local_nets(std::size_t gpu);
  void find_local_gpus(std::size_t net);
  void go_through(NodeKind over, std::size_t k, NodeKind from, std::size_t i, NodeKind to,
                  std::size_t j);
  void avoid_distant_peers(std::size_t gpu);
  void reach_nics_by_chip_link();
  void reach_nic(std::size_t net, std::size_t gpu);
  [[nodiscard]] std::size_t local_cpu(std::size_t gpu) const;
  [[nodiscard]] bool gdr_works(std::size_t gpu, std::size_t net) const;
  [[nodiscard]] int gpu_served_by(std::size_t net) const;

  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> reverse_;
  std::vector<std::uint32_t> of_kind_[kNodeKinds];
  std::vector<Gpu> gpus_;
  std::vector<Net> nets_;
  std::vector<Host> hosts_;
  std::vector<Path> paths_[kNodeKinds][kNodeKinds];
  std::vector<std::vector<std::uint32_t>> local_nets_, local_gpus_;
};

}  // namespace tapas::solver
