#include "tests/detect/live_blocks.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> live = 0;
}  // namespace

void* operator new(std::size_t size) {
  void* block = std::malloc(size);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  ++live;
  return block;
}
void operator delete(void* block) noexcept {
  live -= block != nullptr ? 1 : 0;
  std::free(block);
}
void operator delete(void* block, std::size_t /*size*/) noexcept {
  live -= block != nullptr ? 1 : 0;
  std::free(block);
}

namespace tapas::daemon::testing {

long live_blocks() { return live; }

}  // namespace tapas::daemon::testing
