#pragma once

#include <optional>
#include <string>

namespace tapas::agent::probe {

struct Interface {
  std::string name;                   ///< "" when no interface has the address.
  std::optional<double> bytes_per_s;  ///< Nominal, as sysfs has it; loopback has none.
};

/// The interface with the local address of a connected socket.
[[nodiscard]] Interface interface_of(int socket);

}  // namespace tapas::agent::probe
