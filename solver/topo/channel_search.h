#pragma once

#include "solver/topo/search.h"

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

/// Inside of search_channels(): one pattern at a time, attempt by attempt.
namespace tapas::solver {

constexpr int kMaxTopoChannels = 64;
constexpr int kAlwaysPerfect = -1;  ///< budget of an attempt that cannot be beaten

[[nodiscard]] constexpr PathType next_type(PathType type) {
  return static_cast<PathType>(static_cast<std::uint8_t>(type) + 1);
}

/// How the next GPU is chosen.
enum class Order : std::uint8_t { kFree, kPci, kLikeLast };
/// Which neighbours of a GPU come first.
enum class Toward : std::uint8_t { kNothing, kNet, kAwayFromNet };

/// One search: what is wanted, and the channels so far.
struct Attempt {
  Pattern pattern = Pattern::kRing;
  int cross_nic = 0;
  int channels = 0;
  int min_channels = 1;
  int max_channels = 1;
  float intra = 0;
  float inter = 0;
  PathType type_intra = PathType::kLoc;
  PathType type_inter = PathType::kPix;
  float latency_us = 0;
  bool same_channels = true;
  float hops = 0;
  std::vector<std::uint32_t> order;                ///< GPUs of all channels, one after the other
  std::vector<std::array<std::uint32_t, 2>> nets;  ///< of each channel, in and out
};

class ChannelSearch {
 public:
  ChannelSearch(const TopoSystem& system, bool between_nodes, SearchEffort effort);

  Attempt best(Pattern pattern, int min_channels, int max_channels);
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] bool cut_short() const { return steps_ >= most_steps_; }

 private:
  static constexpr int kNoStep = -1;
  /// What matters of a link on the way.
  enum Trait : std::uint8_t { kPci = 1, kToIntel = 2, kToOldGpu = 4, kToPower = 8, kTwoWay = 12 };
  /// GPUs in the order to try them.
  struct Gpus {
    std::array<int, kMaxTopoGpus> gpu;
    int count = 0;
    void add(int one) { gpu[static_cast<std::size_t>(count++)] = one; }
    [[nodiscard]] int* begin() { return gpu.data(); }
    [[nodiscard]] int* end() { return gpu.data() + count; }
  };
  struct Peer {
    int gpu, hops, gbs;
  };
  /// How far one pattern may go.
  struct Bounds {
    PathType min_intra, max_intra, min_inter, max_inter;
    bool may_cross;
  };

  void measure();
  [[nodiscard]] std::uint8_t traits_of(const TopoSystem::Link& link) const;
  [[nodiscard]] int pci_link_of(std::size_t gpu) const;
  [[nodiscard]] PathType nearest(NodeKind to) const;
  [[nodiscard]] PathType farthest(NodeKind to) const;
  [[nodiscard]] bool split_nvlink() const;
  void run();
  [[nodiscard]] bool seen_before();
  [[nodiscard]] bool improvable() const;
  [[nodiscard]] int most_channels() const;
  [[nodiscard]] int most_channels_from_nets() const;
  [[nodiscard]] int fewest_hops() const;
  bool relax(const Bounds& bounds);
  bool raise();
  void split_channels();

  // Steps of one attempt. Each takes what it uses off `left_` and gives it back.
  void start();
  void start_at_net();
  void start_at_net_with(std::uint32_t net);
  bool try_gpu(NodeKind from, int index, int gpu, int step, int to_net, int to_first, Order order);
  void go_on(int gpu, int step, int to_net, int to_first, Order order);
  void return_to_net(int gpu, int step, int to_first, Order order);
  void try_switch(int gpu);
  void channel_done();
  [[nodiscard]] bool better() const;
  [[nodiscard]] bool net_fits(std::uint32_t first, std::uint32_t net, int step) const;
  [[nodiscard]] bool is_free(int gpu) const;
  void neighbours(int gpu, Gpus& out) const;
  void rank_peers();
  void next_gpus(int gpu, Toward toward, Gpus& out) const;
  [[nodiscard]] std::array<int, 3> net_key(int gpu) const;
  const std::vector<std::uint32_t>& nets_for(int gpu);
  bool follow(NodeKind from, int i, NodeKind to, int j, float times);
  int take(const TopoSystem::Path& path, bool from_gpu, int links, float gbs);
  [[nodiscard]] int first_of_last() const {
    return static_cast<int>(now_.order[static_cast<std::size_t>((now_.channels - 1) * gpus_)]);
  }
  std::uint32_t& place(int channel, int step) {
    return now_.order[static_cast<std::size_t>(channel * gpus_ + step)];
  }
  std::array<std::uint32_t, 2>& nets(int channel) {
    return now_.nets[static_cast<std::size_t>(channel)];
  }
  [[nodiscard]] const std::array<std::uint32_t, 2>& nets(int channel) const {
    return now_.nets[static_cast<std::size_t>(channel)];
  }

  const TopoSystem& system_;
  bool between_nodes_;
  SearchEffort effort_;
  int gpus_;
  float max_gbs_ = 0;
  float total_gbs_ = 0;
  std::vector<float> left_;           ///< of each link
  std::vector<float> net_left_;       ///< of each interface
  std::vector<std::uint64_t> used_;   ///< per GPU one bit for each channel
  std::vector<std::uint8_t> traits_;  ///< of each link
  std::vector<int> pci_link_;
  std::vector<std::vector<Peer>> peers_;  ///< of each GPU, best first
  Attempt now_;
  Attempt best_;
  std::span<const float> speeds_;
  std::size_t speed_ = 0;
  int budget_ = 0;         ///< steps of this attempt
  bool settled_ = false;   ///< this attempt cannot improve any more
  float hops_before_ = 0;  ///< at its start
  bool pass_one_ = true;
  /// Attempts of pass one that were made, and the budget that they left.
  std::map<std::array<float, 7>, int> made_;
  int* last_made_ = nullptr;
  std::int64_t steps_left_ = 0;  ///< of all attempts of this pattern
  std::uint64_t steps_ = 0;
  std::uint64_t most_steps_ = 0;
  /// nets_for() by GPU, the last for any; valid for one type.
  std::vector<std::vector<std::uint32_t>> nets_for_;
  PathType nets_for_type_ = PathType::kDis;
};

}  // namespace tapas::solver
