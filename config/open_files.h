#pragma once

#include <cstddef>

namespace tapas {

/// Raises this process's limit on open files as far as it may; returns what it is then. libzmq
/// spins at a full core when a connection cannot be accepted for want of a descriptor, so whoever
/// serves many asks first.
[[nodiscard]] std::size_t raise_open_files();

}  // namespace tapas
