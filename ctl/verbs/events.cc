#include "ctl/events_text.h"
#include "ctl/fields.h"
#include "ctl/table.h"
#include "ctl/verbs.h"

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

namespace tapas::ctl {

namespace {

struct EventOptions {
  bool follow = false;
  std::uint64_t limit = 20;
  std::optional<std::uint64_t> after;
};

/// The daemon holds a request this long when there is nothing new; half of what it allows.
constexpr unsigned kWaitSeconds = 15;

void print_events(const json::Value& events, bool one_per_line) {
  for (const json::Value& event : events) {
    print((one_per_line ? json::dump(event) : event_line(event)) + "\n");
  }
}

/// Ends with the first error at the start; later ones are waited out, as a restart of the daemon is
/// one of the things that somebody who follows wants to see through.
Result<Exit> follow_events(const Context& context, EventOptions options) {
  const Client client = context.client();
  bool started = false;
  bool away = false;
  for (;;) {
    const std::string target =
        options.after
            ? fmt::format("/v1/events?after={}&limit=500&wait_s={}", *options.after, kWaitSeconds)
            : fmt::format("/v1/events?limit={}", options.limit);
    const auto answer = client.get(target, "tapas.events/1",
                                   Client::kReadDeadline + std::chrono::seconds(kWaitSeconds));
    if (!answer) {
      const ErrorCode code = answer.error().code;
      if (!started || (code != ErrorCode::kUnavailable && code != ErrorCode::kTimeout)) {
        return tl::unexpected(answer.error());
      }
      if (!away) {
        say("tapasctl: " + answer.error().message + "; waiting for it to come back");
      }
      away = true;
      std::this_thread::sleep_for(std::chrono::seconds(1));
      continue;
    }
    if (away) {
      say("tapasctl: tapasd is back");
    }
    started = true;
    away = false;
    print_events(array_at(*answer, "events"), context.json());
    options.after = count_at(*answer, "last");
  }
}

Result<Exit> list_events(const Context& context, const EventOptions& options) {
  std::string target = fmt::format("/v1/events?limit={}", options.limit);
  if (options.after) {
    target += fmt::format("&after={}", *options.after);
  }
  const auto answer = context.client().get(target, "tapas.events/1");
  if (!answer) {
    return tl::unexpected(answer.error());
  }
  if (context.json()) {
    print_json(*answer);
  } else {
    print_events(array_at(*answer, "events"), false);
  }
  return Exit::kOk;
}

}  // namespace

void add_events(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("events", "The journal: what happened, newest last");
  verb->footer(
      "Examples:\n  tapasctl events --limit 50\n  tapasctl events --follow\n"
      "  tapasctl events --follow -o json | jq -r .sentence     (one object per line)");
  auto options = std::make_shared<EventOptions>();
  verb->add_flag("-f,--follow", options->follow, "Go on with new events until interrupted");
  verb->add_option("--after", options->after, "Only events with a higher id");
  verb->add_option("--limit", options->limit, "How many at most; default 20")
      ->check(CLI::Range(1, 1000));
  add_socket_option(*verb, context);
  add_format_option(*verb, context);
  verb->callback([&context, options] {
    context.run = [&context, options] {
      return options->follow ? follow_events(context, *options) : list_events(context, *options);
    };
  });
}

}  // namespace tapas::ctl
