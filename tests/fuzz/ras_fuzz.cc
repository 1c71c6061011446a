#include "agent/ras/output.h"
#include "agent/ras/report.h"
#include "target.h"

#include <algorithm>

using tapas::fuzz::require;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto report = tapas::agent::ras::parse_report(tapas::fuzz::as_text(data, size));
  const auto printable = [](const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  };
  if (!report) {
    require(!report.error().message.empty() && printable(report.error().message),
            "a refusal says why, in text that a terminal can show");
    return 0;
  }
  require(printable(summary(*report)), "the summary is text");
  for (const auto& finding : report->findings) {
    require(finding.count > 0, "a finding is about somebody");
    require(printable(sentence(finding)), "a sentence is text");
  }
  require(lasting(*report, *report).findings.size() == report->findings.size(),
          "what does not move stays");
  require(!tapas::json::dump(to_json(*report)).empty(), "a report can be written");
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  return {
      R"(NCCL version 2.28.9 compiled with CUDA 13.0

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          2            1          4        4

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2       1-2         4         3   RUNNING  INCOMPLETE,ERROR,MISMATCH

Errors
======

INCOMPLETE
  Missing communicator data from 2 job processes
  Process 6 on node 10.1.0.1 managing GPU 2 (NVML 3)

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 7 on node 10.1.0.2 managing GPUs 0,1

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 2 -- GPU 0 managed by process 7 on node 10.1.0.2
  The missing ranks: 3,4

#0-0 (27a079b828ff1a75) ERROR
  Asynchronous error on 1 rank
  Rank 1 reported System error -- GPU 1 managed by process 5 on node 10.1.0.1

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different status
  2 ranks have status RUNNING
  Rank 3 has status NOCOMM -- [process information not found]
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 42
  Rank 3 has not launched any operations -- GPU 3 managed by process 5 on node 10.1.0.1
)",
      R"({"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [{"hash": "0x27a0",
"size": 2, "ranks_count": 1, "missing_ranks_count": 1, "ranks": [{"rank": 0, "host": "10.1.0.1",
"pid": 5, "cuda_dev": 0, "nvml_dev": 0, "status": {"init_state": 0, "async_error": 6,
"finalize_called": false, "destroy_flag": false, "abort_flag": true},
"collective_counts": {"AllReduce": 42}}], "missing_ranks": [{"rank": 1, "host": "unknown",
"pid": -1, "cuda_dev": 1, "nvml_dev": 1
"status": {"unresponsive": true, "considered_dead": false}}]}], "ras": {"timeouts_count": 0}})"};
}
