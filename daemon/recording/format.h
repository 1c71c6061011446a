#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "daemon/core/core.h"
#include "daemon/jobs.h"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// `tapas.recording/1`, docs/recording.md: what a core began with, then line by line what it was
/// told and what it did. Lines here have no newline at their end.
namespace tapas::daemon::recording {

/// All that Core's constructor takes, and whose it was.
struct Beginning {
  std::string version;  ///< of the program that recorded
  CoreConfig config;
  JobMap jobs;
  Restored restored;
};

/// One call of Core::apply().
struct Step {
  Now now;
  Event event;
  std::vector<json::Value> did;
};
/// The last line: the recording was ended, and why.
struct End {
  std::string why;
};

/// True for the first bytes of a recording of any version.
[[nodiscard]] bool is_recording(std::string_view head);

void append_beginning(const Beginning& beginning, std::string& out);
void append_step(const JobMap& jobs, const Event& event, const Now& now,
                 const std::vector<Action>& actions, std::string& out);
void append_end(std::string_view why, std::string& out);

/// What is told of actions: all but answers to heartbeats, which say nothing but the term.
[[nodiscard]] std::vector<json::Value> told(const JobMap& jobs, const std::vector<Action>& actions);

// Errors name the field, not the line.
[[nodiscard]] Result<Beginning> read_beginning(std::string_view line);
[[nodiscard]] Result<std::variant<Step, End>> read_line(std::string_view line, const JobMap& jobs);

}  // namespace tapas::daemon::recording
