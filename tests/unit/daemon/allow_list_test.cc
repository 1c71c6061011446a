#include "daemon/net/allow_list.h"

#include "tests/unit/daemon/fixtures.h"

#include <gtest/gtest.h>

namespace tapas::daemon {
namespace {

const std::string kKeyA(40, 'a');
const std::string kKeyB(40, 'b');

TEST(AllowList, NamesTheNodeOfAKey) {
  const TempDir dir;
  write_file(dir / "n1.pub", kKeyA + "\n");
  write_file(dir / "n2.pub", kKeyB);
  write_file(dir / "README", "not a key");
  const auto list = AllowList::load(dir.path());
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->size(), 2U);
  EXPECT_EQ(list->node_of(kKeyA), "n1");
  EXPECT_EQ(list->node_of(std::string(40, 'c')), std::nullopt);
  EXPECT_TRUE(list->allows("n2"));
  EXPECT_FALSE(list->allows("n3"));
}

TEST(AllowList, RefusesAFolderWithABadFileByItsName) {
  const auto message = [](const std::string& name, const std::string& text) {
    const TempDir dir;
    write_file(dir / "good.pub", kKeyA);
    write_file(dir / name, text);
    const auto list = AllowList::load(dir.path());
    return list ? std::string("loaded") : list.error().message;
  };
  EXPECT_NE(message("short.pub", "abc").find("short.pub"), std::string::npos);
  EXPECT_NE(message("two words.pub", kKeyB).find("two words"), std::string::npos);
  const std::string twice = message("other.pub", kKeyA);
  EXPECT_NE(twice.find("same key"), std::string::npos);
  EXPECT_EQ(AllowList::load("/nowhere").error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace tapas::daemon
