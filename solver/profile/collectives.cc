#include "solver/profile/csv.h"
#include "solver/profile/readers.h"

#include <utility>

namespace tapas::solver::profile {
namespace {

constexpr std::uint32_t kMaxDevices = 4096;
constexpr std::size_t kMaxPoints = 100'000;

/// Digits that follow the last `mark` in a file's name.
std::optional<std::uint32_t> devices_in_name(const File& file, std::string_view mark) {
  const std::string_view name = base_name(file);
  const std::size_t at = name.rfind(mark);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  std::string_view digits = name.substr(at + mark.size());
  digits = digits.substr(0, digits.find('.'));
  return whole(digits, 2, kMaxDevices);
}

}  // namespace

Result<Collectives> read_nnscaler_collectives(const File& file) {
  const auto devices = devices_in_name(file, "_");
  if (!devices) {
    return fail(ErrorCode::kInvalid,
                "{}: the name must end in the number of devices, such as comm_intra_8.json",
                file.name);
  }
  const auto value = parse_object(file);
  if (!value) {
    return tl::unexpected(value.error());
  }
  Collectives all;
  for (const auto& [op, columns] : value->items()) {
    const std::string where = file.name + ": " + op;
    Collective kind = Collective::kAllReduce;
    if (op == "all gather") {
      kind = Collective::kAllGather;
    } else if (op == "reduce scatter") {
      kind = Collective::kReduceScatter;
    } else if (op == "all to all") {
      continue;
    } else if (op != "all reduce") {
      return fail(ErrorCode::kInvalid, "{}: unknown collective", where);
    }
    if (!columns.is_array() || columns.size() != 2 || !columns[0].is_array() ||
        !columns[1].is_array() || columns[0].size() != columns[1].size() ||
        columns[0].size() > kMaxPoints) {
      return fail(ErrorCode::kInvalid, "{}: expected two lists of equal length", where);
    }
    for (std::size_t k = 0; k < columns[0].size(); ++k) {
      const auto size = amount(columns[0][k], where, kMaxBytes / kMebibyte);
      const auto seconds = amount(columns[1][k], where, kMaxSeconds);
      if (!size || !seconds) {
        return tl::unexpected(!size ? size.error() : seconds.error());
      }
      all.push_back({kind, 1, *devices, *size * kMebibyte, *seconds});
    }
  }
  return all;
}

Result<Collectives> read_vtrain_collectives(const File& file) {
  const auto devices = devices_in_name(file, "gpu");
  if (!devices) {
    return fail(ErrorCode::kInvalid,
                "{}: the name must end in the number of devices, such as allreduce_gpu8.csv",
                file.name);
  }
  const auto table = Csv::parse(
      file, {"size(B)", "count", "type", "time(ns)", "busbw(GB/s)", "time(ns)", "busbw(GB/s)"});
  if (!table) {
    return tl::unexpected(table.error());
  }
  constexpr std::size_t kBytes = 0;
  constexpr std::size_t kOutOfPlaceNs = 3;
  Collectives all;
  for (std::size_t row = 0; row < table->rows(); ++row) {
    const auto bytes = table->number(row, kBytes, 0, kMaxBytes);
    const auto ns = table->number(row, kOutOfPlaceNs, 0, kMaxSeconds * 1e9);
    if (!bytes || !ns) {
      return tl::unexpected(!bytes ? bytes.error() : ns.error());
    }
    if (*bytes > 0) {
      all.push_back({Collective::kAllReduce, 1, *devices, *bytes, *ns * 1e-9});
    }
  }
  return all;
}

}  // namespace tapas::solver::profile
