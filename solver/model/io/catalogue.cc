#include "solver/model/io/catalogue.h"

#include "base/json/json.h"
#include "solver/model/io/read.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace tapas::solver {

namespace {

namespace fs = std::filesystem;

Result<fs::path> folder_of(std::string_view kind) {
  fs::path data;
  if (const char* named = std::getenv("TAPAS_DATA_DIR"); named != nullptr && *named != '\0') {
    data = named;
  } else {
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    data = program.parent_path().parent_path() / "share" / "tapas";
  }
  std::error_code error;
  const fs::path folder = data / kind;
  if (!fs::is_directory(folder, error)) {
    return fail(ErrorCode::kNotFound,
                "the catalogue of {} is not at {}; set TAPAS_DATA_DIR to the folder share/tapas of "
                "the installation",
                kind, folder.string());
  }
  return folder;
}

}  // namespace

Result<std::vector<std::string>> catalogue_names(std::string_view kind) {
  const auto folder = folder_of(kind);
  if (!folder) {
    return tl::unexpected<Error>(folder.error());
  }
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(*folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".json") {
      names.push_back(entry->path().stem().string());
    }
  }
  if (error) {
    return fail(ErrorCode::kUnavailable, "cannot list {}: {}", folder->string(), error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> catalogue_file(std::string_view kind, const std::string& name) {
  const auto names = catalogue_names(kind);
  if (!names) {
    return tl::unexpected<Error>(names.error());
  }
  if (!std::binary_search(names->begin(), names->end(), name)) {
    std::string known;
    for (const std::string& one : *names) {
      known += (known.empty() ? "" : ", ") + one;
    }
    return fail(ErrorCode::kNotFound, "the catalogue of {} has no \"{}\"; it has {}", kind, name,
                known);
  }
  return (*folder_of(kind) / (name + ".json")).string();
}

Result<CatalogueModel> catalogue_model(const std::string& name) {
  const auto path = catalogue_file("models", name);
  if (!path) {
    return tl::unexpected<Error>(path.error());
  }
  return load_model(*path);
}

Result<CatalogueModel> load_model(const std::string& path) {
  const auto value = json::parse_file(path);
  if (!value) {
    return tl::unexpected<Error>(value.error());
  }
  return io::read_model(*value, path);
}

}  // namespace tapas::solver
