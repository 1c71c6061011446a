#include "ctl/table.h"
#include "ctl/verbs.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using tapas::ctl::Context;
using tapas::ctl::Exit;

int run(int argc, char** argv) {
  Context context;
  const char* socket = std::getenv("TAPAS_SOCKET");
  context.socket = socket != nullptr && *socket != '\0' ? socket : "/run/tapas/tapasd.sock";

  CLI::App app("Operator's tool of TAPAS: find plans, watch jobs, replan and switch them.",
               "tapasctl");
  app.require_subcommand(1);
  app.set_version_flag("--version", "tapasctl " TAPAS_VERSION);
  app.footer(
      "Exit codes: 0 ok, 1 refused or failed, 2 usage, 3 daemon unreachable, 4 conflict, 5 not "
      "found,\n6 timed out (outcome unknown). `tapasctl VERB --help` shows examples.\n");
  add_socket_option(app, context);
  tapas::ctl::add_status(app, context);
  tapas::ctl::add_explain(app, context);
  tapas::ctl::add_events(app, context);
  tapas::ctl::add_plan(app, context);
  tapas::ctl::add_replan(app, context);
  tapas::ctl::add_whatif(app, context);
  tapas::ctl::add_node(app, context);
  tapas::ctl::add_auto(app, context);
  tapas::ctl::add_replay(app, context);
  tapas::ctl::add_solve(app, context);
  tapas::ctl::add_cluster(app, context);
  tapas::ctl::add_model(app, context);
  tapas::ctl::add_topo(app, context);
  tapas::ctl::add_key(app, context);
  tapas::ctl::add_version(app, context);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> unknown = app.remaining();
    if (app.get_subcommands().empty() && !unknown.empty()) {
      tapas::ctl::say("tapasctl: no verb \"" + tapas::ctl::printable(unknown.front()) +
                      "\"; `tapasctl --help` lists them");
      return static_cast<int>(Exit::kUsage);
    }
    // CLI11 prints help and messages; its own exit codes (105 and so on) mean nothing to a script.
    return app.exit(error) == 0 ? 0 : static_cast<int>(Exit::kUsage);
  }

  const auto outcome = context.run();
  if (!outcome) {
    tapas::ctl::say("tapasctl: " + outcome.error().message);
    return static_cast<int>(tapas::ctl::exit_for(outcome.error().code));
  }
  return static_cast<int>(*outcome);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return run(argc, argv);
}
