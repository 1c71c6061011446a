#include "agent/probe/busy.h"

#include <cstdint>
#include <ctime>
#include <fstream>

namespace tapas::agent::probe {

std::chrono::nanoseconds busy_time() {
  std::ifstream in("/proc/thread-self/schedstat");
  std::int64_t ran = 0;
  std::int64_t waited = 0;
  if (in >> ran >> waited) {
    return std::chrono::nanoseconds(ran + waited);
  }
  timespec cpu = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  return std::chrono::seconds(cpu.tv_sec) + std::chrono::nanoseconds(cpu.tv_nsec);
}

}  // namespace tapas::agent::probe
