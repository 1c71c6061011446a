#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "solver/model/decoder.h"

#include <string>

/// Models by their architecture numbers: `tapas.model/1`, docs/formats.md.
namespace tapas::solver {

struct CatalogueModel {
  DecoderShape shape;
  std::string source;  ///< where the numbers are published
};

/// One of catalogue_names("models").
[[nodiscard]] Result<CatalogueModel> catalogue_model(const std::string& name);
[[nodiscard]] Result<CatalogueModel> load_model(const std::string& path);
/// What load_model() reads back. Micro-batch size and bytes per element are not of the model.
[[nodiscard]] json::Value model_to_json(const CatalogueModel& model);

}  // namespace tapas::solver
