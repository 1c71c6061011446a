// The first byte chooses the layout, the rest is one file; the layouts that need a second get a
// good one.
#include "solver/profile/profile.h"
#include "target.h"
#include "tests/unit/profile/samples.h"

namespace {

using tapas::solver::profile::File;
using tapas::solver::profile::Layout;
using tapas::solver::profile::Options;

std::vector<File> files_for(Layout layout, File file) {
  switch (layout) {
    case Layout::kGalvatron:
      file.name = "x_h64_seq32.json";
      return {file, tapas::solver::profile::kGalvatronMemory};
    case Layout::kSailor:
      file.name = "Tiny_V100-16_profile.json";
      return {file, tapas::solver::profile::kSailorSizes};
    default:
      file.name = "x_gpu8_8.json";
      return {file};
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto layout = static_cast<Layout>(data[0] % 7);
  Options options;
  options.device = "V100-16";
  options.layers = 2;
  const File file{"", std::string(tapas::fuzz::as_text(data + 1, size - 1))};
  const auto profile = tapas::solver::profile::read(layout, files_for(layout, file), options);
  if (profile) {
    tapas::fuzz::require(validate(profile->graph).has_value(), "what is read is a valid graph");
  } else {
    tapas::fuzz::require(!profile.error().message.empty(), "a refusal says why");
  }
  const auto table =
      tapas::solver::profile::read_collectives(layout, {files_for(layout, file)[0]}, options);
  if (table) {
    for (const auto& one : *table) {
      tapas::fuzz::require(one.bytes >= 0 && one.seconds >= 0, "sizes and times are amounts");
    }
  }
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  using namespace tapas::solver::profile;
  const auto seed = [](Layout layout, const std::string& text) {
    return std::string(1, static_cast<char>(layout)) + text;
  };
  return {seed(Layout::kAceso, kAcesoSample.text),
          seed(Layout::kAceso, "collective,num_gpus,data_size_MB,time_ms\nall_gather,4,2,1.5\n"),
          seed(Layout::kGalvatron, kGalvatronTimes.text),
          seed(Layout::kGalvatron, R"({"allreduce_size_4_consec_1": 50})"),
          seed(Layout::kNnscaler, R"({"all reduce": [[1, 2], [0.1, 0.2]]})"),
          seed(Layout::kPipedream, kPipedreamSample.text),
          seed(Layout::kPiper, kPiperSample.text),
          seed(Layout::kSailor, kSailorTimes.text),
          seed(Layout::kSailor, R"({"V100-16": {"2": [[0, 1, 10], 12e9]}})"),
          seed(Layout::kVtrain,
               "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n"
               "1048576,262144,float,44210,2,1,3\n")};
}
