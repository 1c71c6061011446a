#include "ctl/context.h"

#include "ctl/fields.h"
#include "ctl/table.h"

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>

namespace tapas::ctl {

namespace {

bool colours() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0') &&
         term != nullptr && std::string_view(term) != "dumb";
}

std::string painted(std::string_view code, std::string_view text) {
  static const bool kColours = colours();
  return kColours ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

}  // namespace

Exit exit_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kInfeasible:
    case ErrorCode::kDenied:
    case ErrorCode::kIo:
      return Exit::kFailed;
    case ErrorCode::kNotFound:
      return Exit::kNotFound;
    case ErrorCode::kConflict:
      return Exit::kConflict;
    case ErrorCode::kUnavailable:
      return Exit::kUnreachable;
    case ErrorCode::kTimeout:
      return Exit::kTimedOut;
  }
  return Exit::kFailed;
}

void add_socket_option(CLI::App& verb, Context& context) {
  verb.add_option("--socket", context.socket,
                  "tapasd's control socket; default $TAPAS_SOCKET or /run/tapas/tapasd.sock");
}

void add_format_option(CLI::App& verb, Context& context) {
  verb.add_option("-o,--output", context.format, "table or json; default table")
      ->check(CLI::IsMember(std::set<std::string>{"table", "json"}));
}

void add_job_option(CLI::App& verb, std::string& job) {
  verb.add_option("--job", job, "Name of the job; not needed when there is only one");
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) {
    std::_Exit(static_cast<int>(Exit::kFailed));
  }
}

void print_json(const json::Value& value) { print(json::dump(value, 2) + "\n"); }

void say(std::string_view text) {
  const std::string line = std::string(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Result<std::string> pick_job(const Client& client, const std::string& named) {
  if (!named.empty()) {
    return named;
  }
  const auto status = client.get("/v1/status", "tapas.status/1");
  if (!status) {
    return tl::unexpected(status.error());
  }
  const json::Value& jobs = array_at(*status, "jobs");
  if (jobs.empty()) {
    return fail(ErrorCode::kNotFound, "tapasd has no job: list one under \"jobs\" in tapasd.json");
  }
  if (jobs.size() > 1) {
    std::string names;
    for (const json::Value& job : jobs) {
      names += (names.empty() ? "" : ", ") + printable(text_at(job, "job"));
    }
    return fail(ErrorCode::kInvalid, "there are several jobs ({}): choose one with --job", names);
  }
  return text_at(jobs.front(), "job");
}

std::string bold(std::string_view text) { return painted("1", text); }
std::string red(std::string_view text) { return painted("31", text); }

}  // namespace tapas::ctl
