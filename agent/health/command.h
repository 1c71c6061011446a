#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tapas::agent::health {

/// Adds `tapas-agent health`. When the operator chose it, `chosen` does the work and returns the
/// exit status.
void add_health_command(CLI::App& app, std::function<int()>& chosen);

}  // namespace tapas::agent::health
