#include "ctl/fields.h"
#include "ctl/proposal_text.h"
#include "ctl/table.h"
#include "ctl/verbs.h"

#include <CLI/App.hpp>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>

namespace tapas::ctl {

namespace {

struct ReplanOptions {
  std::string job;
  bool dry_run = false;
  bool yes = false;
};

bool confirmed() {
  std::fputs("Switch the job to this plan? [y/N] ", stderr);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

Result<Exit> replan(const Context& context, const ReplanOptions& options) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (!options.dry_run && !options.yes && !terminal) {
    say("tapasctl: nobody to ask: give --yes to switch, or --dry-run to look");
    return Exit::kUsage;
  }
  const Client client = context.client();
  const auto job = pick_job(client, options.job);
  if (!job) {
    return tl::unexpected(job.error());
  }
  const std::string target = fmt::format("/v1/jobs/{}/replan", url_escape(*job));
  const auto propose = [&](bool dry_run) {
    return client.post(target, {{"dry_run", dry_run}}, "tapas.proposal/1");
  };

  if (options.dry_run || !options.yes) {
    const auto proposal = propose(true);
    if (!proposal) {
      return tl::unexpected(proposal.error());
    }
    if (context.json() && options.dry_run) {
      print_json(*proposal);
    } else {
      print(proposal_text(*proposal));
    }
    if (options.dry_run || !flag_at(*proposal, "improves")) {
      return Exit::kOk;
    }
    if (!confirmed()) {
      say("nothing was changed");
      return Exit::kFailed;
    }
  }
  const auto answer = propose(false);
  if (!answer) {
    return tl::unexpected(answer.error());
  }
  if (context.json()) {
    print_json(*answer);
  } else {
    if (options.yes) {
      print(proposal_text(*answer));
    }
    print(printable(text_at(*answer, "message")) + "\n");
  }
  return Exit::kOk;
}

}  // namespace

void add_replan(CLI::App& app, Context& context) {
  CLI::App* verb =
      app.add_subcommand("replan", "Compute a better plan for the cluster as measured, and switch");
  verb->footer(
      "Examples:\n  tapasctl replan --dry-run        what it would do and gain\n"
      "  tapasctl replan                  the same, then asks\n"
      "  tapasctl replan --yes            for scripts\n"
      "Exit 0 also when the plan is already the best that is known; 4 while a switch is running.");
  auto options = std::make_shared<ReplanOptions>();
  verb->add_flag("--dry-run", options->dry_run, "Only show the proposal");
  verb->add_flag("--yes", options->yes, "Do not ask");
  add_job_option(*verb, options->job);
  add_socket_option(*verb, context);
  add_format_option(*verb, context);
  verb->callback([&context, options] {
    context.run = [&context, options] { return replan(context, *options); };
  });
}

}  // namespace tapas::ctl
