#include "ctl/decision_text.h"
#include "ctl/fields.h"
#include "ctl/verbs.h"

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include <cstdint>
#include <memory>
#include <optional>

namespace tapas::ctl {

namespace {

struct ExplainOptions {
  std::string job;
  unsigned limit = 1;
  std::optional<std::uint64_t> decision;
};

constexpr unsigned kMaxDecisions = 1000;  // of one answer

Result<Exit> explain(const Context& context, const ExplainOptions& options) {
  const Client client = context.client();
  const auto job = pick_job(client, options.job);
  if (!job) {
    return tl::unexpected(job.error());
  }
  auto answer = client.get(fmt::format("/v1/jobs/{}/decisions?limit={}", url_escape(*job),
                                       options.decision ? kMaxDecisions : options.limit),
                           "tapas.decisions/1");
  if (!answer) {
    return tl::unexpected(answer.error());
  }
  if (options.decision) {
    json::Value wanted = json::Value::array();
    for (const json::Value& decision : array_at(*answer, "decisions")) {
      if (count_at(decision, "decision") == *options.decision) {
        wanted.push_back(decision);
      }
    }
    if (wanted.empty()) {
      return fail(ErrorCode::kNotFound, "job {} has no decision {} among its last {}", *job,
                  *options.decision, kMaxDecisions);
    }
    (*answer)["decisions"] = wanted;
  }
  if (context.json()) {
    print_json(*answer);
    return Exit::kOk;
  }
  std::string out;
  for (const json::Value& decision : array_at(*answer, "decisions")) {
    out += (out.empty() ? "" : "\n") + decision_text(decision);
  }
  print(out.empty() ? "no decision yet: nothing was slow enough, or levels are still being learnt\n"
                    : out);
  return Exit::kOk;
}

}  // namespace

void add_explain(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("explain", "Why tapasd acted or did not, with the numbers");
  verb->footer(
      "Examples:\n  tapasctl explain\n  tapasctl explain --limit 5\n  tapasctl explain --decision "
      "2\n"
      "  tapasctl explain -o json | jq '.decisions[0].evidence'");
  auto options = std::make_shared<ExplainOptions>();
  verb->add_option("--limit", options->limit, "How many decisions, newest first; default 1")
      ->check(CLI::Range(1U, kMaxDecisions));
  verb->add_option("--decision", options->decision, "Only this one, by its number");
  add_job_option(*verb, options->job);
  add_socket_option(*verb, context);
  add_format_option(*verb, context);
  verb->callback([&context, options] {
    context.run = [&context, options] { return explain(context, *options); };
  });
}

}  // namespace tapas::ctl
