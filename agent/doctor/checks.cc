#include "agent/doctor/checks.h"

#include "agent/collect/daemon_link.h"
#include "agent/collect/rank_directory.h"
#include "agent/collect/rank_segment.h"
#include "agent/ras/client.h"
#include "base/endpoint.h"
#include "config/key_file.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

namespace tapas::agent::doctor {

namespace {

namespace fs = std::filesystem;

/// A rank's ring and a plan fit well into this.
constexpr std::uint64_t kLeastFreeBytes = 16U << 20U;
constexpr unsigned kNvidia = 0x10de;
/// Makers whose network cards do RDMA as a rule.
constexpr unsigned kMellanox = 0x15b3;
constexpr double kBytesPerMib = 1024.0 * 1024.0;
constexpr double kUsPerMs = 1000.0;

Check good(std::string name, std::string seen) {
  return {std::move(name), State::kGood, std::move(seen), ""};
}

std::string describe(const std::set<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string_view to_string(State state) {
  switch (state) {
    case State::kGood:
      return "good";
    case State::kNote:
      return "note";
    case State::kBroken:
      return "broken";
  }
  return "";
}

Check check_daemon(const AgentConfig& config, std::chrono::milliseconds patience) {
  Check check{"daemon", State::kBroken, "", ""};
  auto daemon_key = read_public_key(config.daemon_public_key);
  auto secret_key = read_secret_key(config.secret_key);
  if (!daemon_key || !secret_key) {
    check.seen = daemon_key ? secret_key.error().message : daemon_key.error().message;
    check.advice =
        "copy server.pub from the cluster head; `tapasctl key new NODE` makes a node's key";
    return check;
  }
  auto link = DaemonLink::open({std::make_shared<LinkContext>(), config.daemon_endpoint,
                                config.node, static_cast<std::uint64_t>(::getpid()),
                                *std::move(daemon_key), *std::move(secret_key)});
  if (!link) {
    check.seen = link.error().message;
    check.advice = "correct daemon_endpoint or the keys in agent.json";
    return check;
  }
  const auto end = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < end) {
    if (link->poll(std::chrono::milliseconds(50)).connected) {
      return good("daemon", fmt::format("{} lets node {} in", config.daemon_endpoint, config.node));
    }
  }
  if (link->kept_out()) {
    check.seen =
        fmt::format("{} is there and does not let node {} in", config.daemon_endpoint, config.node);
    check.advice = fmt::format(
        "on the cluster head: is {}.pub in tapasd's agent_keys folder, and does it belong to {}? "
        "Is "
        "{} that tapasd's own? `journalctl -u tapasd` names keys it turned away",
        config.node, config.secret_key, config.daemon_public_key);
    return check;
  }
  check.seen = fmt::format("{} does not answer within {} s", config.daemon_endpoint,
                           static_cast<double>(patience.count()) / 1000.0);
  check.advice = "does tapasd run there, and does a firewall let its port through?";
  return check;
}

Check check_rank_dir(const AgentConfig& config) {
  const std::string& dir = config.rank_dir;
  Check check{"rank_dir", State::kBroken, "", ""};
  struct statfs info = {};
  if (::statfs(dir.c_str(), &info) != 0) {
    check.seen = fmt::format("{}: {}", dir, std::strerror(errno));
    check.advice = "`systemd-tmpfiles --create tapas.conf` makes it, or give another rank_dir";
    return check;
  }
  if (::access(dir.c_str(), R_OK | W_OK | X_OK) != 0) {
    check.seen = fmt::format("{}: {}", dir, std::strerror(errno));
    check.advice = "run this as the agent's user (tapas), or give that user the folder";
    return check;
  }
  const std::uint64_t free =
      static_cast<std::uint64_t>(info.f_bavail) * static_cast<std::uint64_t>(info.f_bsize);
  check.state = State::kNote;
  if (info.f_type != TMPFS_MAGIC && info.f_type != RAMFS_MAGIC) {
    check.seen = fmt::format("{} is not in memory", dir);
    check.advice = "use a folder of a tmpfs, such as /dev/shm/tapas: a disk may hold up a rank";
    return check;
  }
  // A ramfs has no limit and says 0.
  if (info.f_type == TMPFS_MAGIC && free < kLeastFreeBytes) {
    check.seen =
        fmt::format("{} has {:.1f} MiB left", dir, static_cast<double>(free) / kBytesPerMib);
    check.advice = "make room in that tmpfs, or mount it larger: ranks that come could not attach";
    return check;
  }
  return good("rank_dir", fmt::format("{} is in memory and can be written", dir));
}

Check check_ranks(const AgentConfig& config) {
  std::size_t dead = 0;
  std::set<std::string> foreign;
  std::map<std::string, std::set<std::uint32_t>> living;
  std::error_code error;
  for (fs::directory_iterator it(config.rank_dir, error), end; !error && it != end;
       it.increment(error)) {
    const std::string file = it->path().filename();
    if (!is_rank_file(file)) {
      continue;
    }
    const auto segment = RankSegment::open(it->path(), config.node);
    if (!segment) {
      if (segment.error().code != ErrorCode::kNotFound) {
        foreign.insert(segment.error().message);
      }
    } else if (segment->alive()) {
      living[segment->job()].insert(segment->rank());  // NCCL's plugin has a file beside its own.
    } else {
      ++dead;
    }
  }
  Check check{"ranks", State::kNote, "", ""};
  if (error) {
    check.seen = fmt::format("{}: {}", config.rank_dir, error.message());
    check.advice = "mend rank_dir first";
    return check;
  }
  if (!foreign.empty()) {
    check.seen =
        fmt::format("{} of the ranks cannot be read: {}", foreign.size(), *foreign.begin());
    check.advice = fmt::format(
        "ranks must name this node \"{}\", as the cluster file does, and leave the files to the "
        "agent's group",
        config.node);
    return check;
  }
  std::vector<std::string> jobs;
  for (const auto& [job, ranks] : living) {
    jobs.push_back(fmt::format("{} of job {}", ranks.size(), job));
  }
  if (jobs.empty()) {
    check.seen = dead == 0 ? "no rank has attached here"
                           : fmt::format("no rank lives, {} left remains", dead);
    check.advice = fmt::format("fine while no job runs; ranks find the agent by TAPAS_RANK_DIR={}",
                               config.rank_dir);
    return check;
  }
  return good("ranks", fmt::format("{}", fmt::join(jobs, ", ")));
}

Check check_clock() {
  struct timex clock = {};
  if (::adjtimex(&clock) == TIME_ERROR || (clock.status & STA_UNSYNC) != 0) {
    return {"clock", State::kNote, "the clock is not synchronised",
            "start chrony or systemd-timesyncd: times of nodes are shown side by side"};
  }
  return good("clock", fmt::format("synchronised, at most {:.1f} ms off",
                                   static_cast<double>(clock.maxerror) / kUsPerMs));
}

Check check_gpus(const health::NodeHealth& node, const std::string& dev) {
  std::size_t nvidia = 0;
  std::size_t others = 0;
  for (const health::PciDevice& device : node.pci) {
    if (device.kind == health::PciKind::kGpu) {
      (device.vendor == kNvidia ? nvidia : others) += 1;
    }
  }
  if (nvidia == 0) {
    return good("gpus", others == 0 ? "none on the PCI bus"
                                    : fmt::format("{} on the PCI bus, none of NVIDIA", others));
  }
  std::error_code error;
  if (!fs::exists(fs::path(dev) / "nvidiactl", error)) {
    return {"gpus", State::kNote,
            fmt::format("{} of NVIDIA on the PCI bus, and no {}/nvidiactl", nvidia, dev),
            "load the driver: `nvidia-smi` says what is wrong with it"};
  }
  std::size_t driven = 0;
  while (driven < nvidia && fs::exists(fs::path(dev) / fmt::format("nvidia{}", driven), error)) {
    ++driven;
  }
  if (driven < nvidia) {
    return {
        "gpus", State::kNote,
        fmt::format("{} of NVIDIA on the PCI bus, the driver has {}", nvidia, driven),
        "`dmesg | grep -i nvrm` says why the driver left one out; in a container it may be meant"};
  }
  return good("gpus", fmt::format("{} of NVIDIA, all with the driver", nvidia));
}

Check check_rdma(const health::NodeHealth& node) {
  std::set<std::string> idle;
  for (const health::PciDevice& device : node.pci) {
    const bool served =
        std::any_of(node.ports.begin(), node.ports.end(),
                    [&](const health::IbPort& port) { return port.pci == device.name; });
    if (device.kind == health::PciKind::kNic && device.vendor == kMellanox && !served) {
      idle.insert(device.name);
    }
  }
  if (!idle.empty()) {
    return {"rdma", State::kNote, fmt::format("no RDMA device at {}", describe(idle)),
            "load mlx5_ib and ib_uverbs (`modprobe mlx5_ib`), or NCCL uses TCP there"};
  }
  return good("rdma",
              node.ports.empty() ? "no RDMA card" : fmt::format("{} ports", node.ports.size()));
}

Check check_pressure(const health::NodeHealth& node) {
  if (node.pressures.empty()) {
    return {
        "pressure", State::kNote, "the kernel tells no pressure (/proc/pressure)",
        "Linux 4.20 or later has it; on some distributions only with psi=1 on its command line"};
  }
  return good("pressure", "the kernel tells it");
}

Check check_nccl(const std::string& address, std::chrono::milliseconds patience) {
  const auto parsed = parse_host_port(address);
  if (!parsed) {
    return {"nccl", State::kNote, parsed.error().message, "correct NCCL_RAS_ADDR"};
  }
  ras::Limits limits;
  limits.deadline = patience;
  const auto report = ras::query(*parsed, limits);
  if (!report) {
    return {"nccl", State::kNote, report.error().message,
            "fine while no job runs; NCCL 2.24 and later answers there unless NCCL_RAS_ENABLE=0"};
  }
  return good("nccl", fmt::format("NCCL {} answers at {}; `tapas-agent ras` shows what it says",
                                  report->nccl_version, address));
}

}  // namespace tapas::agent::doctor
