#pragma once

#include "base/result.h"

#include <sys/types.h>

#include <optional>
#include <string>

namespace tapas::daemon {

/// The process at the other end of the operator socket, as the kernel knows it.
struct OperatorPeer {
  uid_t uid = 0;
  gid_t gid = 0;
};

/// Requires a connected unix socket.
[[nodiscard]] Result<OperatorPeer> peer_of(int socket);

[[nodiscard]] std::optional<gid_t> group_id(const std::string& name);

/// True for root, the daemon's own user, and members of `group` (primary or supplementary).
/// An empty or unknown group has no members.
[[nodiscard]] bool may_change(const OperatorPeer& peer, const std::string& group);

/// "uid 1000 (alice)", for the journal.
[[nodiscard]] std::string describe(const OperatorPeer& peer);

}  // namespace tapas::daemon
