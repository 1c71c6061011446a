#include "ctl/replay.h"

#include "ctl/progress.h"
#include "ctl/recording.h"
#include "ctl/replay_inspector.h"
#include "ctl/replay_journal.h"
#include "ctl/replay_links.h"
#include "ctl/replay_recording.h"
#include "ctl/verbs.h"
#include "daemon/recording/format.h"

#include <CLI/App.hpp>
#include <fmt/format.h>

#include <array>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string_view>

namespace tapas::ctl {
namespace {

struct ReplayVerbOptions {
  std::string file;
  ReplayOptions replay;
};

/// Of a store and of what tapasd recorded only the first bytes.
Result<std::string> text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4096> head{};
  file.read(head.data(), head.size());  // bad: a folder
  std::string text(head.data(), static_cast<std::size_t>(file.gcount()));
  if (file && !is_store(text) && !daemon::recording::is_recording(text)) {
    std::ostringstream rest;
    rest << file.rdbuf();
    text += rest.view();
  }
  if (!file.is_open() || file.bad()) {
    return fail(ErrorCode::kIo, "cannot read {}: check that it is a file that you may read", path);
  }
  return text;
}

/// Reads and judges with a line of progress, then prints.
template <typename Read, typename Judge, typename Text, typename Json>
Result<Exit> show(const Context& context, Read read, Judge judge, Text text, Json json) {
  Progress progress;
  const auto tell = [&progress](const char* what) {
    return [&progress, what](double done) {
      progress.report(fmt::format("{}: {:.0f} %", what, done * 100));
    };
  };
  const auto recorded = read(tell("reading"));
  if (!recorded) {
    progress.clear();
    return tl::unexpected(recorded.error());
  }
  const auto episodes = judge(*recorded, tell("judging"));
  progress.clear();
  if (context.json()) {
    print_json(json(*recorded, episodes));
  } else {
    print(text(*recorded, episodes));
  }
  return Exit::kOk;
}

Result<Exit> show_journal(const Context& context,
                          const std::function<Result<Journal>(const ReplayProgress&)>& read) {
  const auto judge = [](const Journal& journal, const ReplayProgress&) {
    return episodes_of(journal);
  };
  return show(context, read, judge, told_text, told_json);
}

Result<Exit> show_recording(const Context& context, const std::string& file) {
  Progress progress;
  const auto replayed = replay_recording(file, [&progress](double done) {
    progress.report(fmt::format("deciding again: {:.0f} %", done * 100));
  });
  progress.clear();
  if (!replayed) {
    return tl::unexpected(replayed.error());
  }
  if (context.json()) {
    print_json(recording_json(*replayed));
  } else {
    print(recording_text(*replayed));
  }
  return replayed->outcome.first ? Exit::kFailed : Exit::kOk;
}

Result<Exit> replay_table(const Context& context, const ReplayVerbOptions& options,
                          std::string_view text) {
  const auto read = [&](const ReplayProgress& progress) -> Result<Trace> {
    auto trace = read_trace(options.file, text, progress);
    if (trace && options.replay.averaged && trace->by_rank()) {
      return fail(ErrorCode::kInvalid,
                  "--averaged is for a job's step times; {} has one row per rank and step",
                  options.file);
    }
    return trace;
  };
  const auto judge = [&](const Trace& trace, const ReplayProgress& progress) {
    return replay(trace, options.replay, progress);
  };
  return show(context, read, judge, replay_text, replay_json);
}

Result<Exit> replay_file(const Context& context, const ReplayVerbOptions& options) {
  const std::string& file = options.file;
  const auto text = text_of(file);
  if (!text) {
    return tl::unexpected(text.error());
  }
  const auto recording = recording_of(file, *text);
  if (!recording) {
    return tl::unexpected(recording.error());
  }
  if (options.replay.averaged && *recording != Recording::kTable) {
    return fail(ErrorCode::kInvalid, "--averaged is for a job's step times; {} has none", file);
  }
  switch (*recording) {
    case Recording::kTransfers:
      return show(
          context, [&](const ReplayProgress& told) { return read_link_trace(file, *text, told); },
          replay_links, links_text, links_json);
    case Recording::kStore:
      return show_journal(context,
                          [&](const ReplayProgress& told) { return read_store(file, told); });
    case Recording::kInspector:
      return show(
          context, [&](const ReplayProgress& told) { return read_inspector(file, *text, told); },
          replay_inspector, inspector_text, inspector_json);
    case Recording::kDecisions:
      return show_recording(context, file);
    case Recording::kEvents:
      return show_journal(
          context, [&](const ReplayProgress& told) { return read_events(file, *text, told); });
    case Recording::kTable:
      break;
  }
  return replay_table(context, options, *text);
}

}  // namespace

void add_replay(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand(
      "replay", "What the detector says about a recorded run, or said; needs no daemon");
  verb->footer(
      "FILE is what tapasd recorded (option `recording`): its core is told the same once more, "
      "and\n"
      "it is said whether it decides the same; or the journal, episodes as the daemon told them:\n"
      "  tapas.db                       tapasd's store, which may be in use\n"
      "  JSON                           what tapasctl events -o json prints\n"
      "or what NCCL's inspector plugin wrote, the files of all processes in one: who comes last\n"
      "to the collectives; or comma-separated with a header line. Columns (others are skipped):\n"
      "  step,iteration_time_s          the job's step times: slow or not, never who\n"
      "  step,rank,compute_s            compute of each rank, seconds a step; or fwd_compute_s\n"
      "                                 and bwd_compute_s; also microbatches, pp_stage, dp_rank,\n"
      "                                 step_span_s, phase (empty = a plain training step)\n"
      "  step,src,dst,bytes,transfer_s  transfers between nodes (by name), without waiting: which\n"
      "                                 NIC or way is slow\n"
      "Examples:\n  tapasctl replay rank_steps.csv\n"
      "  tapasctl replay /var/lib/tapas/tapas.db\n"
      "  tapasctl replay /var/lib/tapas/recording.jsonl\n"
      "  tapasctl replay transfers.csv\n"
      "  cat nccl-inspector-*/*.log > all.jsonl; tapasctl replay all.jsonl\n"
      "  tapasctl replay --averaged step_times.csv    (each row is the mean since the row before)\n"
      "  tapasctl replay rank_steps.csv -o json | jq -r '.episodes[].sentence'\n"
      "Exit 0 whether or not there was an episode; 1 when the file cannot be read, or decisions of "
      "a\n"
      "recording come out differently.");
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
