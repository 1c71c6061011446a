#pragma once

#include "agent/rank/tapas_rank.h"
#include "wire/record.h"

/// What the library does beyond its C interface for who only observes a rank: the NCCL plugin.
namespace tapas::agent {

inline constexpr const char* kObserverPrefix = "tapas-nccl";

/// tapas_rank_open() with another first part of the file's name, so that the observer and the rank
/// itself can both be there. Same errors.
int open_rank(const tapas_rank_options* options, const char* prefix, tapas_rank** rank);

/// Adds who, when and where from. Without a wait, as tapas_rank_record(). False when it was
/// dropped.
bool record_link(tapas_rank* rank, const wire::LinkRecord& link);

}  // namespace tapas::agent
