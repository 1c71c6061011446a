#include "ctl/verbs.h"

#include <CLI/App.hpp>

namespace tapas::ctl {

void add_version(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("version", "Print the version of this tool");
  verb->footer("Example:\n  tapasctl version");
  verb->callback([&context] {
    context.run = []() -> Result<Exit> {
      print("tapasctl " TAPAS_VERSION "\n");
      return Exit::kOk;
    };
  });
}

}  // namespace tapas::ctl
