#include "solver/profile/profile.h"

#include "solver/profile/readers.h"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

namespace tapas::solver::profile {
namespace {

constexpr std::size_t kMaxFileBytes = 64U << 20U;
constexpr std::size_t kMaxFiles = 256;

constexpr std::array<std::pair<Layout, std::string_view>, 7> kLayouts = {{
    {Layout::kAceso, "aceso"},
    {Layout::kGalvatron, "galvatron"},
    {Layout::kNnscaler, "nnscaler"},
    {Layout::kPipedream, "pipedream"},
    {Layout::kPiper, "piper"},
    {Layout::kSailor, "sailor"},
    {Layout::kVtrain, "vtrain"},
}};

Result<void> check_files(const std::vector<File>& files) {
  if (files.empty()) {
    return fail(ErrorCode::kInvalid, "no profile file was given");
  }
  if (files.size() > kMaxFiles) {
    return fail(ErrorCode::kInvalid, "{} files, the limit is {}", files.size(), kMaxFiles);
  }
  for (const File& file : files) {
    if (file.text.size() > kMaxFileBytes) {
      return fail(ErrorCode::kInvalid, "{}: larger than the limit of {} bytes", file.name,
                  kMaxFileBytes);
    }
  }
  return {};
}

Result<Profile> dispatch(Layout layout, const std::vector<File>& files, const Options& options) {
  switch (layout) {
    case Layout::kAceso:
      return read_aceso(files, options);
    case Layout::kGalvatron:
      return read_galvatron(files, options);
    case Layout::kPipedream:
      return read_pipedream(files, options);
    case Layout::kPiper:
      return read_piper(files, options);
    case Layout::kSailor:
      return read_sailor(files, options);
    case Layout::kNnscaler:
    case Layout::kVtrain:
      break;
  }
  return fail(ErrorCode::kInvalid, "layout {} has no layer times, only collectives",
              to_string(layout));
}

Result<Collectives> dispatch(Layout layout, const File& file, const Options& options) {
  switch (layout) {
    case Layout::kAceso:
      return read_aceso_collectives(file);
    case Layout::kGalvatron:
      return read_galvatron_collectives(file);
    case Layout::kNnscaler:
      return read_nnscaler_collectives(file);
    case Layout::kSailor:
      return read_sailor_collectives(file, options);
    case Layout::kVtrain:
      return read_vtrain_collectives(file);
    case Layout::kPipedream:
    case Layout::kPiper:
      break;
  }
  return fail(ErrorCode::kInvalid, "layout {} has no collectives, only layer times",
              to_string(layout));
}

}  // namespace

std::string_view to_string(Layout layout) {
  for (const auto& [known, word] : kLayouts) {
    if (known == layout) {
      return word;
    }
  }
  return "unknown";
}

Result<Layout> layout_from(std::string_view word) {
  std::string words;
  for (const auto& [layout, known] : kLayouts) {
    if (known == word) {
      return layout;
    }
    words += words.empty() ? "" : ", ";
    words += known;
  }
  return fail(ErrorCode::kInvalid, "unknown profile layout \"{}\"; known are {}", word, words);
}

Result<File> load_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  File file{path, {}};
  std::array<char, 65536> block{};
  while (in && file.text.size() <= kMaxFileBytes) {
    in.read(block.data(), block.size());
    file.text.append(block.data(), static_cast<std::size_t>(in.gcount()));
  }
  if (!in.eof() && file.text.size() <= kMaxFileBytes) {
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot read {}: {}", path,
                std::strerror(errno));
  }
  if (file.text.size() > kMaxFileBytes) {
    return fail(ErrorCode::kInvalid, "{}: larger than the limit of {} bytes", path, kMaxFileBytes);
  }
  return file;
}

Result<std::vector<File>> load_files(const std::vector<std::string>& paths) {
  std::vector<File> files;
  for (const std::string& path : paths) {
    auto file = load_file(path);
    if (!file) {
      return tl::unexpected<Error>(file.error());
    }
    files.push_back(std::move(*file));
  }
  return files;
}

Result<Profile> read(Layout layout, const std::vector<File>& files, const Options& options) {
  if (auto ok = check_files(files); !ok) {
    return tl::unexpected(ok.error());
  }
  auto profile = dispatch(layout, files, options);
  if (!profile) {
    return profile;
  }
  if (auto valid = validate(profile->graph); !valid) {
    return fail_in(files.front().name, valid.error());
  }
  return profile;
}

Result<Collectives> read_collectives(Layout layout, const std::vector<File>& files,
                                     const Options& options) {
  if (auto ok = check_files(files); !ok) {
    return tl::unexpected(ok.error());
  }
  Collectives all;
  for (const File& file : files) {
    const auto some = dispatch(layout, file, options);
    if (!some) {
      return some;
    }
    all.insert(all.end(), some->begin(), some->end());
  }
  return all;
}

std::string_view base_name(const File& file) {
  std::string_view name = file.name;
  if (const std::size_t slash = name.rfind('/'); slash != std::string_view::npos) {
    name.remove_prefix(slash + 1);
  }
  return name;
}

Result<json::Value> parse_object(const File& file) {
  auto value = json::parse(file.text);
  if (!value) {
    return fail_in(file.name, value.error());
  }
  if (!value->is_object()) {
    return fail(ErrorCode::kInvalid, "{}: expected a JSON object", file.name);
  }
  return value;
}

Result<double> amount(const json::Value& value, const std::string& where, double max) {
  if (!value.is_number()) {
    return fail(ErrorCode::kInvalid, "{}: expected a number, found {}", where, value.type_name());
  }
  const double number = value.get<double>();
  if (!(number >= 0) || number > max) {
    return fail(ErrorCode::kInvalid, "{}: {} is not between 0 and {}", where, number, max);
  }
  return number;
}

std::optional<std::uint32_t> whole(std::string_view text, std::uint32_t min, std::uint32_t max) {
  std::uint64_t value = 0;
  if (text.empty() || text.size() > 10) {
    return std::nullopt;
  }
  for (const char c : text) {
    if (c < '0' || c > '9') {
      return std::nullopt;
    }
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (value < min || value > max) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(value);
}

}  // namespace tapas::solver::profile
