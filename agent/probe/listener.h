#pragma once

#include "agent/probe/ip.h"
#include "agent/probe/load.h"
#include "agent/probe/stream.h"
#include "base/result.h"

#include <functional>
#include <string>
#include <vector>

namespace tapas::agent::probe {

struct Service {
  Limits limits;
  std::string token;             ///< What a peer must know.
  std::vector<IpRange> allowed;  ///< Who may come; empty: everybody.
  Clock::time_point until;       ///< Nobody is let in later.
  bool once = false;             ///< End with the first peer that knew the token.
};

/// 128 random bits as text. kIo when the system gives none.
[[nodiscard]] Result<std::string> make_token();

/// Serves one peer after the other on the caller's thread, each for a bounded time, and tells a
/// line about each. Returns how many probes were done to their end.
[[nodiscard]] Result<int> serve(Door& door, const Service& service,
                                const std::function<void(const std::string&)>& tell);

}  // namespace tapas::agent::probe
