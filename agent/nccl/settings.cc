#include "agent/nccl/settings.h"

#include "base/ids.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tapas::nccl {
namespace {

constexpr std::size_t kMaxPeers = 1U << 20U;
// The daemon follows ranks that tell a step at least as often (StepWindow of daemon/core).
constexpr std::uint64_t kMostRare = 8;

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

/// Decimal or, with 0x, hexadecimal.
bool parse(const char* text, std::uint64_t& number) {
  if (*text < '0' || *text > '9') {
    return false;
  }
  char* end = nullptr;
  errno = 0;
  number = std::strtoull(text, &end, 0);
  return errno == 0 && *end == '\0';
}

bool number_of(const char* name, std::uint64_t least, std::uint64_t most, std::uint64_t& number,
               char* problem, std::size_t size) {
  const char* text = variable(name);
  if (text == nullptr) {
    return true;
  }
  if (parse(text, number) && number >= least && number <= most) {
    return true;
  }
  std::snprintf(problem, size, "%s=%.40s is not a number from %llu to %llu", name, text,
                static_cast<unsigned long long>(least), static_cast<unsigned long long>(most));
  return false;
}

/// Rank of this process in the job, as launchers tell it.
const char* own_rank() {
  for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}) {
    if (const char* value = variable(name)) {
      return value;
    }
  }
  return nullptr;
}

/// One line per rank of the job: its device slot and its node.
bool read_peers(const char* path, std::uint64_t own, Settings& settings, char* problem,
                std::size_t size) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) {
    std::snprintf(problem, size, "TAPAS_RANKS=%.120s: %s", path, std::strerror(errno));
    return false;
  }
  char line[400];
  std::size_t capacity = 0;
  bool good = true;
  while (good && std::fgets(line, sizeof(line), file) != nullptr) {
    unsigned slot = 0;
    char node[256] = {};
    int length = 0;
    good = std::sscanf(line, "%u %255s %n", &slot, node, &length) == 2 && line[length] == '\0' &&
           valid_name(node) && settings.peer_count < kMaxPeers;
    if (!good) {
      std::snprintf(problem, size,
                    "%.120s:%zu: not a device slot and the name of a node, as in \"8 n1\"", path,
                    settings.peer_count + 1);
      break;
    }
    if (settings.peer_count == capacity) {
      capacity = capacity == 0 ? 64 : 2 * capacity;
      auto* more = static_cast<Peer*>(std::realloc(settings.peers, capacity * sizeof(Peer)));
      good = more != nullptr;
      if (!good) {
        std::snprintf(problem, size, "%.120s: no memory for %zu ranks", path, capacity);
        break;
      }
      settings.peers = more;
    }
    if (settings.peer_count == own) {
      settings.slot = slot;
      std::snprintf(settings.node, sizeof(settings.node), "%s", node);
    }
    settings.peers[settings.peer_count++] = {name_hash(node), slot};
  }
  std::fclose(file);
  if (good && own >= settings.peer_count) {
    std::snprintf(problem, size, "%.120s has %zu lines, this is rank %llu: it needs one per rank",
                  path, settings.peer_count, static_cast<unsigned long long>(own));
    return false;
  }
  return good;
}

}  // namespace

bool read_settings(Settings& settings, char* problem, std::size_t problem_size) {
  settings = Settings{};
  *problem = '\0';
  const char* job = variable("TAPAS_JOB");
  if (job == nullptr) {
    return false;
  }
  const char* session = variable("TAPAS_SESSION");
  const char* ranks = variable("TAPAS_RANKS");
  const char* rank = own_rank();
  std::uint64_t own = 0;
  if (!valid_name(job)) {
    std::snprintf(problem, problem_size, "TAPAS_JOB=%.40s is not a job's name", job);
    return false;
  }
  if (session == nullptr || ranks == nullptr) {
    std::snprintf(problem, problem_size, "TAPAS_JOB is set, but not TAPAS_%s",
                  session == nullptr ? "SESSION" : "RANKS");
    return false;
  }
  if (rank == nullptr || !parse(rank, own)) {
    std::snprintf(problem, problem_size,
                  "none of RANK, SLURM_PROCID and OMPI_COMM_WORLD_RANK has this process's rank");
    return false;
  }
  std::snprintf(settings.job, sizeof(settings.job), "%s", job);
  if (!parse(session, settings.session)) {
    settings.session = name_hash(session);  // A launcher's run id may be any text.
  }
  std::uint64_t settle_s = 60;
  std::uint64_t every = 8;
  if (!number_of("TAPAS_NCCL_SETTLE_S", 0, 86'400, settle_s, problem, problem_size) ||
      !number_of("TAPAS_NCCL_EVERY", 1, kMostRare, every, problem, problem_size) ||
      !number_of("NCCL_PROFILE_EVENT_MASK", 0, INT32_MAX, settings.fixed_mask, problem,
                 problem_size) ||
      !read_peers(ranks, own, settings, problem, problem_size)) {
    free_settings(settings);
    return false;
  }
  settings.rank = static_cast<std::uint32_t>(own);
  settings.settle_ns = settle_s * 1'000'000'000;
  settings.every = static_cast<std::uint32_t>(every);
  return true;
}

void free_settings(Settings& settings) {
  std::free(settings.peers);
  settings.peers = nullptr;
  settings.peer_count = 0;
}

}  // namespace tapas::nccl
