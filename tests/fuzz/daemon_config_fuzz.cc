#include "config/daemon_config.h"
#include "memory_file.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tapas::fuzz::MemoryFile file(tapas::fuzz::as_text(data, size));
  const auto config = tapas::load_daemon_config(file.path());
  if (config) {
    tapas::fuzz::require(!config->listen.empty() && !config->server_key.empty(),
                         "an accepted configuration is usable");
  } else {
    tapas::fuzz::require(!config.error().message.empty(), "a refusal says why");
  }
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  return {project_file("config/examples/tapasd.json")};
}
