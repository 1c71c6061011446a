#include "agent/health/sys_tree.h"

#include "sys_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

namespace tapas::agent::health {
namespace {

struct SysTreeTest : testing::Test {
  SysFixture fixture;
  SysTree tree = *SysTree::open(fixture.path("sys"));

  std::string why_not(const std::string& path) {
    const auto text = tree.read(path);
    EXPECT_FALSE(text) << path;
    return text ? "" : text.error().message;
  }
};

TEST_F(SysTreeTest, ReadsTextWithoutBlanksAroundIt) {
  fixture.write("sys/speed", " 100000 ");
  EXPECT_EQ(tree.read("speed"), std::string("100000"));
  fixture.write("sys/two", "a\nb");
  EXPECT_EQ(tree.read("two"), std::string("a\nb"));
}

TEST_F(SysTreeTest, ShowsNoControlCharacters) {
  fixture.write("sys/board", "MT\x1b[31m\x07");
  EXPECT_EQ(tree.read("board"), std::string("MT?[31m?"));
}

TEST_F(SysTreeTest, FollowsLinksWithinTheRootOnly) {
  fixture.write("sys/devices/x/value", "1");
  fixture.link("sys/class/x", "sys/devices/x");
  EXPECT_EQ(tree.read("class/x/value"), std::string("1"));
  EXPECT_EQ(tree.resolve("class/x"), std::string("devices/x"));

  fixture.write("secret", "key");
  fixture.link("sys/class/out", "secret");
  EXPECT_EQ(why_not("class/out"), "leads out of " + fixture.path("sys"));
  EXPECT_EQ(why_not("../secret"), "leads out of " + fixture.path("sys"));
  std::filesystem::create_symlink("/etc/passwd", fixture.path("sys/absolute"));
  EXPECT_EQ(why_not("absolute"), "leads out of " + fixture.path("sys"));
  // A folder whose name only begins like the root's.
  fixture.write("sys-other/value", "2");
  EXPECT_EQ(why_not("../sys-other/value"), "leads out of " + fixture.path("sys"));
}

TEST_F(SysTreeTest, EndsOnLinksThatGoRound) {
  std::filesystem::create_symlink("round", fixture.path("sys/round"));
  EXPECT_NE(why_not("round"), "");
}

TEST_F(SysTreeTest, WaitsForNoFifo) {
  ASSERT_EQ(::mkfifo(fixture.path("sys/fifo").c_str(), 0600), 0);
  EXPECT_EQ(why_not("fifo"), "is no regular file");
  EXPECT_EQ(why_not("class"), "is no regular file");
}

TEST_F(SysTreeTest, RefusesWhatIsLargerThanSysfsGives) {
  const std::string page(SysTree::kMaxFileBytes - 1, 'a');  // And a line end.
  fixture.write("sys/page", page);
  EXPECT_EQ(tree.read("page"), page);
  fixture.write("sys/large", page + "a");
  EXPECT_EQ(why_not("large"), "is larger than 4096 bytes");
}

TEST_F(SysTreeTest, SaysWhatTheSystemSaid) {
  EXPECT_EQ(why_not("no/such/file"), "is not there");
  // Page 0 of a process is never there, and reading it fails as a broken device does.
  EXPECT_EQ(SysTree::open("/proc")->read("self/mem").error().message,
            "cannot be read: Input/output error");
}

TEST_F(SysTreeTest, SaysWhenAFileIsNotForThisUser) {
  fixture.write("sys/private", "1");
  ASSERT_EQ(::chmod(fixture.root().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(fixture.path("sys/private").c_str(), 0), 0);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const std::string why = why_not("private");
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_EQ(why, "cannot be read: Permission denied");
}

TEST_F(SysTreeTest, ListsSortedNamesAndSaysWhenThereAreTooMany) {
  fixture.write("sys/few/b", "");
  fixture.write("sys/few/a", "");
  const auto few = tree.list("few");
  ASSERT_TRUE(few);
  EXPECT_EQ(few->names, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(few->cut);
  for (std::size_t i = 0; i <= SysTree::kMaxEntries; ++i) {
    fixture.write(fmt::format("sys/many/{}", i), "");
  }
  const auto many = tree.list("many");
  ASSERT_TRUE(many);
  EXPECT_EQ(many->names.size(), SysTree::kMaxEntries);
  EXPECT_TRUE(many->cut);
  EXPECT_FALSE(tree.list("few/a"));
}

TEST_F(SysTreeTest, NeedsAFolder) {
  EXPECT_FALSE(SysTree::open(fixture.path("nothing")));
  fixture.write("sys/file", "");
  EXPECT_FALSE(SysTree::open(fixture.path("sys/file")));
}

}  // namespace
}  // namespace tapas::agent::health
