#pragma once

#include <functional>

namespace CLI {
class App;
}  // namespace CLI

namespace tapas::agent::probe {

/// Adds `tapas-agent probe`. When it is chosen, sets `chosen` to what runs it and gives its exit
/// code.
void add_probe_command(CLI::App& app, std::function<int()>& chosen);

}  // namespace tapas::agent::probe
