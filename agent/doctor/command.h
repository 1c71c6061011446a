#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tapas::agent::doctor {

/// Adds `tapas-agent doctor`; parsing it sets `chosen` to what runs it.
void add_doctor_command(CLI::App& app, std::function<int()>& chosen);

}  // namespace tapas::agent::doctor
