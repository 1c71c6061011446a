#pragma once

#include <string>
#include <string_view>

namespace tapas::log {

enum class Level { kDebug, kInfo, kWarning, kError };

/// Sets the process up once, before any thread starts. Goes to stderr; under systemd
/// (JOURNAL_STREAM set) with the priority prefix of sd-daemon(3) and without a timestamp, as the
/// journal adds both.
void set_up(std::string_view program, Level level);

/// Reads debug, info, warning or error; nothing else.
bool parse_level(std::string_view text, Level& level);

/// One line. Thread-safe. For operators: state changes only, never per step or message.
void write(Level level, std::string_view module, std::string_view message);

inline void debug(std::string_view module, std::string_view message) {
  write(Level::kDebug, module, message);
}
inline void info(std::string_view module, std::string_view message) {
  write(Level::kInfo, module, message);
}
inline void warning(std::string_view module, std::string_view message) {
  write(Level::kWarning, module, message);
}
inline void error(std::string_view module, std::string_view message) {
  write(Level::kError, module, message);
}

/// Like warning(), at most once per `key` in ten seconds; what was held back is counted in the
/// next line. A key that was quiet for ten seconds speaks at once again. Keys are bounded.
void warning_limited(std::string_view module, const std::string& key, std::string_view message);

}  // namespace tapas::log
