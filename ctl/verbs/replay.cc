#include "ctl/replay.h"

#include "ctl/progress.h"
#include "ctl/replay_links.h"
#include "ctl/table.h"
#include "ctl/verbs.h"

#include <CLI/App.hpp>
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

namespace tapas::ctl {
namespace {

struct ReplayVerbOptions {
  std::string file;
  ReplayOptions replay;
};

Result<std::string> text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const bool empty = file.peek() == std::ifstream::traits_type::eof();  // bad: a folder
  std::ostringstream text;
  if (!empty) {
    text << file.rdbuf();
  }
  if (!file.is_open() || file.bad()) {
    return fail(ErrorCode::kIo, "cannot read {}: check that it is a file that you may read", path);
  }
  return std::move(text).str();
}

Result<Exit> replay_transfers(const Context& context, const ReplayVerbOptions& options,
                              std::string_view text) {
  if (options.replay.averaged) {
    return fail(ErrorCode::kInvalid, "--averaged is for a job's step times; {} has transfers",
                options.file);
  }
  Progress progress;
  const auto trace = read_link_trace(options.file, text, [&](double done) {
    progress.report(fmt::format("reading: {:.0f} %", done * 100));
  });
  if (!trace) {
    progress.clear();
    return tl::unexpected(trace.error());
  }
  const auto episodes = replay_links(
      *trace, [&](double done) { progress.report(fmt::format("judging: {:.0f} %", done * 100)); });
  progress.clear();
  if (context.json()) {
    print_json(links_json(*trace, episodes));
  } else {
    print(links_text(*trace, episodes));
  }
  return Exit::kOk;
}

Result<Exit> replay_file(const Context& context, const ReplayVerbOptions& options) {
  const auto text = text_of(options.file);
  if (!text) {
    return tl::unexpected(text.error());
  }
  Progress progress;
  const auto show = [&](const char* what) {
    return [&progress, what](double done) {
      progress.report(fmt::format("{}: {:.0f} %", what, done * 100));
    };
  };
  if (has_links(*text)) {
    return replay_transfers(context, options, *text);
  }
  const auto trace = read_trace(options.file, *text, show("reading"));
  if (!trace) {
    progress.clear();
    return tl::unexpected(trace.error());
  }
  if (options.replay.averaged && trace->by_rank()) {
    return fail(ErrorCode::kInvalid,
                "--averaged is for a job's step times; {} has one row per rank and step",
                options.file);
  }
  const auto episodes = replay(*trace, options.replay, show("judging"));
  progress.clear();
  if (context.json()) {
    print_json(replay_json(*trace, episodes));
  } else {
    print(replay_text(*trace, episodes));
  }
  return Exit::kOk;
}

}  // namespace

void add_replay(CLI::App& app, Context& context) {
  CLI::App* verb =
      app.add_subcommand("replay", "What the detector says about a recorded run; needs no daemon");
  verb->footer(
      "FILE is comma-separated with a header line. Columns (others are skipped):\n"
      "  step,iteration_time_s          the job's step times: slow or not, never who\n"
      "  step,rank,compute_s            compute of each rank, seconds a step; or fwd_compute_s\n"
      "                                 and bwd_compute_s; also microbatches, pp_stage, dp_rank,\n"
      "                                 step_span_s, phase (empty = a plain training step)\n"
      "  step,src,dst,bytes,transfer_s  transfers between nodes (by name), without waiting: which\n"
      "                                 NIC or way is slow\n"
      "Examples:\n  tapasctl replay rank_steps.csv\n"
      "  tapasctl replay transfers.csv\n"
      "  tapasctl replay --averaged step_times.csv    (each row is the mean since the row before)\n"
      "  tapasctl replay rank_steps.csv -o json | jq -r '.episodes[].sentence'\n"
      "Exit 0 whether or not there was an episode; 1 when the file cannot be read.");
  auto options = std::make_shared<ReplayVerbOptions>();
  verb->add_option("FILE", options->file, "The recorded run")->required();
  verb->add_flag("--averaged", options->replay.averaged,
                 "Step times are means over the steps since the row before");
  add_format_option(*verb, context);
  verb->callback([&context, options] {
    context.run = [&context, options] { return replay_file(context, *options); };
  });
}

}  // namespace tapas::ctl
