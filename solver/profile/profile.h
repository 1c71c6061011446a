#pragma once

#include "base/result.h"
#include "solver/model/comm.h"
#include "solver/model/graph.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Profiles as other planners write them. Each layout is described in docs/formats.md. Input is
/// bounded; errors name the file, and the line or the key.
namespace tapas::solver::profile {

enum class Layout : std::uint8_t {
  kAceso,
  kGalvatron,
  kNnscaler,
  kPipedream,
  kPiper,
  kSailor,
  kVtrain,
};
[[nodiscard]] std::string_view to_string(Layout layout);
[[nodiscard]] Result<Layout> layout_from(std::string_view word);

struct File {
  std::string name;  ///< its last part may say what the file is about
  std::string text;
};
[[nodiscard]] Result<File> load_file(const std::string& path);
/// In the given order; the first that cannot be read is the error.
[[nodiscard]] Result<std::vector<File>> load_files(const std::vector<std::string>& paths);

/// What the files themselves do not say. Zero or empty = left out.
struct Options {
  std::string name;                    ///< of the graph
  std::string device;                  ///< DeviceType::name that the times stand for
  std::uint32_t micro_batch_size = 0;  ///< of the graph; left out = the smallest profiled
  std::uint32_t layers = 0;            ///< transformer blocks, where one block was profiled
  std::uint32_t hidden_size = 0;
  std::uint32_t sequence_length = 0;
  double seconds_per_unit = 1;          ///< Piper states no unit of time
  std::uint32_t bytes_per_element = 2;  ///< of parameters and activations, where counts are given
};

struct Profile {
  Graph graph;
  std::vector<std::string> notes;  ///< what was assumed or left out, one sentence each
};

/// Layer or operator times. kNnscaler and kVtrain have none.
[[nodiscard]] Result<Profile> read(Layout layout, const std::vector<File>& files,
                                   const Options& options);

/// Times of collectives. kPipedream and kPiper have none; kSailor's files hold several devices, of
/// which options.device is read.
[[nodiscard]] Result<std::vector<MeasuredCollective>> read_collectives(
    Layout layout, const std::vector<File>& files, const Options& options);

}  // namespace tapas::solver::profile
