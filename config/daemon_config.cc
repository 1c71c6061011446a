#include "config/daemon_config.h"

#include "base/endpoint.h"
#include "base/json/json.h"

#include <fmt/format.h>

#include <filesystem>
#include <initializer_list>
#include <variant>

namespace tapas {
namespace {

using daemon::CoreConfig;

// One record per option: reading, checking and the help text all come from it. The fallback of a
// core tunable is the member's own initialiser.
struct Text {
  std::string DaemonConfig::*field;
  std::string_view fallback;
  bool is_path = false;
};
struct Paths {
  std::vector<std::string> DaemonConfig::*field;
  std::size_t max_items;
};
struct Number {
  double CoreConfig::*field;
  double min;
  double max;
};
struct Count {
  std::uint32_t CoreConfig::*field;
  std::uint32_t min;
  std::uint32_t max;
};
struct Flag {
  bool CoreConfig::*field;
};
struct Whole {
  std::int64_t DaemonConfig::*field;
  std::int64_t fallback;
  std::int64_t min;
  std::int64_t max;
};
struct Option {
  std::string_view key;
  std::string_view help;
  std::variant<Text, Paths, Number, Count, Flag, Whole> kind;
};

constexpr std::string_view kSchema = "tapas.tapasd/1";

const std::initializer_list<Option> kOptions = {
    {"listen", "ZeroMQ endpoint that agents connect to; brackets make it IPv6",
     Text{&DaemonConfig::listen, "tcp://127.0.0.1:5570"}},
    {"server_key", "file with the daemon's secret key (tapasctl key new server)",
     Text{&DaemonConfig::server_key, "/etc/tapas/server.key", true}},
    {"agent_keys", "folder of <node>.pub, one per agent that is let in; re-read on SIGHUP",
     Text{&DaemonConfig::agent_keys, "/etc/tapas/agents", true}},
    {"state_dir", "database and pid file; must be a local disk",
     Text{&DaemonConfig::state_dir, "/var/lib/tapas", true}},
    {"control_socket", "unix socket of the operator API",
     Text{&DaemonConfig::control_socket, "/run/tapas/tapasd.sock", true}},
    {"http_listen", "host:port where metrics, probes and reading are served without a login",
     Text{&DaemonConfig::http_listen, ""}},
    {"operator_group",
     "members may drain, replan and pause; empty = root and the daemon's user only",
     Text{&DaemonConfig::operator_group, ""}},
    {"jobs", "job files (tapas.job/1)", Paths{&DaemonConfig::jobs, 64}},
    {"auto_replan", "act on verdicts; false = only observe and explain",
     Flag{&CoreConfig::auto_replan}},
    {"heartbeat_s", "how often agents report", Number{&CoreConfig::heartbeat_s, 0.1, 60}},
    {"agent_lost_s", "silence after which an agent counts as lost; at least three heartbeats",
     Number{&CoreConfig::agent_lost_s, 0.5, 3600}},
    {"prepare_deadline_s", "longest wait for PREPARED",
     Number{&CoreConfig::prepare_deadline_s, 0.1, 3600}},
    {"arm_deadline_s", "longest wait for ARMED; a step may take long",
     Number{&CoreConfig::arm_deadline_s, 0.1, 86400}},
    {"transfer_deadline_s", "longest wait for TRANSFERRED",
     Number{&CoreConfig::transfer_deadline_s, 0.1, 86400}},
    {"commit_deadline_s", "longest wait for COMMITTED before it is sent again",
     Number{&CoreConfig::commit_deadline_s, 0.1, 3600}},
    {"episode_prior_s", "expected length of a fresh slow episode, job time; 0 = by its cause",
     Number{&CoreConfig::episode_prior_s, 0, 1e7}},
    {"min_gain_ratio", "share of the step time below which a gain is left alone",
     Number{&CoreConfig::min_gain_ratio, 0, 1}},
    {"dead_band_ratio", "change of a slowdown below which no new plan is looked for",
     Number{&CoreConfig::dead_band_ratio, 0, 10}},
    {"cooldown_s", "job time between two automatic switches of a job",
     Number{&CoreConfig::cooldown_s, 0, 1e7}},
    {"flap_quarantine_s",
     "job time before work moves back to a node slow twice in a row; grows fourfold each time more",
     Number{&CoreConfig::flap_quarantine_s, 0, 1e7}},
    {"replans_per_hour", "automatic switches per job and hour of job time",
     Count{&CoreConfig::replans_per_hour, 0, 3600}},
    {"event_rows", "journal lines kept; the oldest go first",
     Whole{&DaemonConfig::event_rows, 1'000'000, 1000, 100'000'000}},
    {"recording", "file for all that the decisions come from, to be replayed; empty = none",
     Text{&DaemonConfig::recording, "", true}},
    {"recording_mib", "size at which the recording ends",
     Whole{&DaemonConfig::recording_mib, 256, 1, 65536}},
};

std::string resolved(const std::filesystem::path& folder, const std::string& path) {
  return path.empty() ? path : (folder / path).lexically_normal().string();
}

class Reader {
 public:
  Reader(json::ObjectReader& in, DaemonConfig& config, std::filesystem::path folder)
      : in_(in), config_(config), folder_(std::move(folder)) {}

  void read(const Option& option) {
    key_ = option.key;
    std::visit(*this, option.kind);
  }

  void operator()(const Text& text) {
    std::string value = in_.string_or(key_, text.fallback);
    config_.*text.field = text.is_path ? resolved(folder_, value) : std::move(value);
  }
  void operator()(const Paths& paths) {
    if (!in_.has(key_)) {
      return;
    }
    std::size_t index = 0;
    for (const json::Value& item : in_.array(key_, paths.max_items)) {
      if (!item.is_string() || item.get_ref<const std::string&>().empty()) {
        in_.absorb({ErrorCode::kInvalid,
                    fmt::format("{}: must be a file name in quotes", in_.child(key_, index))});
        return;
      }
      (config_.*paths.field).push_back(resolved(folder_, item.get<std::string>()));
      ++index;
    }
  }
  void operator()(const Number& number) {
    double& value = config_.core.*number.field;
    value = in_.number_or(key_, value, number.min, number.max);
  }
  void operator()(const Count& count) {
    std::uint32_t& value = config_.core.*count.field;
    value = static_cast<std::uint32_t>(in_.integer_or(key_, value, count.min, count.max));
  }
  void operator()(const Flag& flag) {
    bool& value = config_.core.*flag.field;
    value = in_.boolean_or(key_, value);
  }
  void operator()(const Whole& whole) {
    config_.*whole.field = in_.integer_or(key_, whole.fallback, whole.min, whole.max);
  }

 private:
  json::ObjectReader& in_;
  DaemonConfig& config_;
  std::filesystem::path folder_;
  std::string_view key_;
};

struct Describe {
  CoreConfig fallback = {};
  std::string operator()(const Text& text) const {
    return text.fallback.empty() ? std::string("default none")
                                 : fmt::format("default {}", text.fallback);
  }
  std::string operator()(const Paths& paths) const {
    return fmt::format("list of up to {} files, default none", paths.max_items);
  }
  std::string operator()(const Number& number) const {
    return fmt::format("default {}, {} to {}", fallback.*number.field, number.min, number.max);
  }
  std::string operator()(const Count& count) const {
    return fmt::format("default {}, {} to {}", fallback.*count.field, count.min, count.max);
  }
  std::string operator()(const Flag& flag) const {
    return fmt::format("default {}", fallback.*flag.field);
  }
  std::string operator()(const Whole& whole) const {
    return fmt::format("default {}, {} to {}", whole.fallback, whole.min, whole.max);
  }
};

/// "old -> new"; empty when they are the same.
template <typename T>
std::string step(const T& before, const T& after) {
  return before == after ? std::string() : fmt::format("{} -> {}", before, after);
}

/// Of an option of the core, or of one that only a restart takes over.
struct Changed {
  const DaemonConfig& before;
  const DaemonConfig& after;
  bool of_core;
  std::string operator()(const Text& text) const {
    return of_core ? "" : step(before.*text.field, after.*text.field);
  }
  std::string operator()(const Paths& paths) const {
    return of_core || before.*paths.field == after.*paths.field ? "" : "changed";
  }
  std::string operator()(const Number& number) const { return core(number.field); }
  std::string operator()(const Count& count) const { return core(count.field); }
  std::string operator()(const Flag& flag) const { return core(flag.field); }
  std::string operator()(const Whole& whole) const {
    return of_core ? "" : step(before.*whole.field, after.*whole.field);
  }
  template <typename T>
  std::string core(T CoreConfig::*field) const {
    return of_core ? step(before.core.*field, after.core.*field) : "";
  }
};

std::vector<std::string> changes(const Changed& changed) {
  std::vector<std::string> out;
  for (const Option& option : kOptions) {
    if (const std::string values = std::visit(changed, option.kind); !values.empty()) {
      out.push_back(fmt::format("{} {}", option.key, values));
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> core_changes(const DaemonConfig& before, const DaemonConfig& after) {
  return changes({before, after, true});
}

std::vector<std::string> other_changes(const DaemonConfig& before, const DaemonConfig& after) {
  return changes({before, after, false});
}

Result<DaemonConfig> load_daemon_config(const std::string& path) {
  const auto value = json::parse_file(path, {.max_bytes = 1U << 20U, .comments = true});
  if (!value) {
    return tl::unexpected(value.error());
  }
  json::ObjectReader in(*value, "config");
  in.require_schema(kSchema);
  DaemonConfig config;
  Reader reader(in, config, std::filesystem::absolute(path).parent_path());
  for (const Option& option : kOptions) {
    reader.read(option);
  }
  if (const auto valid = check_endpoint(config.listen); !valid && in.ok()) {
    in.absorb(
        {valid.error().code, fmt::format("{}: {}", in.child("listen"), valid.error().message)});
  }
  if (auto ok = in.finish(); !ok) {
    return fail_in(path, ok.error());
  }
  return config;
}

std::string describe_daemon_options() {
  std::string text = fmt::format("  {:<20} must be \"{}\"\n", "schema", kSchema);
  for (const Option& option : kOptions) {
    text += fmt::format("  {:<20} {} ({})\n", option.key, option.help,
                        std::visit(Describe{}, option.kind));
  }
  return text;
}

}  // namespace tapas
