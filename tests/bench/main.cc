#include "base/json/json.h"
#include "tests/bench/bench.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

namespace tapas::bench {
namespace {

std::vector<std::pair<std::string, Bench>>& registry() {
  static std::vector<std::pair<std::string, Bench>> benches;
  return benches;
}

bool has_target(const Measurement& m) { return !std::isnan(m.target); }

bool reached(const Measurement& m) {
  return !has_target(m) || (m.lower_is_better ? m.value <= m.target : m.value >= m.target);
}

json::Value to_json(const std::vector<Measurement>& all) {
  json::Value list = json::Value::array();
  for (const Measurement& m : all) {
    json::Value item;
    item["name"] = m.name;
    item["value"] = m.value;
    item["unit"] = m.unit;
    item["target"] = has_target(m) ? json::Value(m.target) : json::Value(nullptr);
    item["better"] = m.lower_is_better ? "lower" : "higher";
    item["ok"] = reached(m);
    list.push_back(std::move(item));
  }
  json::Value result;
  result["benchmarks"] = std::move(list);
  return result;
}

void print_table(const std::vector<Measurement>& all) {
  fmt::print("{:<44} {:>14} {:<9} {:>14}\n", "", "measured", "", "target");
  for (const Measurement& m : all) {
    const std::string target =
        has_target(m) ? fmt::format("{} {:.4g}", m.lower_is_better ? "<=" : ">=", m.target) : "-";
    fmt::print("{:<44} {:>14.4g} {:<9} {:>14}  {}\n", m.name, m.value, m.unit, target,
               reached(m) ? "" : "missed");
  }
}

}  // namespace

Registration::Registration(std::string prefix, Bench bench) {
  registry().emplace_back(std::move(prefix), std::move(bench));
}

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace tapas::bench

int main(int argc, char** argv) {
  using namespace tapas;
  CLI::App app("Measures what the project promises, beside its targets.", "tapas-bench");
  bool as_json = false;
  std::string only;
  app.add_flag("--json", as_json, "print JSON instead of a table");
  app.add_option("--only", only, "run the measurements whose name starts with this");
  CLI11_PARSE(app, argc, argv);

  std::sort(bench::registry().begin(), bench::registry().end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<bench::Measurement> all;
  for (const auto& [prefix, run] : bench::registry()) {
    if (prefix.starts_with(only) || std::string_view(only).starts_with(prefix)) {
      for (bench::Measurement& m : run()) {
        if (m.name.starts_with(only)) {
          all.push_back(std::move(m));
        }
      }
    }
  }
  if (as_json) {
    fmt::print("{}\n", json::dump(bench::to_json(all), 2));
  } else {
    bench::print_table(all);
  }
  return 0;
}
