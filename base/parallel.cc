#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace tapas {

void parallel_for(std::size_t count, const std::function<void(std::size_t)>& part) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t k = next++; k < count; k = next++) {
      part(k);
    }
  };
  const std::size_t threads =
      std::min<std::size_t>(count, std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::jthread> helpers;  // join when they go out of scope
  for (std::size_t k = 1; k < threads; ++k) {
    helpers.emplace_back(work);
  }
  work();
}

}  // namespace tapas
