#include "daemon/control/peer.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace tapas::daemon {
namespace {

constexpr std::size_t kBuffer = 1U << 16U;

struct User {
  std::string name;
  gid_t gid = 0;
};

std::optional<User> user_of(uid_t uid) {
  std::vector<char> buffer(kBuffer);
  passwd entry = {};
  passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return std::nullopt;
  }
  return User{found->pw_name, found->pw_gid};
}

}  // namespace

std::optional<gid_t> group_id(const std::string& name) {
  std::vector<char> buffer(kBuffer);
  group entry = {};
  group* found = nullptr;
  if (getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return std::nullopt;
  }
  return found->gr_gid;
}

Result<OperatorPeer> peer_of(int socket) {
  ucred credentials = {};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return fail(ErrorCode::kIo, "the kernel does not say who the client is: {}",
                std::strerror(errno));
  }
  return OperatorPeer{credentials.uid, credentials.gid};
}

bool may_change(const OperatorPeer& peer, const std::string& group) {
  if (peer.uid == 0 || peer.uid == geteuid()) {
    return true;
  }
  const std::optional<gid_t> wanted = group.empty() ? std::nullopt : group_id(group);
  if (!wanted) {
    return false;
  }
  if (peer.gid == *wanted) {
    return true;
  }
  const std::optional<User> user = user_of(peer.uid);
  if (!user) {
    return false;
  }
  std::vector<gid_t> groups(1024);
  int count = static_cast<int>(groups.size());
  if (getgrouplist(user->name.c_str(), user->gid, groups.data(), &count) < 0) {
    return false;
  }
  return std::find(groups.begin(), groups.begin() + count, *wanted) != groups.begin() + count;
}

std::string describe(const OperatorPeer& peer) {
  const std::optional<User> user = user_of(peer.uid);
  return user ? fmt::format("uid {} ({})", peer.uid, user->name) : fmt::format("uid {}", peer.uid);
}

}  // namespace tapas::daemon
