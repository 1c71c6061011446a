#include "ctl/events_text.h"
#include "ctl/fields.h"
#include "ctl/plan_text.h"
#include "ctl/table.h"
#include "ctl/verbs.h"
#include "solver/check/check_plan.h"
#include "solver/model/io/load.h"

#include <CLI/App.hpp>

#include <charconv>
#include <memory>
#include <optional>

namespace tapas::ctl {

namespace {

struct PlanOptions {
  std::string job;  ///< name
  std::string job_file;
  std::string file;    ///< of check
  std::string before;  ///< of diff: epoch or file
  std::string after;
  std::optional<std::uint64_t> epoch;
};

std::optional<std::uint64_t> epoch_from(const std::string& text) {
  std::uint64_t epoch = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), epoch);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(epoch)
                                                                  : std::nullopt;
}

Result<Exit> check_file(const Context& context, const PlanOptions& options) {
  const auto job = solver::load_job(options.job_file);
  if (!job) {
    return tl::unexpected(job.error());
  }
  const auto plan = solver::load_plan(options.file, *job);
  if (!plan) {
    return tl::unexpected(plan.error());
  }
  const std::vector<std::string> violations = solver::plan_violations(*job, *plan);
  if (context.json()) {
    print_json({{"schema", "tapas.plan_check/1"},
                {"valid", violations.empty()},
                {"violations", violations}});
  } else {
    for (const std::string& violation : violations) {
      print(printable(violation) + "\n");
    }
  }
  if (!violations.empty()) {
    return fail(ErrorCode::kInvalid, "{} is refused: {}", options.file,
                format_count(violations.size(), "violation"));
  }
  say(fmt::format("{} is a valid plan of job {}", options.file, printable(job->name)));
  return Exit::kOk;
}

Result<json::Value> fetch_plan(const Context& context, const std::string& named,
                               std::optional<std::uint64_t> epoch) {
  const Client client = context.client();
  const auto job = pick_job(client, named);
  if (!job) {
    return tl::unexpected(job.error());
  }
  std::string target = fmt::format("/v1/jobs/{}/plan", url_escape(*job));
  if (epoch) {
    target += fmt::format("?epoch={}", *epoch);
  }
  return client.get(target, "tapas.plan/1");
}

Result<Exit> show_plan(const Context& context, const PlanOptions& options) {
  const auto plan = fetch_plan(context, options.job, options.epoch);
  if (!plan) {
    return tl::unexpected(plan.error());
  }
  if (context.json()) {
    print_json(*plan);
    return Exit::kOk;
  }
  const auto view = plan_view(*plan);
  if (!view) {
    return tl::unexpected(view.error());
  }
  print(plan_text(*view));
  return Exit::kOk;
}

Result<Exit> diff_plans(const Context& context, const PlanOptions& options) {
  std::optional<solver::Job> job;
  if (!options.job_file.empty()) {
    auto loaded = solver::load_job(options.job_file);
    if (!loaded) {
      return tl::unexpected(loaded.error());
    }
    job = std::move(*loaded);
  }
  const auto read = [&](const std::string& name) -> Result<json::Value> {
    const auto epoch = epoch_from(name);
    return epoch ? fetch_plan(context, options.job, epoch) : json::parse_file(name);
  };
  const auto before = read(options.before);
  if (!before) {
    return tl::unexpected(before.error());
  }
  const auto after = read(options.after);
  if (!after) {
    return tl::unexpected(after.error());
  }
  const auto old_view = plan_view(*before);
  const auto new_view = plan_view(*after);
  if (!old_view || !new_view) {
    return old_view ? fail_in(options.after, new_view.error())
                    : fail_in(options.before, old_view.error());
  }

  json::Value moves;
  if (job) {
    const auto old_plan = solver::plan_from_json(*before, *job);
    const auto new_plan = solver::plan_from_json(*after, *job);
    if (!old_plan || !new_plan) {
      return old_plan ? fail_in(options.after, new_plan.error())
                      : fail_in(options.before, old_plan.error());
    }
    if (old_plan->replicas() == new_plan->replicas()) {
      moves = solver::moves_to_json(solver::moves_between(*job, *old_plan, *new_plan), *job);
    }
  }

  const auto changes = plan_changes(*old_view, *new_view);
  if (context.json()) {
    json::Value out{
        {"schema", "tapas.plan_diff/1"},         {"from_epoch", old_view->epoch},
        {"to_epoch", new_view->epoch},           {"step_before_s", old_view->step_time_s},
        {"step_after_s", new_view->step_time_s}, {"changes", changes_to_json(changes)}};
    if (!moves.is_null()) {
      out["moves"] = moves;
    }
    print_json(out);
    return Exit::kOk;
  }
  print(
      fmt::format("epoch {} -> {}, predicted step {} -> {} (each under the conditions of its "
                  "time)\n\n",
                  old_view->epoch, new_view->epoch, format_seconds(old_view->step_time_s),
                  format_seconds(new_view->step_time_s)));
  print(changes_text(changes));
  if (!moves.is_null()) {
    print("\n" + moves_text(moves));
  }
  return Exit::kOk;
}

Result<Exit> show_history(const Context& context, const PlanOptions& options) {
  const Client client = context.client();
  const auto job = pick_job(client, options.job);
  if (!job) {
    return tl::unexpected(job.error());
  }
  const auto answer =
      client.get(fmt::format("/v1/jobs/{}/plans", url_escape(*job)), "tapas.plans/1");
  if (!answer) {
    return tl::unexpected(answer.error());
  }
  if (context.json()) {
    print_json(*answer);
    return Exit::kOk;
  }
  Table table({{"EPOCH", Align::kRight},
               {"PARENT", Align::kRight},
               {"STATUS"},
               {"TIME (UTC)"},
               {"STEP", Align::kRight},
               {"TRIGGER"}});
  for (const json::Value& plan : array_at(*answer, "plans")) {
    table.add_row(
        {fmt::to_string(count_at(plan, "epoch")), fmt::to_string(count_at(plan, "parent")),
         printable(text_at(plan, "status")), short_time(text_at(plan, "time")),
         format_seconds(number_at(plan, "predicted_step_s")), printable(text_at(plan, "trigger"))});
  }
  print(table.empty() ? "no plan yet\n" : table.text());
  return Exit::kOk;
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("plan", "Show, compare and check plans");
  verb->require_subcommand(1);
  verb->footer(
      "Examples:\n  tapasctl plan show\n  tapasctl plan diff 1 2\n"
      "  tapasctl plan check plan.json --job job.json\n"
      "  tapasctl plan explain plan.json --job job.json");
  auto options = std::make_shared<PlanOptions>();
  const auto runs = [&context, options](CLI::App* choice, Result<Exit> (*action)(
                                                              const Context&, const PlanOptions&)) {
    choice->callback([&context, options, action] {
      context.run = [&context, options, action] { return action(context, *options); };
    });
  };

  CLI::App* show = verb->add_subcommand("show", "The active plan, or any stored epoch");
  show->footer("Examples:\n  tapasctl plan show\n  tapasctl plan show --epoch 3 -o json > 3.json");
  show->add_option("--epoch", options->epoch, "Epoch; default the active one");
  add_job_option(*show, options->job);
  add_socket_option(*show, context);
  add_format_option(*show, context);
  runs(show, show_plan);

  CLI::App* diff = verb->add_subcommand("diff", "What differs between two epochs or plan files");
  diff->footer(
      "Examples:\n  tapasctl plan diff 1 2\n"
      "  tapasctl plan diff old.json new.json --job-file job.json     (also layers and bytes to "
      "move)");
  diff->add_option("A", options->before, "Epoch, or plan file")->required();
  diff->add_option("B", options->after, "Epoch, or plan file")->required();
  diff->add_option("--job-file", options->job_file, "Job file, to count the bytes to move");
  add_job_option(*diff, options->job);
  add_socket_option(*diff, context);
  add_format_option(*diff, context);
  runs(diff, diff_plans);

  CLI::App* history = verb->add_subcommand("history", "All plans of a job, who or what made them");
  history->footer("Example:\n  tapasctl plan history");
  add_job_option(*history, options->job);
  add_socket_option(*history, context);
  add_format_option(*history, context);
  runs(history, show_history);

  CLI::App* check =
      verb->add_subcommand("check", "Verify a plan file; exit 1 with every violation");
  check->footer("Example:\n  tapasctl plan check plan.json --job gpt3-175b-a800-1024.json");
  check->add_option("FILE", options->file, "Plan file (tapas.plan/1)")->required();
  check->add_option("--job", options->job_file, "Job file (tapas.job/1)")->required();
  add_format_option(*check, context);
  runs(check, check_file);
  add_plan_explain(*verb, context);
}

}  // namespace tapas::ctl
