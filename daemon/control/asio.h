#pragma once

// Boost 1.74 uses std::exchange without including <utility>, so it has to come first.
// clang-format off
#include <utility>
#include <boost/asio.hpp>
// clang-format on

namespace tapas::daemon {
namespace asio = boost::asio;
}  // namespace tapas::daemon
