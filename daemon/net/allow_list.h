#pragma once

#include "base/result.h"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tapas::daemon {

/// Which public keys (Z85) may connect, and as which node: a folder of <node>.pub.
class AllowList {
 public:
  /// A file that holds no key, a name that is no node name, or one key under two names is an error
  /// that names the file; so a reload can keep the old list.
  [[nodiscard]] static Result<AllowList> load(const std::string& folder);

  [[nodiscard]] std::optional<std::string> node_of(std::string_view public_key) const;
  [[nodiscard]] bool allows(std::string_view node) const;
  [[nodiscard]] std::size_t size() const { return by_key_.size(); }

 private:
  std::map<std::string, std::string, std::less<>> by_key_;
  std::map<std::string, std::string, std::less<>> by_node_;
};

}  // namespace tapas::daemon
