#pragma once

#include "daemon/jobs.h"
#include "solver/model/io/load.h"
#include "solver/search/solve.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

namespace tapas::daemon {

class TempDir {
 public:
  TempDir() {
    std::string pattern = "/tmp/tapas-unit-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// gpt-tiny on four nodes of two devices.
inline const JobMap& tiny_jobs() {
  static const JobMap jobs =
      load_jobs({std::string(TAPAS_SOURCE_DIR) + "/config/examples/gpt-tiny-4x2.json"}).value();
  return jobs;
}
inline const solver::Job& tiny_job() { return *tiny_jobs().begin()->second; }

inline std::shared_ptr<const solver::Plan> tiny_plan(std::uint64_t epoch) {
  static const solver::Plan plan = solver::solve(tiny_job()).value().plan;
  auto copy = std::make_shared<solver::Plan>(plan);
  copy->epoch = Epoch(epoch);
  copy->parent = Epoch(epoch - 1);
  return copy;
}

}  // namespace tapas::daemon
