// The real tapas-agent and real ranks, with the daemon's end of the wire in the test's hands.
#include "temporary_folder.h"
#include "wire/message_codec.h"
#include "wire/record_codec.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.hpp>

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tapas {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = 30s;  // For a loaded machine; a good run needs a few seconds in all.

/// A program started by the test; killed and reaped with it.
class Program {
 public:
  Program(const std::string& name, std::vector<std::string> arguments,
          const std::map<std::string, std::string>& environment = {},
          const std::string& output = "/dev/null") {
    arguments.insert(arguments.begin(), std::string(TAPAS_PROGRAM_DIR "/") + name);
    std::vector<char*> argv;
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      for (const auto& [key, value] : environment) {
        ::setenv(key.c_str(), value.c_str(), 1);
      }
      const int fd = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(fd, 1);
      ::dup2(fd, 2);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Program() { stop(SIGKILL); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Exit status, or 128 + the signal that ended it.
  int stop(int signal) {
    if (pid_ > 0) {
      ::kill(pid_, signal);
    }
    return wait();
  }
  int wait() {
    int status = 0;
    if (pid_ > 0) {
      ::waitpid(pid_, &status, 0);
      pid_ = -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  [[nodiscard]] bool running() const { return ::kill(pid_, 0) == 0; }

 private:
  pid_t pid_ = -1;
};

struct Keys {
  std::array<char, 41> secret_key = {};
  std::array<char, 41> public_key = {};
  Keys() { zmq_curve_keypair(public_key.data(), secret_key.data()); }
};

/// One context for the process, as libzmq wants it.
zmq::context_t& context() {
  static zmq::context_t shared(1);
  return shared;
}

/// The daemon's end: collects what agents say, answers only what the test asks for.
class DaemonEnd {
 public:
  explicit DaemonEnd(const Keys& keys) : socket_(context(), zmq::socket_type::router) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::curve_server, true);
    socket_.set(zmq::sockopt::curve_secretkey, std::string(keys.secret_key.data()));
    socket_.bind("tcp://127.0.0.1:*");
  }
  [[nodiscard]] std::string endpoint() const { return socket_.get(zmq::sockopt::last_endpoint); }

  void send(const wire::ToAgent& message) {
    const wire::Frames frames = wire::encode(message, ++sequence_);
    socket_.send(zmq::buffer(peer), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(frames.header), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(frames.payload), zmq::send_flags::none);
  }

  /// Serves until `done` holds; false when it does not in time.
  bool serve_until(const std::function<bool()>& done, std::chrono::seconds patience = kPatience) {
    const auto deadline = Clock::now() + patience;
    while (!done()) {
      if (Clock::now() > deadline) {
        return false;
      }
      receive();
    }
    return true;
  }

  bool answers_heartbeats = true;
  std::string peer;  ///< routing id of the newest hello
  std::vector<wire::Hello> hellos;
  std::vector<wire::Heartbeat> heartbeats;
  std::vector<wire::Vote> votes;
  std::vector<wire::StepRecord> records;

 private:
  void receive() {
    std::array<zmq::pollitem_t, 1> items = {{{socket_.handle(), 0, ZMQ_POLLIN, 0}}};
    zmq::poll(items.data(), items.size(), 50ms);
    zmq::message_t id;
    while (socket_.recv(id, zmq::recv_flags::dontwait)) {
      zmq::message_t header;
      zmq::message_t payload;
      ASSERT_TRUE(socket_.recv(header));
      ASSERT_TRUE(socket_.recv(payload));
      ASSERT_FALSE(payload.more());
      const auto bytes = [](const zmq::message_t& part) {
        return std::span(static_cast<const std::byte*>(part.data()), part.size());
      };
      const std::array<std::span<const std::byte>, 2> frames = {bytes(header), bytes(payload)};
      const auto message = wire::decode_to_daemon(frames);
      ASSERT_TRUE(message) << message.error().message;
      take(id.to_string(), *message);
    }
  }

  void take(const std::string& id, const wire::ToDaemon& message) {
    if (const auto* hello = std::get_if<wire::Hello>(&message)) {
      peer = id;
      hellos.push_back(*hello);
      send(wire::Welcome{1, 0.2});
    } else if (const auto* heartbeat = std::get_if<wire::Heartbeat>(&message)) {
      heartbeats.push_back(*heartbeat);
      if (answers_heartbeats) {
        send(wire::HeartbeatAck{1});
      }
    } else if (const auto* vote = std::get_if<wire::Vote>(&message)) {
      votes.push_back(*vote);
    } else if (const auto* telemetry = std::get_if<wire::Telemetry>(&message)) {
      const auto decoded = wire::decode_records(telemetry->records);
      ASSERT_TRUE(decoded) << decoded.error().message;
      for (const wire::Record& record : *decoded) {
        records.push_back(std::get<wire::StepRecord>(record));
      }
    }
  }

  zmq::socket_t socket_;
  std::uint64_t sequence_ = 0;
};

class AgentProgram : public testing::Test {
 protected:
  AgentProgram() {
    folder.write("head.pub", head.public_key.data());
    folder.write("n0.key", node.secret_key.data());
    ::chmod(folder.file("n0.key").c_str(), 0600);
    ::mkdir(folder.file("ranks").c_str(), 0700);
    write_config(daemon.endpoint());
  }
  void write_config(const std::string& endpoint) {
    folder.write("agent.json", R"({"schema":"tapas.agent/1","node":"n0","daemon_endpoint":")" +
                                   endpoint +
                                   R"(","daemon_public_key":"head.pub","secret_key":"n0.key",)"
                                   R"("rank_dir":"ranks","scan_interval_s":0.1})");
  }
  ~AgentProgram() override {
    if (HasFailure()) {
      std::ifstream log(folder.file("log"));
      std::cerr << log.rdbuf();
    }
  }

  std::unique_ptr<Program> start_agent(const std::map<std::string, std::string>& environment = {}) {
    return std::make_unique<Program>(
        "tapas-agent", std::vector<std::string>{"--config", folder.file("agent.json")}, environment,
        folder.file("log"));
  }
  std::unique_ptr<Program> start_rank(int number) {
    return std::make_unique<Program>(
        "tapas-example-rank",
        std::vector<std::string>{"--job", "j", "--node", "n0", "--rank", std::to_string(number),
                                 "--dir", folder.file("ranks"), "--steps", "100000", "--step-ms",
                                 "10"},
        std::map<std::string, std::string>{}, folder.file("log"));
  }
  bool wait_for_ranks(std::size_t count) {
    return daemon.serve_until([&] {
      return !daemon.hellos.empty() && !daemon.hellos.back().attachments.empty() &&
             daemon.hellos.back().attachments[0].ranks.size() == count;
    });
  }
  bool wait_for_record(std::uint64_t epoch, std::uint64_t after_step = 0) {
    return daemon.serve_until([&] {
      return !daemon.records.empty() && daemon.records.back().epoch == epoch &&
             daemon.records.back().step > after_step;
    });
  }
  std::optional<wire::Vote> command(wire::SwitchOrder order, std::uint64_t at_step = 0) {
    daemon.votes.clear();
    daemon.send(wire::SwitchCommand{order, "j", 1, 1, 2, at_step, ""});
    if (!daemon.serve_until([&] { return !daemon.votes.empty(); })) {
      return std::nullopt;
    }
    return daemon.votes.front();
  }

  TemporaryFolder folder;
  Keys head;
  Keys node;
  DaemonEnd daemon{head};
};

TEST_F(AgentProgram, CarriesASwitchToRunningRanks) {
  const auto first = start_rank(0);
  const auto second = start_rank(1);
  const auto agent = start_agent();
  ASSERT_TRUE(wait_for_ranks(2));
  EXPECT_EQ(daemon.hellos.back().node, "n0");
  daemon.send(wire::PlanChunk{"j", 1, 1, true, 0, 1, "{1}"});
  ASSERT_TRUE(wait_for_record(1));
  daemon.send(wire::PlanChunk{"j", 1, 2, false, 0, 2, "{"});
  daemon.send(wire::PlanChunk{"j", 1, 2, false, 1, 2, "2}"});

  const auto prepared = command(wire::SwitchOrder::kPrepare);
  ASSERT_TRUE(prepared);
  EXPECT_TRUE(prepared->ok) << prepared->reason;
  const std::uint64_t hold_at = daemon.records.back().step + 50;
  const auto armed = command(wire::SwitchOrder::kArm, hold_at);
  ASSERT_TRUE(armed);
  EXPECT_TRUE(armed->ok) << armed->reason;
  EXPECT_EQ(armed->step, hold_at);
  const auto transferred = command(wire::SwitchOrder::kTransfer);
  ASSERT_TRUE(transferred);
  EXPECT_TRUE(transferred->ok) << transferred->reason;
  const auto committed = command(wire::SwitchOrder::kCommit);
  ASSERT_TRUE(committed);
  EXPECT_TRUE(committed->ok) << committed->reason;

  ASSERT_TRUE(wait_for_record(2, hold_at + 5));
  for (const wire::StepRecord& record : daemon.records) {
    if (record.epoch != 0) {
      EXPECT_EQ(record.epoch, record.step <= hold_at ? 1U : 2U) << "step " << record.step;
    }
  }
  EXPECT_EQ(agent->stop(SIGTERM), 0);
}

TEST_F(AgentProgram, LeavesRanksOnTheOldPlanAfterAnAbort) {
  const auto rank = start_rank(0);
  const auto agent = start_agent();
  ASSERT_TRUE(wait_for_ranks(1));
  daemon.send(wire::PlanChunk{"j", 1, 1, true, 0, 1, "{1}"});
  daemon.send(wire::PlanChunk{"j", 1, 2, false, 0, 1, "{2}"});
  ASSERT_TRUE(wait_for_record(1));
  ASSERT_TRUE(command(wire::SwitchOrder::kPrepare)->ok);
  const std::uint64_t hold_at = daemon.records.back().step + 30;
  ASSERT_TRUE(command(wire::SwitchOrder::kArm, hold_at)->ok);
  const auto aborted = command(wire::SwitchOrder::kAbort);
  ASSERT_TRUE(aborted);
  EXPECT_TRUE(aborted->ok) << aborted->reason;
  EXPECT_TRUE(wait_for_record(1, hold_at)) << "training goes on where it held";
}

TEST_F(AgentProgram, MakesANewConnectionWhenTheDaemonGoesSilent) {
  const auto agent = start_agent();
  ASSERT_TRUE(daemon.serve_until([&] { return !daemon.heartbeats.empty(); }));
  const std::string before = daemon.peer;
  daemon.answers_heartbeats = false;
  ASSERT_TRUE(daemon.serve_until([&] { return daemon.peer != before; }));
  daemon.answers_heartbeats = true;
  EXPECT_EQ(daemon.hellos.front().nonce, daemon.hellos.back().nonce) << "it is the same agent";
}

TEST_F(AgentProgram, MayDieWithoutHarmToRanksOrEpochs) {
  const auto rank = start_rank(0);
  auto agent = start_agent();
  ASSERT_TRUE(wait_for_ranks(1));
  daemon.send(wire::PlanChunk{"j", 1, 1, true, 0, 1, "{1}"});
  ASSERT_TRUE(wait_for_record(1));
  agent->stop(SIGKILL);
  EXPECT_TRUE(rank->running());
  const std::uint64_t last_step = daemon.records.back().step;
  const std::uint64_t first_nonce = daemon.hellos.back().nonce;
  daemon.records.clear();
  agent = start_agent();
  ASSERT_TRUE(daemon.serve_until([&] { return daemon.hellos.back().nonce != first_nonce; }));
  ASSERT_TRUE(wait_for_ranks(1));
  EXPECT_EQ(daemon.hellos.back().attachments[0].epoch, 1U) << "learnt from the rank";
  ASSERT_TRUE(wait_for_record(1, last_step + 20));
  EXPECT_GT(daemon.records.front().step, last_step);
}

TEST_F(AgentProgram, SendsTheLastRecordsOfARankThatDied) {
  const auto rank = start_rank(0);
  const auto agent = start_agent();
  ASSERT_TRUE(wait_for_ranks(1));
  rank->stop(SIGKILL);
  ASSERT_TRUE(daemon.serve_until([&] { return daemon.hellos.back().attachments.empty(); }));
  EXPECT_FALSE(daemon.records.empty());
  EXPECT_EQ(std::filesystem::exists(folder.file("ranks")) &&
                !std::filesystem::is_empty(folder.file("ranks")),
            false)
      << "the dead rank's segment is removed";
}

TEST_F(AgentProgram, TrustsOnlyTheDaemonWithTheKeyItWasGiven) {
  const Keys other;
  folder.write("head.pub", other.public_key.data());
  const auto agent = start_agent();
  EXPECT_FALSE(daemon.serve_until([&] { return !daemon.hellos.empty(); }, 2s));
  EXPECT_TRUE(agent->running());
}

TEST_F(AgentProgram, TellsSystemdHowItIs) {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  ASSERT_GE(fd, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = folder.file("notify");
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const auto agent = start_agent({{"NOTIFY_SOCKET", path}, {"WATCHDOG_USEC", "200000"}});
  std::string said;
  const bool all = daemon.serve_until([&] {
    std::array<char, 1024> buffer = {};
    ssize_t size = 0;
    while ((size = ::recv(fd, buffer.data(), buffer.size(), 0)) > 0) {
      said += std::string(buffer.data(), static_cast<std::size_t>(size)) + "\n";
    }
    const auto has = [&said](const char* text) { return said.find(text) != std::string::npos; };
    return has("READY=1") && has("WATCHDOG=1") && has("connected to tcp://");
  });
  EXPECT_TRUE(all) << said;
  EXPECT_EQ(agent->stop(SIGTERM), 0);
  ::close(fd);
}

int exit_of(const std::vector<std::string>& arguments) {
  return Program("tapas-agent", arguments).wait();
}

TEST_F(AgentProgram, ExitsWithItsReason) {
  const std::string path = folder.file("agent.json");
  EXPECT_EQ(exit_of({"--help"}), 0);
  EXPECT_EQ(exit_of({"--version"}), 0);
  EXPECT_EQ(exit_of({"--bogus"}), 2);
  EXPECT_EQ(exit_of({"--config", path, "--check-config"}), 0);
  EXPECT_EQ(exit_of({"--config", folder.file("none.json")}), 78);
  ::chmod(folder.file("n0.key").c_str(), 0644);
  EXPECT_EQ(exit_of({"--config", path, "--check-config"}), 78);
  ::chmod(folder.file("n0.key").c_str(), 0600);
  ::rmdir(folder.file("ranks").c_str());
  EXPECT_EQ(exit_of({"--config", path}), 78);
  ::mkdir(folder.file("ranks").c_str(), 0700);
  write_config("tcp://");
  EXPECT_EQ(exit_of({"--config", path}), 78);
}

}  // namespace
}  // namespace tapas
