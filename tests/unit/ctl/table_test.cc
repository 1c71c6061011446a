#include "ctl/table.h"

#include <gtest/gtest.h>

#include <limits>

namespace tapas::ctl {
namespace {

TEST(Table, AlignsColumnsAndLeavesNoBlanksAtLineEnds) {
  Table table({{"NODE"}, {"N", Align::kRight}, {"REASON"}});
  table.add_row({"a", "1", "fan"});
  table.add_row({"long-name", "1000", ""});
  EXPECT_EQ(table.text(),
            "NODE          N  REASON\n"
            "a             1  fan\n"
            "long-name  1000\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({{"A"}, {"B"}});
  table.add_row({"\xC3\xA9\xC3\xA9", "x"});
  table.add_row({"ab", "y"});
  EXPECT_EQ(table.text(), "A   B\n\xC3\xA9\xC3\xA9  x\nab  y\n");
}

TEST(Units, SecondsKeepThreeFiguresOrMore) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(85e-6), "85 us");
  EXPECT_EQ(format_seconds(0.0124), "12.4 ms");
  EXPECT_EQ(format_seconds(0.9999), "1.00 s");
  EXPECT_EQ(format_seconds(17.324), "17.32 s");
  EXPECT_EQ(format_seconds(-0.5), "-500.0 ms");
  EXPECT_EQ(format_seconds(250), "4 min 10 s");
  EXPECT_EQ(format_seconds(7500), "2 h 05 min");
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::infinity()), "-");
}

TEST(Units, BytesAreDecimal) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1200), "1.20 kB");
  EXPECT_EQ(format_bytes(34.6e9), "34.6 GB");
  EXPECT_EQ(format_bytes(999.7e6), "1.00 GB");
  EXPECT_EQ(format_bytes(5e18), "5000.0 PB");
}

TEST(Units, RatiosAndCounts) {
  EXPECT_EQ(format_percent(0.034), "3.4 %");
  EXPECT_EQ(format_number(1.6), "1.6");
  EXPECT_EQ(format_number(2), "2");
  EXPECT_EQ(format_count(1, "layer"), "1 layer");
  EXPECT_EQ(format_count(0, "layer"), "0 layers");
}

TEST(Printable, KeepsTextAndHidesWhatWouldDriveATerminal) {
  EXPECT_EQ(printable("caf\xC3\xA9 [x]"), "caf\xC3\xA9 [x]");
  EXPECT_EQ(printable("a\x1b[2Jb\n\x7f"), "a?[2Jb??");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "?31m");
}

TEST(NearestName, FindsTheTypoAndNothingElse) {
  const std::vector<std::string> names{"a800-036", "a800-037", "a800-137"};
  EXPECT_EQ(nearest_name("a800-37", names), "a800-037");
  EXPECT_EQ(nearest_name("A800-037", names), "a800-037");
  EXPECT_EQ(nearest_name("gateway", names), "");
  EXPECT_EQ(nearest_name("", names), "");
}

}  // namespace
}  // namespace tapas::ctl
