#include "config/key_file.h"

#include "temporary_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

namespace tapas {
namespace {

const std::string kKey = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6";  // From ZeroMQ's manual.

TEST(KeyFile, GivesTheKeyWithOrWithoutALineEnd) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_public_key(folder.write("a.pub", kKey)).value(), kKey);
  EXPECT_EQ(read_public_key(folder.write("b.pub", kKey + "\n")).value(), kKey);
  EXPECT_EQ(read_public_key(folder.write("c.pub", kKey + "\r\n")).value(), kKey);
}

TEST(KeyFile, RefusesSecretKeysThatOthersMayRead) {
  const TemporaryFolder folder;
  const std::string path = folder.write("n0.key", kKey);
  for (const mode_t mode : {0644U, 0640U, 0604U, 0620U, 0602U, 0610U, 0601U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const auto key = read_secret_key(path);
    ASSERT_FALSE(key) << mode;
    EXPECT_EQ(key.error().code, ErrorCode::kDenied);
    EXPECT_NE(key.error().message.find("chmod 600"), std::string::npos);
  }
  for (const mode_t mode : {0600U, 0400U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_EQ(read_secret_key(path).value(), kKey);
  }
}

TEST(KeyFile, RefusesWhatIsNoKeyAndNeverShowsIt) {
  const TemporaryFolder folder;
  const std::string wrong = "~" + kKey.substr(1);
  for (const std::string& text :
       {std::string{}, kKey.substr(1), kKey + "x", kKey + "\n\n", wrong, "\n" + kKey}) {
    const auto key = read_public_key(folder.write("bad.pub", text));
    ASSERT_FALSE(key) << text;
    EXPECT_EQ(key.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(key.error().message.find(kKey.substr(1)), std::string::npos);
  }
}

TEST(KeyFile, SaysHowToMakeAMissingKey) {
  const auto key = read_public_key("/nonexistent/n0.pub");
  ASSERT_FALSE(key);
  EXPECT_EQ(key.error().code, ErrorCode::kNotFound);
  EXPECT_NE(key.error().message.find("tapasctl key new"), std::string::npos);
}

TEST(KeyFile, RefusesAFolder) {
  const TemporaryFolder folder;
  const auto key = read_public_key(folder.path());
  ASSERT_FALSE(key);
  EXPECT_EQ(key.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace tapas
