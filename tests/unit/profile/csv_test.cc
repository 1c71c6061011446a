#include "solver/profile/csv.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas::solver::profile {
namespace {

std::string error_of(const std::string& text) {
  const File file{"t.csv", text};
  const auto table = Csv::parse(file, {"a", "b"});
  return table ? "" : table.error().message;
}

TEST(Csv, ToleratesAMarkCarriageReturnsAndTrailingLines) {
  const File file{"t.csv",
                  "\xEF\xBB\xBF"
                  "a,b\r\n1,x y\r\n2.5,\r\n\r\n\n"};
  const auto table = Csv::parse(file, {"a", "b"});
  ASSERT_TRUE(table) << table.error().message;
  ASSERT_EQ(table->rows(), 2U);
  EXPECT_EQ(table->text(0, 1), "x y");
  EXPECT_EQ(table->text(1, 1), "");
  EXPECT_EQ(table->number(1, 0, 0, 10).value(), 2.5);
  EXPECT_EQ(table->integer(0, 0, 0, 10).value(), 1U);
  EXPECT_EQ(table->where(1), "t.csv:3");
}

TEST(Csv, RefusesWhatIsNoNumberInRange) {
  const File file{"t.csv", "a,b\n1e3,0x10\n 1,1 \n-1,inf\nnan,4294967296\n"};
  const auto table = Csv::parse(file, {"a", "b"});
  ASSERT_TRUE(table);
  EXPECT_EQ(table->number(0, 0, 0, 1e9).value(), 1000);
  EXPECT_EQ(table->number(0, 1, 0, 9).error().message,
            "t.csv:2: b is \"0x10\", expected a number from 0 to 9");
  for (std::size_t row = 1; row < 4; ++row) {
    EXPECT_FALSE(table->number(row, 0, 0, 1e9)) << row;
    EXPECT_FALSE(table->integer(row, 1, 0, 9)) << row;
  }
  EXPECT_FALSE(table->number(2, 1, 0, 1e300));
}

TEST(Csv, NamesTheLineThatDoesNotFit) {
  EXPECT_EQ(error_of("a,b\n1,2\n1,2,3\n"), "t.csv:3: 3 fields where the header has 2");
  EXPECT_EQ(error_of("a,b\n\n1,2\n"), "t.csv:2: empty line inside the table");
  EXPECT_EQ(error_of("a;b\n"), "t.csv:1: expected the columns \"a,b\"");
  EXPECT_NE(error_of("a,b\n").find("has no rows"), std::string::npos);
  EXPECT_NE(error_of("").find("has no rows"), std::string::npos);
}

}  // namespace
}  // namespace tapas::solver::profile
