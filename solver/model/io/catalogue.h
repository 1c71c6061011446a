#pragma once

#include "base/result.h"
#include "solver/model/cluster.h"

#include <string>
#include <string_view>
#include <vector>

/// The files that come with TAPAS, by name: share/tapas/catalogue above the program that runs (in
/// the source tree config/catalogue), or the folder that the environment's TAPAS_CATALOGUE names.
namespace tapas::solver {

/// Names of a section's entries ("models", "devices"), sorted.
[[nodiscard]] Result<std::vector<std::string>> catalogue_names(std::string_view section);

/// Path of one entry. The error for an unknown name lists the known ones.
[[nodiscard]] Result<std::string> catalogue_file(std::string_view section, const std::string& name);

/// A device of the catalogue, `tapas.device/1`, and the server it usually comes in.
struct CatalogueDevice {
  DeviceType type;
  NodeType node;       ///< its device_type is 0
  std::string source;  ///< where the numbers are published
  std::string note;
};
[[nodiscard]] Result<CatalogueDevice> load_catalogue_device(const std::string& name);

}  // namespace tapas::solver
