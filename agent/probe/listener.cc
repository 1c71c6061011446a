#include "agent/probe/listener.h"

#include "agent/probe/interface.h"
#include "agent/probe/messages.h"
#include "agent/probe/report.h"
#include "agent/probe/transfer.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>

namespace tapas::agent::probe {

namespace {

/// For a peer to say what it wants. Others wait meanwhile.
constexpr std::chrono::seconds kHelloTime{2};
/// Strangers who come again and again must not fill the log.
constexpr int kMaxTold = 100;

/// Takes as long wherever the first difference is.
bool alike(const std::string& one, const std::string& other) {
  unsigned difference = one.size() == other.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i) {
    difference |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  }
  return difference == 0;
}

/// Answers a hello; the error was told to the peer.
Result<Load> admit(Stream& stream, const Service& service) {
  const auto until = Clock::now() + kHelloTime;
  const auto refuse = [&](const Error& why) -> Result<Load> {
    const auto ignored = stream.send_line(refusal(why.message), until);
    return tl::unexpected(why);
  };
  const auto line = stream.receive_line(until);
  if (!line) {
    return tl::unexpected(line.error());
  }
  const auto hello = parse_hello(*line);
  if (!hello) {
    return refuse(hello.error());
  }
  if (!alike(hello->token, service.token)) {
    return refuse({ErrorCode::kDenied, "wrong token: give the one that the listener printed"});
  }
  const auto nominal = lesser(interface_of(stream.fd()).bytes_per_s, hello->nominal_bytes_per_s);
  auto load = agree(service.limits, hello->limits, nominal);
  if (!load) {
    return refuse(load.error());
  }
  if (auto ok = stream.send_line(to_line(*load), until); !ok) {
    return tl::unexpected(ok.error());
  }
  return load;
}

Result<std::string> serve_load(Stream& stream, const Load& load) {
  const auto to_here = receive_load(stream, load, end_of(load));
  if (!to_here) {
    return fail_in("while receiving", to_here.error());
  }
  const auto from_here = send_load(stream, load, end_of(load));
  if (!from_here) {
    return fail_in("while sending", from_here.error());
  }
  if (auto ok = stream.send_line(to_line(from_here->sent), Clock::now() + kHelloTime); !ok) {
    return tl::unexpected(ok.error());
  }
  return fmt::format("{} came here, {} went from here", rate_text(to_here->bytes_per_s),
                     rate_text(from_here->received.bytes_per_s));
}

bool is_allowed(const std::vector<IpRange>& ranges, const Ip& ip) {
  return ranges.empty() || std::any_of(ranges.begin(), ranges.end(),
                                       [&](const IpRange& range) { return range.contains(ip); });
}

}  // namespace

Result<std::string> make_token() {
  std::array<unsigned char, 16> random;
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return fail(ErrorCode::kIo, "the system gives no random numbers");
  }
  return fmt::format("{:02x}", fmt::join(random, ""));
}

Result<int> serve(Door& door, const Service& service,
                  const std::function<void(const std::string&)>& tell) {
  int done = 0;
  int turned_away = 0;
  const auto turn_away = [&](const Ip& from, const std::string& why) {
    if (++turned_away <= kMaxTold) {
      tell(fmt::format("{}: turned away: {}", to_string(from), why));
    }
  };
  while (true) {
    auto visitor = door.next(service.until);
    if (!visitor) {
      return tl::unexpected(visitor.error());
    }
    if (!*visitor) {
      return done;
    }
    auto& [stream, from] = **visitor;
    if (!is_allowed(service.allowed, from)) {
      turn_away(from, "--allow does not name it");
      continue;
    }
    const auto load = admit(stream, service);
    if (!load) {
      turn_away(from, load.error().message);
      continue;
    }
    const auto served = serve_load(stream, *load);
    tell(fmt::format("{}: {}", to_string(from), served ? *served : served.error().message));
    done += served ? 1 : 0;
    if (service.once) {
      return done;
    }
  }
}

}  // namespace tapas::agent::probe
