// Holds the source tree to the rules of docs/architecture.md: who may include whom, the size of
// files, a README beside code.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const fs::path kRoot = TAPAS_SOURCE_DIR;
const Words kCodeFolders = {"base", "wire", "solver", "config", "daemon", "agent", "ctl"};
constexpr std::size_t kMaxLines = 800;

/// What the files below a folder may include of ours and of third parties. The longest matching
/// folder counts. Standard headers and the files beside a file are always allowed; POSIX and kernel
/// headers only where `system` says so.
struct Rule {
  std::string folder;
  Words ours;
  Words third_party;
  bool system = false;
};
const std::vector<Rule> kRules = {
    {"base", {"base"}, {"fmt/", "tl/"}},
    {"base/json", {"base"}, {"fmt/", "tl/", "nlohmann/"}},
    {"base/log", {"base"}, {"fmt/", "tl/", "spdlog/"}, true},
    {"wire", {"base"}, {"fmt/", "tl/"}},
    {"solver", {"base", "solver"}, {"fmt/", "tl/"}},
    {"solver/model/io", {"base", "solver"}, {"fmt/", "tl/", "nlohmann/"}},
    {"solver/profile", {"base", "solver"}, {"fmt/", "tl/", "nlohmann/"}},
    {"solver/topo", {"base", "solver"}, {"fmt/", "tl/", "pugixml"}},
    {"config", {"base", "daemon/core"}, {"fmt/", "tl/", "nlohmann/"}, true},
    {"daemon/core", {"base", "solver"}, {"fmt/", "tl/"}},
    {"daemon",
     {"base", "wire", "solver", "config", "daemon"},
     {"fmt/", "tl/", "nlohmann/", "zmq", "sqlite3", "boost/", "prometheus/", "CLI/", "systemd/"},
     true},
    {"agent",
     {"base", "wire", "config", "agent"},
     {"fmt/", "tl/", "nlohmann/", "zmq", "CLI/", "systemd/"},
     true},
    {"agent/rank", {"base", "wire"}, {"fmt/", "tl/", "tapas_rank.h"}, true},
    {"agent/net", {"base"}, {"fmt/", "tl/"}, true},
    {"agent/probe",
     {"base", "agent/health", "agent/net"},
     {"fmt/", "tl/", "nlohmann/", "CLI/"},
     true},
    {"agent/ras", {"base", "agent/net"}, {"fmt/", "tl/", "nlohmann/", "CLI/"}, true},
    {"agent/health", {"base"}, {"fmt/", "tl/", "nlohmann/", "CLI/"}, true},
    {"agent/nccl", {"base", "wire", "agent/rank"}, {}, true},
    {"agent/twin",
     {"base", "wire", "config", "agent", "solver/model"},
     {"fmt/", "tl/", "nlohmann/", "zmq", "CLI/"},
     true},
    {"ctl",
     {"base", "config", "solver", "daemon/core", "daemon/recording", "daemon/store", "ctl"},
     {"fmt/", "tl/", "nlohmann/", "zmq", "boost/", "CLI/"},
     true},
};
/// Within a folder, what only some of its parts may see.
const std::vector<std::pair<std::string, std::regex>> kForbidden = {
    {"base", std::regex("base/(json|log)/.*")},
    {"wire", std::regex("nlohmann/.*")},
    {"solver/check", std::regex("solver/(cost|search|replan)/.*")},
    {"solver/profile", std::regex("solver/(cost|search|replan|check)/.*")},
    {"solver/cost", std::regex("solver/(search|replan|check)/.*|base/(json|log)/.*")},
    {"solver/search", std::regex("base/(json|log)/.*")},
    {"solver/replan", std::regex("base/(json|log)/.*")},
    {"daemon/core", std::regex("base/(json|log)/.*|solver/(topo|model/io)/.*")},
    {"agent/nccl", std::regex("base/(json|log)/.*")},
    {"agent/rank", std::regex("base/(json|log)/.*")},
    {"ctl", std::regex("daemon/(store/(?!journal\\.h)|recording/(?!(format|replay)\\.h)).*")},
};

bool starts_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}
bool is_below(const std::string& path, const std::string& folder) {
  return starts_with(path, folder + "/");
}

/// Forward slashes, relative to the root.
std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    const std::string extension = entry.path().extension();
    if (entry.is_regular_file() && (extension == ".cc" || extension == ".h" || extension == ".c")) {
      files.push_back(fs::relative(entry.path(), kRoot).generic_string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

const Rule* rule_for(const std::string& file) {
  const Rule* best = nullptr;
  for (const Rule& rule : kRules) {
    if (is_below(file, rule.folder) &&
        (best == nullptr || rule.folder.size() > best->folder.size())) {
      best = &rule;
    }
  }
  return best;
}

bool is_standard(const std::string& header) {
  static const std::regex kStandard("[a-z_0-9]+");
  static const std::set<std::string> kC = {"stddef.h", "stdint.h", "stdbool.h", "stdatomic.h",
                                           "stdio.h",  "stdlib.h", "string.h",  "inttypes.h"};
  return std::regex_match(header, kStandard) || kC.count(header) > 0;
}
bool is_system(const std::string& header) {
  static const std::regex kSystem("(sys|arpa|netinet|net|linux)/.*|[a-z]+\\.h");
  return std::regex_match(header, kSystem) && !starts_with(header, "zmq") &&
         !starts_with(header, "sqlite3");
}
bool any_prefix(const Words& prefixes, const std::string& text) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return starts_with(text, prefix); });
}

/// Empty when the include is allowed, else why not.
std::string violation(const std::string& file, const std::string& header, bool quoted) {
  const Rule* rule = rule_for(file);
  if (rule == nullptr) {
    return "no rule covers this folder";
  }
  const std::string own_folder = fs::path(file).parent_path().generic_string();
  const bool own = quoted && fs::path(header).parent_path().generic_string() == own_folder;
  if (own) {
    return "";
  }
  for (const auto& [folder, pattern] : kForbidden) {
    if (is_below(file, folder) && std::regex_match(header, pattern)) {
      return "forbidden for " + folder;
    }
  }
  if (quoted) {
    const bool allowed =
        is_below(header, rule->folder) ||
        std::any_of(rule->ours.begin(), rule->ours.end(),
                    [&](const std::string& ours) { return is_below(header, ours); });
    return allowed ? "" : rule->folder + " may not include it";
  }
  if (is_standard(header) || any_prefix(rule->third_party, header) ||
      (rule->system && is_system(header))) {
    return "";
  }
  return rule->folder + " may not include it";
}

TEST(SourceTree, IncludesOnlyWhatTheArrowsAllow) {
  static const std::regex kInclude(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::size_t checked = 0;
  for (const std::string& folder : kCodeFolders) {
    for (const std::string& file : files_below(folder)) {
      std::ifstream in(kRoot / file);
      std::string line;
      for (int number = 1; std::getline(in, line); ++number) {
        std::smatch match;
        if (std::regex_search(line, match, kInclude)) {
          ++checked;
          const std::string why = violation(file, match[2], match[1] == "\"");
          EXPECT_TRUE(why.empty())
              << file << ":" << number << ": includes " << match[2] << ": " << why;
        }
      }
    }
  }
  EXPECT_GT(checked, 100U);
}

TEST(SourceTree, RefusesArrowsThatPointUp) {
  EXPECT_NE(violation("solver/cost/predict.cc", "daemon/core/core.h", true), "");
  EXPECT_NE(violation("solver/cost/predict.cc", "nlohmann/json.hpp", false), "");
  EXPECT_NE(violation("daemon/core/core.cc", "base/json/json.h", true), "");
  EXPECT_NE(violation("daemon/core/core.cc", "sqlite3.h", false), "");
  EXPECT_NE(violation("solver/check/check_plan.cc", "solver/cost/predict.h", true), "");
  EXPECT_NE(violation("agent/twin/truth.cc", "solver/cost/predict.h", true), "");
  EXPECT_NE(violation("base/ids.cc", "base/json/json.h", true), "");
  EXPECT_NE(violation("ctl/journal.cc", "daemon/store/store.h", true), "");
  EXPECT_EQ(violation("ctl/journal.cc", "daemon/store/journal.h", true), "");
  EXPECT_NE(violation("agent/rank/tapas_rank.cc", "zmq.h", false), "");
  EXPECT_EQ(violation("daemon/net/router.cc", "zmq.hpp", false), "");
  EXPECT_EQ(violation("agent/twin/truth.cc", "solver/model/plan.h", true), "");
}

TEST(SourceTree, KeepsFilesShort) {
  Words folders = kCodeFolders;
  folders.emplace_back("tests");
  for (const std::string& folder : folders) {
    for (const std::string& file : files_below(folder)) {
      std::ifstream in(kRoot / file);
      const auto lines = static_cast<std::size_t>(
          std::count(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>(), '\n'));
      EXPECT_LE(lines, kMaxLines) << file << ": split it";
    }
  }
}

TEST(SourceTree, ExplainsEveryFolderWithCode) {
  std::set<fs::path> folders;
  for (const std::string& folder : kCodeFolders) {
    for (const std::string& file : files_below(folder)) {
      folders.insert(fs::path(file).parent_path());
    }
  }
  for (const fs::path& folder : folders) {
    EXPECT_TRUE(fs::exists(kRoot / folder / "README.md"))
        << folder << " holds code but no README.md";
  }
}

}  // namespace
