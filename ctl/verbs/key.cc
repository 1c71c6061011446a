#include "base/ids.h"
#include "ctl/table.h"
#include "ctl/verbs.h"

#include <CLI/App.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace tapas::ctl {

namespace {

constexpr std::size_t kZ85KeyLength = 40;

struct KeyOptions {
  std::vector<std::string> names;
  std::string dir = ".";
};

/// Never follows or replaces what is there: a lost secret key takes a node off the cluster.
Result<void> write_new(const std::string& path, const std::string& text, mode_t mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (fd < 0) {
    if (errno == EEXIST) {
      return fail(ErrorCode::kConflict, "{} exists already: remove it first if it is not in use",
                  path);
    }
    return fail(ErrorCode::kIo, "cannot create {}: {}", path, std::strerror(errno));
  }
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  if (!written) {
    ::unlink(path.c_str());
    return fail(ErrorCode::kIo, "cannot write {}: {}", path, std::strerror(error));
  }
  return {};
}

Result<Exit> new_keys(const KeyOptions& options) {
  for (const std::string& name : options.names) {
    if (!valid_name(name)) {
      return fail(ErrorCode::kInvalid,
                  "\"{}\" cannot name a key: use letters, digits, '.', '_' and '-'",
                  printable(name));
    }
  }
  for (const std::string& name : options.names) {
    std::array<char, kZ85KeyLength + 1> public_key{};
    std::array<char, kZ85KeyLength + 1> secret_key{};
    if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
      return fail(ErrorCode::kIo, "libzmq cannot make a key pair: {}", zmq_strerror(zmq_errno()));
    }
    const std::string base = options.dir + "/" + name;
    if (auto done = write_new(base + ".key", std::string(secret_key.data()) + "\n", 0600); !done) {
      return tl::unexpected(done.error());
    }
    if (auto done = write_new(base + ".pub", std::string(public_key.data()) + "\n", 0644); !done) {
      ::unlink((base + ".key").c_str());
      return tl::unexpected(done.error());
    }
  }
  say(fmt::format("{} written to {}: NAME.key is secret, NAME.pub goes to the other side",
                  format_count(options.names.size(), "key pair"), options.dir));
  return Exit::kOk;
}

}  // namespace

void add_key(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("key",
                                      "Make the key pairs that daemon and agents know each "
                                      "other by");
  verb->require_subcommand(1);
  verb->footer("Example:\n  tapasctl key new server --dir /etc/tapas");
  CLI::App* create = verb->add_subcommand("new", "Write DIR/NAME.key (secret) and DIR/NAME.pub");
  create->footer(
      "Examples:\n  tapasctl key new server --dir /etc/tapas/keys\n"
      "  tapasctl key new a800-000 a800-001 --dir /etc/tapas/agents\n"
      "The file name of an agent's public key in the daemon's agent_keys folder is the node's "
      "name.");
  auto options = std::make_shared<KeyOptions>();
  create->add_option("NAME", options->names, "\"server\", or node names")->required();
  create->add_option("--dir", options->dir, "Folder that exists; default the current one");
  create->callback([&context, options] { context.run = [options] { return new_keys(*options); }; });
}

}  // namespace tapas::ctl
