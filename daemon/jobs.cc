#include "daemon/jobs.h"

#include "base/ids.h"
#include "solver/model/io/load.h"

#include <utility>

namespace tapas::daemon {

Result<JobMap> load_jobs(const std::vector<std::string>& paths) {
  JobMap jobs;
  for (const std::string& path : paths) {
    auto job = solver::load_job(path);
    if (!job) {
      return tl::unexpected(job.error());
    }
    const std::string name = job->name;
    // Records name jobs by their hash, so two hashes must differ as well.
    for (const auto& [other, ignored] : jobs) {
      if (name_hash(other) == name_hash(name)) {
        return fail(ErrorCode::kInvalid, "{}: job \"{}\" is already there; give one another name",
                    path, other);
      }
    }
    jobs.emplace(name, std::make_shared<const solver::Job>(std::move(*job)));
  }
  return jobs;
}

}  // namespace tapas::daemon
