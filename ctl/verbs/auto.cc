#include "ctl/fields.h"
#include "ctl/table.h"
#include "ctl/verbs.h"

#include <CLI/App.hpp>

#include <memory>

namespace tapas::ctl {

namespace {

Result<Exit> set_auto(const Context& context, bool on, const std::string& reason) {
  const auto answer = context.client().post("/v1/auto", {{"on", on}, {"reason", reason}});
  if (!answer) {
    return tl::unexpected(answer.error());
  }
  print(printable(text_at(*answer, "message", "done")) + "\n");
  return Exit::kOk;
}

}  // namespace

void add_auto(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("auto", "Let tapasd switch jobs by itself, or only observe");
  verb->require_subcommand(1);
  verb->footer(
      "Examples:\n  tapasctl auto on --reason \"soak test passed\"\n"
      "  tapasctl auto off --reason \"network maintenance until 14:00\"");
  for (const bool on : {true, false}) {
    CLI::App* choice = verb->add_subcommand(
        on ? "on" : "off", on ? "Replan and switch without asking" : "Observe and explain only");
    auto reason = std::make_shared<std::string>();
    choice->add_option("--reason", *reason, "Why; goes into the journal")->required();
    add_socket_option(*choice, context);
    choice->callback([&context, on, reason] {
      context.run = [&context, on, reason] { return set_auto(context, on, *reason); };
    });
  }
}

}  // namespace tapas::ctl
