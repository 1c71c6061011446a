#pragma once

#include "agent/ras/report.h"
#include "base/json/json.h"

#include <string>

namespace tapas::agent::ras {

/// One English sentence: what is wrong with whom.
[[nodiscard]] std::string sentence(const Finding& finding);

/// One line: NCCL's version and the size of the job.
[[nodiscard]] std::string summary(const Report& report);

/// Schema tapas.ras/1 (docs/agent.md). What RAS did not tell is not there.
[[nodiscard]] json::Value to_json(const Report& report);

}  // namespace tapas::agent::ras
