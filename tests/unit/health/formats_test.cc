#include "agent/health/formats.h"

#include <gtest/gtest.h>

namespace tapas::agent::health {
namespace {

TEST(SysfsFormats, ReadPcieSpeedsOfOldAndNewKernels) {
  EXPECT_EQ(parse_gt_per_s("16.0 GT/s PCIe"), 16);
  EXPECT_EQ(parse_gt_per_s("2.5 GT/s"), 2.5);
  EXPECT_EQ(parse_gt_per_s("8 GT/s"), 8);
  EXPECT_EQ(parse_gt_per_s("128.0 GT/s PCIe"), 128);
  for (const char* unknown : {"Unknown", "Unknown speed", "", "66 MHz PCI", "GT/s", "-8 GT/s",
                              "0 GT/s", "inf GT/s", "nan GT/s"}) {
    EXPECT_EQ(parse_gt_per_s(unknown), std::nullopt) << unknown;
  }
}

TEST(SysfsFormats, TakeOnlyWidthsThatPcieHas) {
  EXPECT_EQ(parse_lanes("16"), 16U);
  EXPECT_EQ(parse_lanes("1"), 1U);
  for (const char* unknown : {"0", "255", "63", "3", "", "x16", "16 lanes"}) {
    EXPECT_EQ(parse_lanes(unknown), std::nullopt) << unknown;
  }
}

TEST(SysfsFormats, ReadRatesOfRdmaPorts) {
  const auto ndr = parse_ib_rate("400 Gb/sec (4X NDR)");
  ASSERT_TRUE(ndr);
  EXPECT_EQ(ndr->bits_per_s, 400e9);
  EXPECT_EQ(ndr->lanes, 4U);
  const auto sdr = parse_ib_rate("2.5 Gb/sec (1X SDR)");
  ASSERT_TRUE(sdr);
  EXPECT_EQ(sdr->bits_per_s, 2.5e9);
  EXPECT_EQ(sdr->lanes, 1U);
  const auto nameless = parse_ib_rate("10 Gb/sec (4X)");
  ASSERT_TRUE(nameless);
  EXPECT_EQ(nameless->lanes, 4U);
  for (const char* unknown : {"", "0 Gb/sec (4X)", "400 Gb/sec", "400", "400 Gb/sec (X NDR)"}) {
    EXPECT_FALSE(parse_ib_rate(unknown)) << unknown;
  }
}

TEST(SysfsFormats, ReadStates) {
  EXPECT_EQ(parse_ib_state("4: ACTIVE"), "ACTIVE");
  EXPECT_EQ(parse_ib_state("5: LinkUp"), "LinkUp");
  EXPECT_EQ(parse_ib_state("ACTIVE"), std::nullopt);
  EXPECT_EQ(parse_ib_state("4: "), std::nullopt);
}

TEST(SysfsFormats, ReadNetSpeedsAndNeverAnUnknownOne) {
  EXPECT_EQ(parse_net_speed("100000"), 100e9);
  EXPECT_EQ(parse_net_speed("800000"), 800e9);
  for (const char* unknown : {"-1", "0", "65535", "4294967295", "", "fast"}) {
    EXPECT_EQ(parse_net_speed(unknown), std::nullopt) << unknown;
  }
}

TEST(SysfsFormats, ReadCounters) {
  EXPECT_EQ(parse_count("18446744073709551615"), ~std::uint64_t{0});
  EXPECT_EQ(parse_count("0x10de"), 0x10deU);
  for (const char* unknown :
       {"18446744073709551616", "-1", "", "0x", "0x10dg", "N/A (no PMA)", "1 2"}) {
    EXPECT_EQ(parse_count(unknown), std::nullopt) << unknown;
  }
}

TEST(SysfsFormats, ReadPressure) {
  const std::string text =
      "some avg10=7.48 avg60=2.10 avg300=0.87 total=4057715616\n"
      "full avg10=0.50 avg60=0.00 avg300=0.00 total=12\n";
  const auto some = parse_pressure(text, "some");
  ASSERT_TRUE(some);
  EXPECT_NEAR(some->avg10_ratio, 0.0748, 1e-12);
  EXPECT_EQ(some->total_us, 4057715616U);
  ASSERT_TRUE(parse_pressure(text, "full"));
  EXPECT_EQ(parse_pressure(text, "full")->total_us, 12U);
  EXPECT_FALSE(parse_pressure("some avg10=7.48 avg60=2.10 avg300=0.87 total=1", "full"));
  EXPECT_FALSE(parse_pressure("some avg10=7.48", "some"));
  EXPECT_FALSE(parse_pressure("some avg10=nan avg60=0 avg300=0 total=1", "some"));
  EXPECT_FALSE(parse_pressure("some avg10=700 avg60=0 avg300=0 total=1", "some"));
}

TEST(SysfsFormats, KnowPciAddresses) {
  EXPECT_TRUE(is_pci_address("0000:17:00.0"));
  EXPECT_TRUE(is_pci_address("10001:e1:00.7"));  // A domain of a hypervisor.
  for (const char* other : {"pci0000:16", "virtio2", "0000:17:00", "0000-17:00.0", "17:00.0", "",
                            "0000:17:00.0.1", "0000:1g:00.0"}) {
    EXPECT_FALSE(is_pci_address(other)) << other;
  }
}

}  // namespace
}  // namespace tapas::agent::health
