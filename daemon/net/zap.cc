#include "daemon/net/zap.h"

#include "base/log/log.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace tapas::daemon {
namespace {

constexpr std::size_t kRequestFrames = 7;  // version, id, domain, address, identity, mechanism, key
constexpr std::size_t kKeyBytes = 32;

std::string z85(const zmq::message_t& key) {
  std::array<char, 41> text = {};
  zmq_z85_encode(text.data(), key.data<std::uint8_t>(), kKeyBytes);
  return text.data();
}

}  // namespace

ZapHandler::ZapHandler(zmq::context_t& context, std::string keys_folder, RejectCounter& rejects)
    : socket_(context, zmq::socket_type::rep),
      keys_folder_(std::move(keys_folder)),
      rejects_(rejects) {}

void ZapHandler::bind() {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind("inproc://zeromq.zap.01");
}

void ZapHandler::answer(const AllowList& agents) {
  while (answer_one(agents)) {
  }
}

bool ZapHandler::answer_one(const AllowList& agents) {
  std::vector<zmq::message_t> request;
  do {
    zmq::message_t part;
    if (!socket_.recv(part, zmq::recv_flags::dontwait)) {
      return false;
    }
    request.push_back(std::move(part));
  } while (request.back().more());

  const bool curve = request.size() == kRequestFrames && request[5].to_string_view() == "CURVE" &&
                     request[6].size() == kKeyBytes;
  const std::string key = curve ? z85(request[6]) : std::string();
  const auto node = curve ? agents.node_of(key) : std::nullopt;
  const std::string_view address =
      request.size() > 3 ? request[3].to_string_view() : std::string_view("?");
  std::string_view status = "200";
  std::string_view text = "OK";
  if (!node) {
    status = curve ? "300" : "400";
    text = curve ? "key not allowed" : "CURVE wanted";
    refuse_unknown(address, key);
  } else if (!within_quota(*node, address)) {
    status = "300";
    text = "too many connections";
  }
  const std::string_view request_id =
      request.size() > 1 ? request[1].to_string_view() : std::string_view();
  const std::array<std::string_view, 6> reply = {
      "1.0", request_id, status, text, node ? std::string_view(*node) : std::string_view(), ""};
  for (std::size_t i = 0; i < reply.size(); ++i) {
    const auto flags = i + 1 < reply.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
    socket_.send(zmq::const_buffer(reply[i].data(), reply[i].size()), flags);
  }
  return true;
}

void ZapHandler::refuse_unknown(std::string_view address, std::string_view key) {
  rejects_.add("unknown_key");
  log::warning_limited(
      "net", fmt::format("unknown key {}", address),
      fmt::format("a peer at {} with the public key \"{}\" was turned away: the key is not in {}; "
                  "if it is an agent of ours, put the key there as <node>.pub and reload tapasd",
                  address, key, keys_folder_));
}

bool ZapHandler::within_quota(const std::string& node, std::string_view address) {
  if (quotas_[node].take(TokenBucket::Clock::now())) {
    return true;
  }
  rejects_.add("handshake_rate");
  log::warning_limited(
      "net", fmt::format("handshakes {}", node),
      fmt::format("a connection of node {} from {} was turned away: more than {:.0f} at once and "
                  "{:.0f} a second; look at tapas-agent on that node, and whether its key is in "
                  "use elsewhere",
                  node, address, HandshakeQuota::kBurst, HandshakeQuota::kPerS));
  return false;
}

}  // namespace tapas::daemon
