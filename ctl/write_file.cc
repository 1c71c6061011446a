#include "ctl/write_file.h"

#include <fstream>

namespace tapas::ctl {

Result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    return fail(ErrorCode::kIo, "cannot write {}: check that the folder exists and has room", path);
  }
  return {};
}

}  // namespace tapas::ctl
