#include "agent/health/sys_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace tapas::agent::health {
namespace {

namespace fs = std::filesystem;

/// An open file, closed with it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> unreadable(const std::error_code& error) {
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    return fail(ErrorCode::kNotFound, "is not there");
  }
  return fail(ErrorCode::kIo, "cannot be read: {}", error.message());
}
tl::unexpected<Error> unreadable(int error) {
  return unreadable(std::error_code(error, std::generic_category()));
}

std::string trimmed(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f) {
      c = '?';
    }
  }
  const std::size_t begin = text.find_first_not_of(" \n");
  if (begin == std::string::npos) {
    return "";
  }
  return text.substr(begin, text.find_last_not_of(" \n") - begin + 1);
}

}  // namespace

Result<SysTree> SysTree::open(const std::string& root) {
  std::error_code error;
  const fs::path real = fs::canonical(root, error);
  if (error || !fs::is_directory(real, error)) {
    return fail(ErrorCode::kNotFound, "{} is no folder that can be read", root);
  }
  return SysTree(real == "/" ? "" : real.string());
}

Result<std::string> SysTree::resolve(std::string_view path) const {
  std::error_code error;
  const std::string real = fs::canonical(root_ + "/" + std::string(path), error).string();
  if (error) {
    return unreadable(error);
  }
  if (real.size() <= root_.size() || real.compare(0, root_.size() + 1, root_ + "/") != 0) {
    return fail(ErrorCode::kDenied, "leads out of {}", root_);
  }
  return real.substr(root_.size() + 1);
}

Result<std::string> SysTree::read(std::string_view path) const {
  const auto real = resolve(path);
  if (!real) {
    return tl::unexpected(real.error());
  }
  // O_NONBLOCK: opening a FIFO would wait for somebody to write.
  const Descriptor file(::open((root_ + "/" + *real).c_str(),
                               O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat status = {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    return unreadable(errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kInvalid, "is no regular file");
  }
  std::array<char, kMaxFileBytes + 1> buffer = {};
  std::size_t size = 0;
  while (size < buffer.size()) {
    const ssize_t got = ::read(file.get(), buffer.data() + size, buffer.size() - size);
    if (got == 0) {
      break;
    }
    if (got > 0) {
      size += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      return unreadable(errno);
    }
  }
  if (size > kMaxFileBytes) {
    return fail(ErrorCode::kInvalid, "is larger than {} bytes", kMaxFileBytes);
  }
  return trimmed(std::string(buffer.data(), size));
}

Result<SysTree::Listing> SysTree::list(std::string_view path) const {
  const auto real = resolve(path);
  if (!real) {
    return tl::unexpected(real.error());
  }
  std::error_code error;
  Listing listing;
  for (fs::directory_iterator entry(root_ + "/" + *real, error), end; !error && entry != end;
       entry.increment(error)) {
    if (listing.names.size() == kMaxEntries) {
      listing.cut = true;
      break;
    }
    listing.names.push_back(entry->path().filename().string());
  }
  if (error) {
    return unreadable(error);
  }
  std::sort(listing.names.begin(), listing.names.end());
  return listing;
}

}  // namespace tapas::agent::health
