#pragma once

#include "base/result.h"

#include <string>

namespace tapas::daemon {

/// The claim of one process to a state directory, held as a lock on DIR/tapasd.pid until the
/// process ends, however it ends. The file stays; only its lock means anything.
class PidFile {
 public:
  /// kConflict names the process that holds the directory.
  [[nodiscard]] static Result<PidFile> claim(const std::string& directory);
  PidFile(PidFile&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  PidFile& operator=(PidFile&&) = delete;
  ~PidFile();

 private:
  explicit PidFile(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace tapas::daemon
