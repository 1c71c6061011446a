#pragma once

#include "base/json/json.h"
#include "solver/profile/profile.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The readers behind read() and read_collectives(), and what they share.
namespace tapas::solver::profile {

inline constexpr double kMebibyte = 1024.0 * 1024.0;
inline constexpr double kMegabyte = 1e6;
inline constexpr double kMaxSeconds = 1e6;
inline constexpr double kMaxBytes = 1e15;

[[nodiscard]] Result<Profile> read_aceso(const std::vector<File>& files, const Options& options);
[[nodiscard]] Result<Profile> read_galvatron(const std::vector<File>& files,
                                             const Options& options);
[[nodiscard]] Result<Profile> read_pipedream(const std::vector<File>& files,
                                             const Options& options);
[[nodiscard]] Result<Profile> read_piper(const std::vector<File>& files, const Options& options);
[[nodiscard]] Result<Profile> read_sailor(const std::vector<File>& files, const Options& options);

using Collectives = std::vector<MeasuredCollective>;
[[nodiscard]] Result<Collectives> read_aceso_collectives(const File& file);
[[nodiscard]] Result<Collectives> read_galvatron_collectives(const File& file);
[[nodiscard]] Result<Collectives> read_nnscaler_collectives(const File& file);
[[nodiscard]] Result<Collectives> read_sailor_collectives(const File& file, const Options& options);
[[nodiscard]] Result<Collectives> read_vtrain_collectives(const File& file);

/// The file's name without folders.
[[nodiscard]] std::string_view base_name(const File& file);
[[nodiscard]] Result<json::Value> parse_object(const File& file);
/// A finite number in [0, max]; `where` is "file: key".
[[nodiscard]] Result<double> amount(const json::Value& value, const std::string& where, double max);
/// Decimal digits only, at least `min` and at most `max`; nothing otherwise.
[[nodiscard]] std::optional<std::uint32_t> whole(std::string_view text, std::uint32_t min,
                                                 std::uint32_t max);

}  // namespace tapas::solver::profile
