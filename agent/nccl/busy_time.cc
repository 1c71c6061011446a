#include "agent/nccl/busy_time.h"

#include <algorithm>

namespace tapas::nccl {

void BusyTime::add(std::uint64_t begin, std::uint64_t end) {
  begin = std::max(begin, counted_until_);
  if (begin >= end) {
    return;
  }
  auto* const first = intervals_.data();
  std::size_t to = size_;
  while (to > 0 && first[to - 1].begin > end) {
    --to;
  }
  std::size_t from = to;
  while (from > 0 && first[from - 1].end >= begin) {
    --from;
    begin = std::min(begin, first[from].begin);
    end = std::max(end, first[from].end);
  }
  if (from == to && size_ == kIntervals) {
    // No room: what is oldest is settled, and nothing is counted there any more.
    const Interval oldest = from == 0 ? Interval{begin, end} : first[0];
    sum_ += oldest.end - oldest.begin;
    counted_until_ = oldest.end;
    if (from == 0) {
      return;
    }
    std::copy(first + 1, first + from, first);
    first[from - 1] = {begin, end};
    return;
  }
  if (from == to) {
    std::copy_backward(first + to, first + size_, first + size_ + 1);
    ++size_;
  } else {
    std::copy(first + to, first + size_, first + from + 1);
    size_ -= to - from - 1;
  }
  first[from] = {begin, end};
}

std::uint64_t BusyTime::close(std::uint64_t boundary) {
  std::uint64_t total = sum_;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    Interval interval = intervals_[i];
    if (interval.begin < boundary) {
      total += std::min(interval.end, boundary) - interval.begin;
      interval.begin = boundary;
    }
    if (interval.end > interval.begin) {
      intervals_[kept++] = interval;
    }
  }
  size_ = kept;
  sum_ = 0;
  counted_until_ = std::max(counted_until_, boundary);
  return total;
}

}  // namespace tapas::nccl
