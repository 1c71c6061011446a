#include "config/agent_config.h"

#include "base/endpoint.h"
#include "base/ids.h"
#include "base/json/json.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string_view>

namespace tapas {

namespace {

constexpr json::ParseLimits kLimits{.max_bytes = 1U << 20U, .max_depth = 8, .comments = true};

/// The numbers: key, default and bounds, and what --help says.
struct Option {
  double AgentConfig::*value;
  std::string_view key;
  double fallback;
  double min;
  double max;
  std::string_view help;
};
constexpr std::array kOptions = {
    Option{&AgentConfig::scan_interval_s, "scan_interval_s", 0.5, 0.01, 60.0,
           "between looks for new and dead ranks"},
    Option{&AgentConfig::poll_interval_s, "poll_interval_s", 0.02, 0.001, 1.0,
           "between reads of the ranks' rings"},
    Option{&AgentConfig::flush_interval_s, "flush_interval_s", 0.2, 0.001, 60.0,
           "longest wait of a record for its batch"},
    Option{&AgentConfig::phase_timeout_s, "phase_timeout_s", 300.0, 0.1, 86'400.0,
           "for the ranks' answers to an order of a switch"},
    Option{&AgentConfig::order_timeout_s, "order_timeout_s", 120.0, 0.1, 86'400.0,
           "for the daemon's next order; then the node aborts the switch"},
    Option{&AgentConfig::health_interval_s, "health_interval_s", 30.0, 0.0, 3600.0,
           "between readings of the node's health; 0 = none"},
};

/// Host name up to the first dot, as clusters name their nodes.
std::string short_host_name() {
  std::array<char, 256> buffer = {};
  if (::gethostname(buffer.data(), buffer.size() - 1) != 0) {
    return {};
  }
  const std::string name(buffer.data());
  return name.substr(0, name.find('.'));
}

Result<AgentConfig> from_json(const json::Value& value, const std::string& path) {
  json::ObjectReader in(value, path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const auto refuse = [&in](std::string_view key, std::string_view what) {
    if (in.ok()) {
      in.absorb({ErrorCode::kInvalid, fmt::format("{}: {}", in.child(key), what)});
    }
  };
  in.require_schema("tapas.agent/1");
  AgentConfig config;
  config.node = in.string_or("node", short_host_name());
  if (!valid_name(config.node)) {
    refuse("node", "not a node's name; set it to the node's name in the cluster file");
  }
  config.daemon_endpoint = in.string("daemon_endpoint");
  if (const auto valid = check_endpoint(config.daemon_endpoint); !valid) {
    refuse("daemon_endpoint", valid.error().message);
  }
  config.daemon_public_key = folder / in.string("daemon_public_key");
  config.secret_key = folder / in.string("secret_key");
  config.rank_dir = folder / in.string_or("rank_dir", "/dev/shm");
  for (const Option& option : kOptions) {
    config.*option.value = in.number_or(option.key, option.fallback, option.min, option.max);
  }
  config.health_root = folder / in.string_or("health_root", "/");
  config.max_queued_records = in.integer_or("max_queued_records", 65'536, 512, 1 << 22);
  const std::string level =
      in.has("log_level") ? in.word("log_level", {"debug", "info", "warning", "error"}) : "info";
  if (auto ok = in.finish(); !ok) {
    return tl::unexpected(ok.error());
  }
  log::parse_level(level, config.log_level);
  return config;
}

}  // namespace

std::string describe_agent_options() {
  std::string text =
      "Configuration keys (JSON with comments; file names relative to the file's folder):\n"
      "  schema              must be \"tapas.agent/1\"\n"
      "  node                name in the cluster file; the host's name up to its first dot\n"
      "  daemon_endpoint     tcp://host:port where tapasd listens for agents\n"
      "  daemon_public_key   file of the daemon's public key\n"
      "  secret_key          file of this node's secret key, mode 0600\n"
      "  rank_dir            where ranks put their shared memory [/dev/shm]\n"
      "  health_root         folder that holds the node's sys and proc [/]\n"
      "  max_queued_records  kept while the daemon is away [65536, 512 to 4194304]\n"
      "  log_level           debug, info, warning or error [info]\n";
  for (const Option& option : kOptions) {
    text += fmt::format("  {:<19} {} [{}, {} to {}]\n", option.key, option.help, option.fallback,
                        option.min, option.max);
  }
  return text;
}

Result<AgentConfig> load_agent_config(const std::string& path) {
  const auto value = json::parse_file(path, kLimits);
  if (!value) {
    return tl::unexpected(value.error());
  }
  return from_json(*value, path);
}

Result<AgentConfig> parse_agent_config(std::string_view text, const std::string& path) {
  const auto value = json::parse(text, kLimits);
  if (!value) {
    return fail_in(path, value.error());
  }
  return from_json(*value, path);
}

}  // namespace tapas
