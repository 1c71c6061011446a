#include "config/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace tapas {

namespace {

constexpr std::size_t kKeyCharacters = 40;
constexpr std::string_view kZ85 =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

Result<std::string> read_key(const std::string& path, bool secret) {
  const File file(path);
  struct stat info = {};
  if (file.fd() < 0 || ::fstat(file.fd(), &info) != 0) {
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                "key file {}: {}; make a key pair with `tapasctl key new`", path,
                std::strerror(errno));
  }
  if (secret && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fail(ErrorCode::kDenied,
                "secret key file {} has mode {:04o}, so others can read or change it; run `chmod "
                "600 {}`",
                path, info.st_mode & 07777U, path);
  }
  std::array<char, kKeyCharacters + 3> buffer = {};
  const ssize_t size = ::read(file.fd(), buffer.data(), buffer.size());
  if (size < 0) {
    return fail(ErrorCode::kIo, "key file {}: {}", path, std::strerror(errno));
  }
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  for (const char end : {'\n', '\r'}) {
    if (!text.empty() && text.back() == end) {
      text.remove_suffix(1);
    }
  }
  if (text.size() != kKeyCharacters || text.find_first_not_of(kZ85) != std::string_view::npos) {
    return fail(ErrorCode::kInvalid,
                "key file {} does not hold one key of {} Z85 characters; make a key pair with "
                "`tapasctl key new`",
                path, kKeyCharacters);
  }
  return std::string(text);
}

}  // namespace

Result<std::string> read_public_key(const std::string& path) { return read_key(path, false); }

Result<std::string> read_secret_key(const std::string& path) { return read_key(path, true); }

}  // namespace tapas
