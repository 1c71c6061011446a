#pragma once

#include "solver/model/job.h"

#include <cstdint>

/// Jobs that the solver's tests share.
namespace tapas::solver::testing {

/// GPT-3 175B, 2048 tokens, batch 1536, on 128 nodes of 8 A800 with 4 NICs of 200 Gbit/s.
[[nodiscard]] Job gpt3_175b_on_1024();

/// A small decoder with uniform layers on `nodes` nodes of `devices` devices.
[[nodiscard]] Job small_job(std::uint32_t blocks, std::uint32_t nodes, std::uint32_t devices,
                            std::uint32_t global_batch);

}  // namespace tapas::solver::testing
