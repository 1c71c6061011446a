#include "ctl/write_file.h"

#include "ctl/context.h"

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

Result<void> write_or_print(const std::string& path, const std::string& text) {
  if (path.empty()) {
    print(text);
    return {};
  }
  return write_file(path, text);
}

}  // namespace tapas::ctl
