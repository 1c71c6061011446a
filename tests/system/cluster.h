#pragma once

#include "base/json/json.h"
#include "tests/system/process.h"
#include "wire/message_codec.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <zmq.hpp>

#include <array>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

/// A head with a real tapasd, and whoever talks to it.
namespace tapas::test {

/// libzmq 4.3.4 may crash when a process closes a second context with CURVE.
inline zmq::context_t& zmq_context() {
  static zmq::context_t context;
  return context;
}

struct KeyPair {
  std::string public_key;
  std::string secret_key;

  static KeyPair fresh() {
    std::array<char, 41> open = {};
    std::array<char, 41> secret = {};
    zmq_curve_keypair(open.data(), secret.data());
    return {open.data(), secret.data()};
  }
};

struct HttpAnswer {
  int status = 0;  ///< 0 = no answer
  json::Value body;
};

inline HttpAnswer http(const std::string& socket_path, const std::string& method,
                       const std::string& target, const std::string& body = "") {
  const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
  HttpAnswer answer;
  std::string text;
  if (connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = fmt::format(
        "{} {} HTTP/1.1\r\nHost: tapas\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
        method, target, body.size(), body);
    if (write(client, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      std::array<char, 65536> piece;
      for (ssize_t n = 0; (n = read(client, piece.data(), piece.size())) > 0;) {
        text.append(piece.data(), static_cast<std::size_t>(n));
      }
    }
  }
  close(client);
  const std::size_t blank = text.find("\r\n\r\n");
  if (text.rfind("HTTP/1.1 ", 0) == 0 && blank != std::string::npos) {
    answer.status = std::stoi(text.substr(9, 3));
    auto value = json::parse(std::string_view(text).substr(blank + 4));
    if (value) {
      answer.body = *std::move(value);
    }
  }
  return answer;
}

class Cluster {
 public:
  /// Keys for the daemon and for each node; `config` is merged over the defaults.
  explicit Cluster(const std::vector<std::string>& nodes,
                   json::Value config = json::Value::object())
      : server_(KeyPair::fresh()), port_(free_port()) {
    for (const char* folder : {"agents", "keys", "state"}) {
      std::filesystem::create_directory(dir / folder);
    }
    write_secret(dir / "server.key", server_.secret_key);
    write_file(dir / "server.pub", server_.public_key + "\n");
    for (const std::string& node : nodes) {
      keys_.emplace_back(node, KeyPair::fresh());
      write_secret(dir / ("keys/" + node + ".key"), keys_.back().second.secret_key);
      allow(node, keys_.back().second.public_key);
    }
    json::Value merged = {{"schema", "tapas.tapasd/1"}, {"listen", endpoint()},
                          {"server_key", "server.key"}, {"agent_keys", "agents"},
                          {"state_dir", "state"},       {"control_socket", "tapasd.sock"}};
    merged.update(config);
    write_file(dir / "tapasd.json", json::dump(merged, 2));
  }

  static void write_secret(const std::string& path, const std::string& key) {
    write_file(path, key + "\n");
    chmod(path.c_str(), 0600);
  }
  void allow(const std::string& node, const std::string& public_key) const {
    write_file(dir / ("agents/" + node + ".pub"), public_key + "\n");
  }

  std::unique_ptr<Process> spawn_daemon(
      const std::vector<std::pair<std::string, std::string>>& environment = {}) const {
    return std::make_unique<Process>(
        std::vector<std::string>{program("tapasd"), "--config", dir / "tapasd.json"},
        dir / "tapasd.log", environment);
  }
  /// Starts tapasd and waits until it answers.
  [[nodiscard]] bool start() {
    daemon = spawn_daemon();
    return eventually([this] { return status().is_object() || !daemon->running(); }) &&
           daemon->running();
  }

  [[nodiscard]] HttpAnswer get(const std::string& target) const {
    return http(dir / "tapasd.sock", "GET", target);
  }
  [[nodiscard]] HttpAnswer post(const std::string& target, const std::string& body) const {
    return http(dir / "tapasd.sock", "POST", target, body);
  }
  /// null while the daemon is away.
  [[nodiscard]] json::Value status() const { return get("/v1/status").body; }
  [[nodiscard]] std::int64_t rejected(const std::string& reason) const {
    const json::Value now = status();
    return now.is_object() ? now["rejected"].value(reason, std::int64_t{0}) : 0;
  }
  [[nodiscard]] bool connected(const std::string& node) const {
    const json::Value now = status();
    for (const json::Value& agent : now.is_object() ? now["agents"] : json::Value::array()) {
      if (agent["node"] == node) {
        return agent["connected"].get<bool>();
      }
    }
    return false;
  }
  [[nodiscard]] json::Value events() const {
    const HttpAnswer answer = get("/v1/events?after=0&limit=1000");
    return answer.status == 200 ? answer.body["events"] : json::Value::array();
  }
  [[nodiscard]] bool has_event(const std::string& kind) const {
    for (const json::Value& event : events()) {
      if (event["kind"] == kind) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] std::string endpoint() const { return fmt::format("tcp://127.0.0.1:{}", port_); }
  [[nodiscard]] const KeyPair& server() const { return server_; }
  [[nodiscard]] const KeyPair& key(const std::string& node) const {
    for (const auto& [name, pair] : keys_) {
      if (name == node) {
        return pair;
      }
    }
    std::abort();
  }
  [[nodiscard]] std::string log() const { return read_file(dir / "tapasd.log"); }

  TempDir dir;
  std::unique_ptr<Process> daemon;

 private:
  KeyPair server_;
  std::uint16_t port_;
  std::vector<std::pair<std::string, KeyPair>> keys_;
};

/// The bare wire of an agent: sends whatever a test wants.
class WireClient {
 public:
  /// reconnect_ms: -1 = never.
  WireClient(const Cluster& cluster, const KeyPair& keys, int reconnect_ms = 100)
      : socket_(zmq_context(), zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::reconnect_ivl, reconnect_ms);
    socket_.set(zmq::sockopt::handshake_ivl, 1000);
    socket_.set(zmq::sockopt::curve_serverkey, cluster.server().public_key);
    socket_.set(zmq::sockopt::curve_publickey, keys.public_key);
    socket_.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    socket_.connect(cluster.endpoint());
  }

  void send(const wire::ToDaemon& message) {
    const wire::Frames frames = wire::encode(message, ++sequence_);
    socket_.send(zmq::buffer(frames.header), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(frames.payload), zmq::send_flags::none);
  }
  void send_raw(const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      socket_.send(zmq::buffer(frames[i]),
                   i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }

  /// The next message of the daemon, or nothing in that time.
  std::optional<wire::ToAgent> receive(std::chrono::milliseconds patience) {
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(patience.count()));
    std::vector<zmq::message_t> parts;
    do {
      zmq::message_t part;
      if (!socket_.recv(part)) {
        return std::nullopt;
      }
      parts.push_back(std::move(part));
    } while (parts.back().more());
    std::vector<std::span<const std::byte>> frames;
    for (const zmq::message_t& part : parts) {
      frames.emplace_back(part.data<std::byte>(), part.size());
    }
    auto message = wire::decode_to_agent(frames);
    return message ? std::optional(*std::move(message)) : std::nullopt;
  }

  /// Notes from now on when the daemon closes the connection.
  void watch() {
    static int watched = 0;
    const std::string name = fmt::format("inproc://wire-client-{}", ++watched);
    zmq_socket_monitor(socket_.handle(), name.c_str(), ZMQ_EVENT_DISCONNECTED);
    events_ = zmq::socket_t(zmq_context(), zmq::socket_type::pair);
    events_.connect(name);
  }
  [[nodiscard]] bool closed_by_peer() {
    zmq::message_t event;
    return events_.recv(event, zmq::recv_flags::dontwait).has_value();
  }

  /// The next message of that type; others are passed over.
  template <typename Message>
  std::optional<Message> receive_a(Clock::duration patience = kPatience) {
    for (const auto end = Clock::now() + patience; Clock::now() < end;) {
      const auto message = receive(100ms);
      if (message && std::holds_alternative<Message>(*message)) {
        return std::get<Message>(*message);
      }
    }
    return std::nullopt;
  }

 private:
  zmq::socket_t socket_;
  zmq::socket_t events_;
  std::uint64_t sequence_ = 0;
};

inline wire::Hello hello_of(const std::string& node) {
  wire::Hello hello;
  hello.node = node;
  hello.nonce = 1;
  return hello;
}

}  // namespace tapas::test
