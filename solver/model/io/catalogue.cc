#include "solver/model/io/catalogue.h"

#include "base/json/json.h"
#include "solver/model/io/read.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

namespace tapas::solver {

namespace {

namespace fs = std::filesystem;

Result<fs::path> folder_of(std::string_view section) {
  std::error_code error;
  if (const char* named = std::getenv("TAPAS_CATALOGUE"); named != nullptr && *named != '\0') {
    if (const fs::path folder = fs::path(named) / section; fs::is_directory(folder, error)) {
      return folder;
    }
    return fail(ErrorCode::kNotFound, "TAPAS_CATALOGUE is {}, which has no folder {}", named,
                section);
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (fs::path above = program.parent_path(); above.has_relative_path();
       above = above.parent_path()) {
    for (const char* place : {"share/tapas/catalogue", "config/catalogue"}) {
      if (const fs::path folder = above / place / section; fs::is_directory(folder, error)) {
        return folder;
      }
    }
  }
  return fail(ErrorCode::kNotFound,
              "there is no share/tapas/catalogue/{} above {}; set TAPAS_CATALOGUE to that folder",
              section, program.string());
}

}  // namespace

Result<std::vector<std::string>> catalogue_names(std::string_view section) {
  const auto folder = folder_of(section);
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
    return fail(ErrorCode::kIo, "cannot list {}: {}", folder->string(), error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> catalogue_file(std::string_view section, const std::string& name) {
  const auto names = catalogue_names(section);
  if (!names) {
    return tl::unexpected<Error>(names.error());
  }
  if (!std::binary_search(names->begin(), names->end(), name)) {
    std::string known;
    for (const std::string& one : *names) {
      known += (known.empty() ? "" : ", ") + one;
    }
    return fail(ErrorCode::kNotFound, "the catalogue has no \"{}\" among its {}: {}", name, section,
                known);
  }
  return (*folder_of(section) / (name + ".json")).string();
}

Result<CatalogueDevice> load_catalogue_device(const std::string& name) {
  const auto path = catalogue_file("devices", name);
  if (!path) {
    return tl::unexpected<Error>(path.error());
  }
  const auto value = json::parse_file(*path);
  if (!value) {
    return tl::unexpected<Error>(value.error());
  }
  json::ObjectReader in(*value, *path);
  in.require_schema("tapas.device/1");
  CatalogueDevice device;
  if (auto type = io::read_device_type(in.object("device_type"), in.child("device_type"))) {
    device.type = std::move(*type);
  } else {
    in.absorb(type.error());
  }
  json::ObjectReader node(in.object("node"), in.child("node"));
  device.node.name = node.string("name");
  io::read_links(node, device.node);
  if (const auto done = node.finish(); !done) {
    in.absorb(done.error());
  }
  device.source = in.string("source");
  device.note = in.string_or("note", "");
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  return device;
}

}  // namespace tapas::solver
