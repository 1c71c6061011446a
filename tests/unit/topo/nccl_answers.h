#pragma once

#include "base/json/json.h"
#include "solver/cost/collectives.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <regex>
#include <sstream>
#include <string>

/// What NCCL 2.28.9's own code answered about the sample topologies, when they are at hand.
namespace tapas::solver::nccl_answers {

inline std::filesystem::path folder() {
  return std::filesystem::path(TAPAS_SOURCE_DIR) / ".." / "shared" / "data" / "topo";
}

inline std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Null when the folder is absent.
inline json::Value load() {
  const auto path = folder() / "expected-nccl-2.28.9.json";
  if (!std::filesystem::exists(path)) {
    return nullptr;
  }
  return json::Value::parse(read(path));
}

inline PathType path_type(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(PathType::kDis); ++i) {
    if (to_string(static_cast<PathType>(i)) == name) {
      return static_cast<PathType>(i);
    }
  }
  return PathType::kDis;
}

inline ChannelSet channels(const json::Value& value) {
  ChannelSet set;
  set.channels = value.at("channels").get<std::uint32_t>();
  set.intra_bytes_per_s = value.at("bwIntra").get<double>() * 1e9;
  set.inter_bytes_per_s = value.at("bwInter").get<double>() * 1e9;
  if (value.at("typeIntra").is_string()) {
    set.intra = path_type(value.at("typeIntra").get<std::string>());
    set.inter = path_type(value.at("typeInter").get<std::string>());
  } else {
    set.intra = PathType::kNvl;  // NVLS needs a switch
  }
  return set;
}

inline Generation generation_of(int sm) {
  return sm >= 100  ? Generation::kBlackwell
         : sm >= 90 ? Generation::kHopper
         : sm >= 80 ? Generation::kAmpere
                    : Generation::kVolta;
}

/// The graphs that NCCL found, with what the tuner reads from the file beside them.
inline CommGraph graph(const json::Value& answer, const std::string& xml) {
  CommGraph graph;
  graph.ring = channels(answer.at("ring"));
  graph.tree = channels(answer.at("tree"));
  graph.plain_tree = answer.at("tree").at("pattern").get<int>() == 3;
  if (answer.contains("nvls")) {
    graph.nvls = channels(answer.at("nvls"));
  }
  std::smatch sm;
  int capability = 80;
  if (std::regex_search(xml, sm, std::regex("sm=\"([0-9]+)\""))) {
    capability = std::stoi(sm[1]);
  }
  graph.generation = generation_of(capability);
  graph.amd_host = xml.find("AuthenticAMD") != std::string::npos;
  return graph;
}

struct Case {
  std::string name;  ///< file, or file and what is degraded in it
  std::string file;
  std::string variant;  ///< empty = the file as it is
  std::uint32_t nodes = 1;
  const json::Value* answer = nullptr;
};

/// Every configuration that NCCL accepted.
inline void each_case(const json::Value& all, const std::function<void(const Case&)>& visit) {
  const auto both = [&](const std::string& file, const std::string& variant,
                        const json::Value& answers) {
    for (const std::uint32_t nodes : {1U, 4U}) {
      const std::string key = std::to_string(nodes) + (nodes == 1 ? "node" : "nodes");
      if (answers.contains(key) && answers.at(key).contains("ring")) {
        visit({file + (variant.empty() ? "" : " " + variant) + " " + key, file, variant, nodes,
               &answers.at(key)});
      }
    }
  };
  for (const auto& [file, answers] : all.at("files").items()) {
    both(file, "", answers);
  }
  for (const auto& [variant, answers] : all.at("degraded_a100_8gpu_roce_bond").items()) {
    both("a100-8gpu-roce-bond.xml", variant, answers);
  }
}

}  // namespace tapas::solver::nccl_answers
