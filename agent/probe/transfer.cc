#include "agent/probe/transfer.h"

#include "agent/probe/busy.h"
#include "agent/probe/meter.h"
#include "base/clean.h"

#include <algorithm>
#include <random>
#include <vector>

namespace tapas::agent::probe {

namespace {

constexpr std::size_t kBlockBytes = 64U << 10U;
constexpr char kMore = 'm';  // First byte of a block that others follow.
constexpr char kLast = 'l';
/// Beyond the time of a load, for what is under way when it ends.
constexpr std::chrono::seconds kGrace{5};

using Seconds = std::chrono::duration<double>;

Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

/// How busy this thread was since the object was made.
class BusyWatch {
 public:
  [[nodiscard]] double ratio() const {
    const double wall_s = Seconds(Clock::now() - began_).count();
    return wall_s <= 0 ? 0 : std::clamp(Seconds(busy_time() - before_).count() / wall_s, 0.0, 1.0);
  }

 private:
  Clock::time_point began_ = Clock::now();
  std::chrono::nanoseconds before_ = busy_time();
};

/// Noise, so that nothing on the way can compress it.
std::vector<char> block_of(char first) {
  std::vector<char> block(kBlockBytes);
  std::minstd_rand noise(1);
  std::generate(block.begin(), block.end(), [&] { return static_cast<char>(noise() >> 8U); });
  block.front() = first;
  return block;
}

tl::unexpected<Error> stopped(const Error& why, std::uint64_t bytes, Clock::time_point began) {
  return fail(why.code, "{}, {} bytes and {:.1f} s into the load", why.message, bytes,
              Seconds(Clock::now() - began).count());
}

}  // namespace

Clock::time_point end_of(const Load& load) {
  return Clock::now() + to_duration(load.seconds) + kGrace;
}

Result<Transfer> send_load(Stream& stream, const Load& load, Clock::time_point until) {
  if (load.bytes_per_s) {
    if (auto paced = stream.pace(*load.bytes_per_s); !paced) {
      return tl::unexpected(paced.error());
    }
  }
  std::vector<char> block = block_of(kMore);
  const Stream::Counts before = stream.counts();
  const BusyWatch busy;
  const auto began = Clock::now();
  const auto enough = began + to_duration(load.seconds);
  std::uint64_t sent = 0;
  for (bool last = false; !last; sent += kBlockBytes) {
    last = sent + kBlockBytes >= load.bytes || Clock::now() >= enough;
    block.front() = last ? kLast : kMore;
    if (auto ok = stream.send(block, until); !ok) {
      return stopped(ok.error(), sent, began);
    }
  }
  Transfer transfer;
  transfer.sent.busy_ratio = busy.ratio();
  const auto line = stream.receive_line(until);
  if (!line) {
    return stopped(line.error(), sent, began);
  }
  auto received = parse_received(*line);
  if (!received) {
    return tl::unexpected(received.error());
  }
  transfer.received = *received;
  const Stream::Counts after = stream.counts();
  transfer.sent.segments = after.segments - before.segments;
  transfer.sent.retransmits = after.retransmits - before.retransmits;
  return transfer;
}

Result<Received> receive_load(Stream& stream, const Load& load, Clock::time_point until) {
  std::vector<char> block(kBlockBytes);
  Meter meter;
  const auto began = Clock::now();
  std::optional<BusyWatch> busy;
  Received received;
  for (bool last = false; !last;) {
    for (std::size_t have = 0; have < kBlockBytes;) {
      const auto got = stream.receive(std::span(block).subspan(have), until);
      if (!got) {
        return stopped(got.error(), received.bytes, began);
      }
      if (have == 0) {
        last = block.front() == kLast;
        if (!last && block.front() != kMore) {
          return fail(ErrorCode::kInvalid, "\"{}\" instead of a block, {} bytes into the load",
                      clean(std::string_view(block.data(), *got)), received.bytes);
        }
      }
      have += *got;
      received.bytes += *got;
      meter.add(Clock::now(), received.bytes);
      if (!busy) {
        busy.emplace();
      }
    }
    if (received.bytes > load.bytes + kBlockBytes) {
      return fail(ErrorCode::kInvalid, "{} bytes came, more than the {} agreed", received.bytes,
                  load.bytes);
    }
  }
  received.seconds = meter.seconds();
  received.measured_s = meter.measured_s();
  received.bytes_per_s = meter.bytes_per_s();
  received.busy_ratio = busy->ratio();
  if (auto ok = stream.send_line(to_line(received), until); !ok) {
    return tl::unexpected(ok.error());
  }
  return received;
}

}  // namespace tapas::agent::probe
