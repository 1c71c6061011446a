#pragma once

#include "base/result.h"

#include <string>

/// CURVE keys on disk: one key per file as Z85 text of 40 characters (RFC 32 of ZeroMQ), at most
/// one line end after it. `<name>.pub` is public; `<name>.key` is secret and only its owner may
/// read it.
namespace tapas {

[[nodiscard]] Result<std::string> read_public_key(const std::string& path);

/// Refuses a file that its group or others may read or write. Errors never show the content.
[[nodiscard]] Result<std::string> read_secret_key(const std::string& path);

}  // namespace tapas
