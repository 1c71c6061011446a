#include "agent/probe/prober.h"

#include "agent/probe/interface.h"
#include "agent/probe/messages.h"
#include "agent/probe/transfer.h"

#include <algorithm>
#include <utility>

namespace tapas::agent::probe {

namespace {

Result<Load> ask(Stream& stream, const Hello& hello, Clock::time_point until) {
  if (auto ok = stream.send_line(to_line(hello), until); !ok) {
    return tl::unexpected(ok.error());
  }
  const auto line = stream.receive_line(until);
  if (!line) {
    return tl::unexpected(line.error());
  }
  auto load = parse_load(*line);
  if (!load) {
    return load;
  }
  if (!allows(hello.limits, hello.nominal_bytes_per_s, *load)) {
    return fail(ErrorCode::kInvalid, "it wants more of the link than was asked for");
  }
  return load;
}

Result<Transfer> fetch(Stream& stream, const Load& load, Clock::time_point until) {
  const auto received = receive_load(stream, load, until);
  if (!received) {
    return tl::unexpected(received.error());
  }
  const auto line = stream.receive_line(until);
  if (!line) {
    return tl::unexpected(line.error());
  }
  const auto sent = parse_sent(*line);
  if (!sent) {
    return tl::unexpected(sent.error());
  }
  return Transfer{*sent, *received};
}

Result<Report> try_probe(const HostPort& peer, const std::string& token, const Limits& limits,
                         Clock::time_point until) {
  auto stream = Stream::connect(peer, until);
  if (!stream) {
    return tl::unexpected(stream.error());
  }
  const Interface mine = interface_of(stream->fd());
  Report report;
  report.peer = peer;
  report.interface = mine.name;
  auto load = ask(*stream, {token, mine.bytes_per_s, limits}, until);
  if (!load) {
    return tl::unexpected(load.error());
  }
  report.load = *load;
  report.rtt_s = stream->counts().least_rtt_s;
  auto to = send_load(*stream, *load, std::min(until, end_of(*load)));
  if (!to) {
    return fail_in("while sending", to.error());
  }
  report.to = *to;
  auto from = fetch(*stream, *load, std::min(until, end_of(*load)));
  if (!from) {
    return fail_in("while receiving", from.error());
  }
  report.from = *from;
  return report;
}

}  // namespace

Result<Report> probe(const HostPort& peer, const std::string& token, const Limits& limits,
                     Clock::time_point until) {
  auto report = try_probe(peer, token, limits, until);
  if (!report) {
    return fail_in(to_string(peer), report.error());
  }
  return report;
}

}  // namespace tapas::agent::probe
