#pragma once

#include "base/result.h"
#include "solver/model/job.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tapas::daemon {

/// The jobs this daemon looks after, by name; never changes while it runs.
using JobMap = std::map<std::string, std::shared_ptr<const solver::Job>, std::less<>>;

/// Errors name the file and the key; two files with one job's name are an error too.
[[nodiscard]] Result<JobMap> load_jobs(const std::vector<std::string>& paths);

}  // namespace tapas::daemon
