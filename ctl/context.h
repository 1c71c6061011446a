#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "ctl/client.h"

#include <functional>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace tapas::ctl {

/// Exit codes are an interface: scripts act on them.
enum class Exit : int {
  kOk = 0,
  kFailed = 1,       ///< refused, failed, or the answer is "no"
  kUsage = 2,        ///< the command line makes no sense
  kUnreachable = 3,  ///< no daemon answers
  kConflict = 4,     ///< the state moved on
  kNotFound = 5,
  kTimedOut = 6,  ///< outcome unknown
};
[[nodiscard]] Exit exit_for(ErrorCode code);

/// What all verbs share. Lives as long as the program; one thread.
struct Context {
  std::string socket;  ///< --socket, else $TAPAS_SOCKET, else the packaged place
  std::string format = "table";
  /// Set by the verb that the command line chose; main() calls it once.
  std::function<Result<Exit>()> run;

  [[nodiscard]] bool json() const { return format == "json"; }
  [[nodiscard]] Client client() const { return Client(socket); }
};

/// Options that several verbs have, under one name and one help text.
void add_socket_option(CLI::App& verb, Context& context);
void add_format_option(CLI::App& verb, Context& context);
void add_job_option(CLI::App& verb, std::string& job);

/// Data for stdout. A closed pipe ends the program silently, as `| head` expects.
void print(std::string_view text);
void print_json(const json::Value& value);
/// Talk for stderr: one line.
void say(std::string_view text);

/// The job the operator means: the named one, or the only one there is.
[[nodiscard]] Result<std::string> pick_job(const Client& client, const std::string& named);

/// Emphasis when stdout is a terminal and NO_COLOR is not set.
[[nodiscard]] std::string bold(std::string_view text);
[[nodiscard]] std::string red(std::string_view text);

}  // namespace tapas::ctl
