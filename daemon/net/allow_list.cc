#include "daemon/net/allow_list.h"

#include "base/ids.h"
#include "config/key_file.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace tapas::daemon {

Result<AllowList> AllowList::load(const std::string& folder) {
  AllowList list;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::filesystem::path& path = entries->path();
    if (path.extension() != ".pub") {
      continue;
    }
    const std::string node = path.stem().string();
    if (!valid_name(node)) {
      return fail(ErrorCode::kInvalid, "{}: \"{}\" is no node name; call the file <node>.pub",
                  path.string(), node);
    }
    auto key = read_public_key(path.string());
    if (!key) {
      return tl::unexpected(key.error());
    }
    const auto [known, fresh] = list.by_key_.emplace(*key, node);
    if (!fresh) {
      return fail(ErrorCode::kInvalid,
                  "{}: the same key as {}.pub; each node needs a key of its own (tapasctl key new)",
                  path.string(), known->second);
    }
    list.by_node_.emplace(node, *std::move(key));
  }
  if (error) {
    return fail(ErrorCode::kIo,
                "agent_keys {}: {}; create the folder and put <node>.pub files in it", folder,
                error.message());
  }
  return list;
}

std::optional<std::string> AllowList::node_of(std::string_view public_key) const {
  const auto found = by_key_.find(public_key);
  return found == by_key_.end() ? std::nullopt : std::optional(found->second);
}

bool AllowList::allows(std::string_view node) const { return by_node_.contains(node); }

}  // namespace tapas::daemon
