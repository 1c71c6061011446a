#include "ctl/lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tapas::ctl {
namespace {

std::vector<std::string> all(std::string_view text) {
  std::vector<std::string> lines;
  Lines reader(text);
  while (reader.next()) {
    EXPECT_EQ(reader.number(), lines.size() + 1);
    lines.emplace_back(reader.line());
  }
  return lines;
}

TEST(Lines, EndWithOrWithoutALastEndOfLine) {
  const std::vector<std::string> expected = {"a", "", "b"};
  EXPECT_EQ(all("a\n\nb"), expected);
  EXPECT_EQ(all("a\n\nb\n"), expected);
  EXPECT_EQ(all("\xEF\xBB\xBF"
                "a\r\n\r\nb\r\n"),
            expected);
  EXPECT_TRUE(all("").empty());
}

TEST(Lines, TellBlankOnesFromOthers) {
  Lines lines(" \t\r\n x\n");
  ASSERT_TRUE(lines.next());
  EXPECT_TRUE(lines.blank());
  ASSERT_TRUE(lines.next());
  EXPECT_FALSE(lines.blank());
}

TEST(Lines, TellTheShareThatIsRead) {
  std::string text;
  for (int k = 0; k < 10000; ++k) {
    text += "x\n";
  }
  std::vector<double> told;
  Lines lines(text, [&](double done) { told.push_back(done); });
  while (lines.next()) {
  }
  ASSERT_EQ(told.size(), 2U);
  EXPECT_NEAR(told[0], 0.41, 0.01);
  EXPECT_NEAR(told[1], 0.82, 0.01);
}

}  // namespace
}  // namespace tapas::ctl
