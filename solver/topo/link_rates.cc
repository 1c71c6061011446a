#include "solver/topo/link_rates.h"

#include <cmath>

namespace tapas::solver {

double bytes_per_s(float gbs) { return std::round(double{gbs} * 1e5) * 1e4; }

float pci_gbs(std::string_view speed, long width) {
  struct Row {
    std::string_view text;
    float per_lane;  ///< hundreds of Mb/s
  };
  static constexpr Row kRows[] = {
      {"2.5 GT/s", 15},        {"5 GT/s", 30},          {"8 GT/s", 60},
      {"16 GT/s", 120},        {"32 GT/s", 240},        {"5.0 GT/s PCIe", 30},
      {"8.0 GT/s PCIe", 60},   {"16.0 GT/s PCIe", 120}, {"32.0 GT/s PCIe", 240},
      {"64.0 GT/s PCIe", 480},
  };
  constexpr float kGen3 = 60;
  float per_lane = kGen3;
  for (const Row& row : kRows) {
    if (speed.substr(0, row.text.size()) == row.text) {
      per_lane = row.per_lane;
      break;
    }
  }
  return static_cast<float>(width == 0 ? 16 : width) * per_lane / 80;
}

float nvlink_gbs(int sm) {
  if (sm >= 100) {
    return 40.1F;
  }
  if (sm >= 90) {
    return 20.6F;
  }
  if (sm == 86) {
    return 12;
  }
  return sm >= 60 && sm < 70 ? 18 : 20;
}

float socket_gbs(std::string_view arch, std::string_view vendor, long family, long model) {
  if (arch.starts_with("arm64")) {
    return 6;
  }
  if (arch.starts_with("ppc64")) {
    return 32;
  }
  if (!arch.starts_with("x86_64")) {
    return kLocalGbs;
  }
  if (vendor.starts_with("AuthenticAMD")) {
    return 16;
  }
  if (vendor.starts_with("GenuineIntel")) {
    const long known = family == 6 ? model : 0;
    return known >= 0xCF ? 40 : known >= 0x8F ? 22 : known >= 0x55 ? 10 : 6;
  }
  if (vendor.starts_with("CentaurHauls") || vendor.starts_with("  Shanghai  ")) {
    return family == 7 && model == 0x5B ? 9 : 6;
  }
  return kLocalGbs;
}

}  // namespace tapas::solver
