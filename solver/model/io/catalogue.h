#pragma once

#include "base/result.h"
#include "solver/model/decoder.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The files that come with TAPAS, by name. They are in share/tapas beside the folder of the
/// program that runs, or in the folder that the environment's TAPAS_DATA_DIR names.
namespace tapas::solver {

/// Names of a kind of entry ("models", "devices"), sorted.
[[nodiscard]] Result<std::vector<std::string>> catalogue_names(std::string_view kind);

/// Path of one entry. The error for an unknown name lists the known ones.
[[nodiscard]] Result<std::string> catalogue_file(std::string_view kind, const std::string& name);

/// A model of the catalogue, `tapas.model/1`.
struct CatalogueModel {
  DecoderShape shape;
  std::string source;  ///< where its numbers are published
};
[[nodiscard]] Result<CatalogueModel> catalogue_model(const std::string& name);
[[nodiscard]] Result<CatalogueModel> load_model(const std::string& path);

}  // namespace tapas::solver
