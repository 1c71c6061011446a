#include "agent/collect/rank_directory.h"

#include "base/ids.h"
#include "base/log/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace tapas::agent {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kModule = "ranks";
constexpr std::string_view kRankPrefix = "tapas-rank.";
constexpr std::string_view kPluginPrefix = "tapas-nccl.";
constexpr std::size_t kMaxRankFiles = wire::kMaxAttachments * wire::kMaxRanksPerAttachment;
/// Per rank and poll, so that one rank cannot keep the others waiting.
constexpr std::size_t kRecordsPerPoll = 1024;

std::string plan_prefix(const std::string& job) {
  return fmt::format("tapas-plan.{:016x}.", name_hash(job));
}

std::uint64_t inode_of(const std::string& path) {
  struct stat info = {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

Result<void> write_file(const std::string& path, std::string_view text) {
  const std::string fresh = path + ".new";
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  bool good = fd >= 0;
  while (good && !text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    good = written > 0;
    text.remove_prefix(good ? static_cast<std::size_t>(written) : 0);
  }
  // Ranks may run as other users than the agent; a plan is no secret.
  good = good && ::fchmod(fd, 0644) == 0 && ::rename(fresh.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (fd >= 0) {
    ::close(fd);
  }
  if (!good) {
    ::unlink(fresh.c_str());
    return fail(ErrorCode::kIo, "writing {}: {}", path, std::strerror(error));
  }
  return {};
}

}  // namespace

bool is_rank_file(std::string_view name) {
  return name.starts_with(kRankPrefix) || name.starts_with(kPluginPrefix);
}

RankDirectory::RankDirectory(std::string dir, std::string node, AgentProtocol& protocol)
    : dir_(std::move(dir)), node_(std::move(node)), protocol_(protocol) {}

void RankDirectory::scan(TimePoint now) {
  std::set<std::string> present;
  std::error_code error;
  for (fs::directory_iterator it(dir_, error), end; !error && it != end; it.increment(error)) {
    std::string file = it->path().filename();
    if (is_rank_file(file) && present.size() < kMaxRankFiles) {
      present.insert(std::move(file));
    }
  }
  if (error) {
    log::warning_limited(
        kModule, dir_,
        fmt::format("cannot list {}: {}; ranks stay as they are", dir_, error.message()));
    return;
  }
  for (auto it = ranks_.begin(); it != ranks_.end();) {
    Entry& entry = it->second;
    const bool same = inode_of(fmt::format("{}/{}", dir_, it->first)) == entry.segment.inode();
    if (same && entry.segment.alive()) {
      ++it;
      continue;
    }
    leave(it->first, entry, now);
    it = ranks_.erase(it);
  }
  // A script's file before its plugin's, against the order of names.
  for (auto file = present.rbegin(); file != present.rend(); ++file) {
    visit(*file, now);
  }
}

bool RankDirectory::outranked(const std::string& file) const {
  return file.starts_with(kPluginPrefix) &&
         ranks_.contains(std::string(kRankPrefix) + file.substr(kPluginPrefix.size()));
}

void RankDirectory::visit(const std::string& file, TimePoint now) {
  auto found = ranks_.find(file);
  if (found == ranks_.end()) {
    auto segment = RankSegment::open(fmt::format("{}/{}", dir_, file), node_);
    if (!segment && segment.error().code == ErrorCode::kNotFound) {
      return;  // Closed since it was listed.
    }
    if (!segment) {
      log::warning_limited(kModule, file, segment.error().message);
      return;
    }
    if (!segment->alive()) {
      Entry remains{*std::move(segment)};
      leave(file, remains, now);
      return;
    }
    found = ranks_.emplace(file, Entry{*std::move(segment)}).first;
  }
  Entry& entry = found->second;
  if (entry.attached || outranked(file)) {
    return;
  }
  if (file.starts_with(kRankPrefix)) {
    const auto observer = ranks_.find(std::string(kPluginPrefix) + file.substr(kRankPrefix.size()));
    if (observer != ranks_.end()) {
      detach(observer->second, now);
    }
  }
  const RankSegment& segment = entry.segment;
  entry.attached = protocol_.attach_rank(segment.job(), segment.session(), segment.describe(), now);
  if (entry.attached) {
    log::info(kModule, fmt::format("rank came: job={} rank={} session={:016x}", segment.job(),
                                   segment.rank(), segment.session()));
  }
}

void RankDirectory::leave(const std::string& file, Entry& entry, TimePoint now) {
  drain(file, entry, now);
  detach(entry, now);
  entry.segment.remove_file();
}

void RankDirectory::detach(Entry& entry, TimePoint now) {
  if (entry.attached) {
    log::info(kModule,
              fmt::format("rank left: job={} rank={}", entry.segment.job(), entry.segment.rank()));
    protocol_.detach_rank(entry.segment.job(), entry.segment.rank(), now);
    entry.attached = false;
  }
}

void RankDirectory::poll(TimePoint now) {
  for (auto& [file, entry] : ranks_) {
    drain(file, entry, now);
  }
}

void RankDirectory::drain(const std::string& file, Entry& entry, TimePoint now) {
  RankSegment& segment = entry.segment;
  if (!segment.intact()) {
    return;  // The next scan drops it.
  }
  buffer_.clear();
  segment.read_records(buffer_, kRecordsPerPoll, !outranked(file));
  protocol_.queue_records(buffer_, now);
  protocol_.count_dropped(segment.take_dropped());
  if (segment.bad_records() != entry.bad_reported) {
    entry.bad_reported = segment.bad_records();
    log::warning_limited(kModule, fmt::format("bad-{}-{}", segment.job(), segment.rank()),
                         fmt::format("job={} rank={}: {} records were malformed or not its own, "
                                     "and were left out",
                                     segment.job(), segment.rank(), entry.bad_reported));
  }
  if (auto reply = segment.poll_reply(); reply && entry.attached) {
    protocol_.rank_replied(segment.job(), *reply, now);
  }
}

void RankDirectory::send(const RankCommand& command) {
  for (auto& [file, entry] : ranks_) {
    if (entry.attached && entry.segment.job() == command.job &&
        entry.segment.rank() == command.rank && entry.segment.intact()) {
      entry.segment.send(command);
    }
  }
}

Result<void> RankDirectory::store(const StorePlan& plan) {
  const std::string prefix = plan_prefix(plan.job);
  const std::string name = fmt::format("{}{}", prefix, plan.epoch);
  if (auto ok = write_file(fmt::format("{}/{}", dir_, name), plan.text); !ok) {
    return ok;
  }
  const std::string active = fmt::format("{}{}", prefix, protocol_.active_epoch(plan.job));
  std::error_code error;
  for (fs::directory_iterator it(dir_, error), end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().filename();
    if (file.starts_with(prefix) && file != name && file != active) {
      ::unlink(it->path().c_str());
    }
  }
  return {};
}

}  // namespace tapas::agent
