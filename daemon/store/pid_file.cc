#include "daemon/store/pid_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace tapas::daemon {
namespace {

constexpr decltype(statfs::f_type) kNfsMagic = 0x6969;

}  // namespace

Result<PidFile> PidFile::claim(const std::string& directory) {
  struct statfs system = {};
  if (statfs(directory.c_str(), &system) != 0) {
    return fail(ErrorCode::kIo, "state_dir {}: {}; create it for the daemon's user", directory,
                std::strerror(errno));
  }
  if (system.f_type == kNfsMagic) {
    return fail(
        ErrorCode::kInvalid,
        "state_dir {} is on NFS, where neither locks nor SQLite's WAL are safe; use a local "
        "disk",
        directory);
  }
  const std::string path = directory + "/tapasd.pid";
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return fail(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  }
  PidFile file(descriptor);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> text = {};
    const ssize_t size = pread(descriptor, text.data(), text.size() - 1, 0);
    std::string_view owner(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
    owner = owner.substr(0, owner.find('\n'));
    return fail(ErrorCode::kConflict,
                "{}: process {} already runs on this state directory; stop it first, or give this "
                "daemon its own state_dir",
                path, owner.empty() ? "?" : owner);
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(descriptor, 0) != 0 ||
      pwrite(descriptor, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return fail(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  }
  return file;
}

PidFile::~PidFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

}  // namespace tapas::daemon
