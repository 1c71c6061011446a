#include "config/agent_config.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config =
      tapas::parse_agent_config(tapas::fuzz::as_text(data, size), "/etc/tapas/agent.json");
  if (config) {
    tapas::fuzz::require(config->poll_interval_s > 0 && config->max_queued_records > 0 &&
                             config->secret_key.starts_with('/'),
                         "an accepted configuration is usable");
  }
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  return {project_file("config/examples/agent.json"),
          R"({"schema":"tapas.agent/1","node":"n0","daemon_endpoint":"tcp://h:1",)"
          R"("daemon_public_key":"d.pub","secret_key":"n.key","scan_interval_s":1,)"
          R"("poll_interval_s":0.01,"max_queued_records":1000,"log_level":"debug"})"};
}
