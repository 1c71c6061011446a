#pragma once

#include "base/result.h"
#include "wire/message.h"
#include "wire/message_codec.h"
#include "wire/record_codec.h"

#include <gtest/gtest.h>
#include <zmq.hpp>

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tapas::twin {

/// The daemon's side of the wire for one test: a real CURVE ROUTER on loopback that welcomes every
/// node, answers heartbeats, keeps what it hears, and sends what the test tells it to.
class FakeDaemon {
  // An agent gives up a daemon that misses three, and orders sent to it then are lost: longer than
  // a busy machine lets a test stand still.
  static constexpr double kHeartbeatS = 2;

 public:
  struct Keys {
    std::string public_key;
    std::string secret_key;
  };
  static Keys make_keys() {
    std::array<char, 41> public_key = {};
    std::array<char, 41> secret_key = {};
    EXPECT_EQ(zmq_curve_keypair(public_key.data(), secret_key.data()), 0);
    return {public_key.data(), secret_key.data()};
  }

  FakeDaemon(const Keys& keys, std::uint64_t term, const std::string& endpoint)
      : term_(term), router_(context_, zmq::socket_type::router) {
    router_.set(zmq::sockopt::curve_server, true);
    router_.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    router_.set(zmq::sockopt::linger, 0);
    router_.bind(endpoint);
  }
  [[nodiscard]] std::string endpoint() const { return router_.get(zmq::sockopt::last_endpoint); }

  void pump() {
    while (true) {
      std::vector<zmq::message_t> frames;
      do {
        zmq::message_t frame;
        if (!router_.recv(frame, zmq::recv_flags::dontwait)) {
          return;
        }
        frames.push_back(std::move(frame));
      } while (frames.back().more());
      std::vector<std::span<const std::byte>> views;
      for (std::size_t i = 1; i < frames.size(); ++i) {
        views.emplace_back(frames[i].data<std::byte>(), frames[i].size());
      }
      const auto message = wire::decode_to_daemon(views);
      ASSERT_TRUE(message) << message.error().message;
      hear(frames[0].to_string(), *message);
    }
  }

  void send(const std::string& node, const wire::ToAgent& message) {
    send_to(peers.at(node), message);
  }
  void send_all(const wire::ToAgent& message) {
    for (const auto& [node, peer] : peers) {
      send_to(peer, message);
    }
  }
  void order_all(wire::SwitchOrder order, const std::string& job, std::uint64_t from,
                 std::uint64_t to, std::uint64_t at_step = 0) {
    send_all(wire::SwitchCommand{order, job, term_, from, to, at_step, {}});
  }
  /// Nodes whose vote for (epoch, phase) came, with ok as given.
  [[nodiscard]] std::size_t votes_for(std::uint64_t epoch, wire::Phase phase,
                                      bool ok = true) const {
    std::size_t count = 0;
    for (const auto& [node, vote] : votes) {
      count += vote.epoch == epoch && vote.phase == phase && vote.ok == ok ? 1 : 0;
    }
    return count;
  }
  [[nodiscard]] std::size_t records_of(std::uint64_t epoch) const {
    std::size_t count = 0;
    for (const auto& record : records) {
      count += record.epoch == epoch ? 1 : 0;
    }
    return count;
  }

  std::map<std::string, std::string> peers;  // node -> routing id
  std::map<std::string, wire::Hello> hellos;
  std::multimap<std::string, wire::Vote> votes;
  std::vector<wire::StepRecord> records;
  std::vector<wire::LinkRecord> links;

 private:
  void hear(const std::string& peer, const wire::ToDaemon& message) {
    if (const auto* hello = std::get_if<wire::Hello>(&message)) {
      peers[hello->node] = peer;
      node_of_[peer] = hello->node;
      hellos[hello->node] = *hello;
      send_to(peer, wire::Welcome{term_, kHeartbeatS});
    } else if (std::holds_alternative<wire::Heartbeat>(message)) {
      send_to(peer, wire::HeartbeatAck{term_});
    } else if (const auto* vote = std::get_if<wire::Vote>(&message)) {
      votes.emplace(node_of_[peer], *vote);
    } else if (const auto* telemetry = std::get_if<wire::Telemetry>(&message)) {
      const auto decoded = wire::decode_records(telemetry->records);
      ASSERT_TRUE(decoded) << decoded.error().message;
      for (const wire::Record& record : *decoded) {
        if (const auto* link = std::get_if<wire::LinkRecord>(&record)) {
          links.push_back(*link);
        } else {
          records.push_back(std::get<wire::StepRecord>(record));
        }
      }
    }
  }
  void send_to(const std::string& peer, const wire::ToAgent& message) {
    const wire::Frames frames = wire::encode(message, ++sequence_);
    router_.send(zmq::buffer(peer), zmq::send_flags::sndmore);
    router_.send(zmq::buffer(frames.header), zmq::send_flags::sndmore);
    router_.send(zmq::buffer(frames.payload), zmq::send_flags::none);
  }

  const std::uint64_t term_;
  zmq::context_t context_;
  zmq::socket_t router_;
  std::map<std::string, std::string> node_of_;
  std::uint64_t sequence_ = 0;
};

}  // namespace tapas::twin
