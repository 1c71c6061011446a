#pragma once

#include "base/json/json.h"
#include "tests/system/cluster.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

/// A real tapasd and real twins, with CURVE, on the loopback of this machine.
namespace tapas::bench {

struct FleetSpec {
  std::size_t jobs = 1;
  std::size_t nodes = 1;  ///< of each job
  std::size_t devices = 8;
  std::size_t stages = 4;
  json::Value config = json::Value::object();  ///< over the daemon's defaults
};

class Fleet {
 public:
  /// False when the programs are not there.
  [[nodiscard]] static bool possible();

  explicit Fleet(FleetSpec spec);

  /// Starts tapasd, with the priority that its unit gives it where that is allowed.
  [[nodiscard]] bool start_daemon();
  void start_twins(const std::vector<std::string>& arguments);

  [[nodiscard]] std::size_t ranks() const { return spec_.jobs * spec_.nodes * spec_.devices; }
  [[nodiscard]] std::size_t agents() const { return spec_.jobs * spec_.nodes; }
  /// Agents that the daemon says are connected.
  [[nodiscard]] std::size_t connected() const;
  /// The least over the jobs; 0 while one has none.
  [[nodiscard]] std::int64_t last_step() const;
  /// Resident memory of the daemon.
  [[nodiscard]] double memory_mib() const;
  [[nodiscard]] test::Cluster& cluster() { return *cluster_; }
  [[nodiscard]] test::Process& twin(std::size_t job) { return *twins_[job]; }
  [[nodiscard]] std::string report(std::size_t job) const;

 private:
  [[nodiscard]] std::string job_name(std::size_t job) const;
  [[nodiscard]] json::Value job(std::size_t number) const;

  const FleetSpec spec_;
  test::TempDir files_;
  std::unique_ptr<test::Cluster> cluster_;
  std::vector<std::unique_ptr<test::Process>> twins_;
};

}  // namespace tapas::bench
