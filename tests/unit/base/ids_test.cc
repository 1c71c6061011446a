#include "base/ids.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas {
namespace {

TEST(NameHash, MatchesPublishedFnv1aVectors) {
  EXPECT_EQ(name_hash(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(name_hash("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(name_hash("foobar"), 0x85944171f73967e8ULL);
}

TEST(ValidName, TakesHostNamesAndRefusesWhatCouldConfuse) {
  EXPECT_TRUE(valid_name("node-001.rack_7"));
  EXPECT_TRUE(valid_name("GPU_01"));
  EXPECT_TRUE(valid_name("0head"));
  EXPECT_TRUE(valid_name("gpu.rack-a.example"));
  EXPECT_NE(name_hash("gpu.rack-a.example"), name_hash("gpu.rack-b.example"));
  EXPECT_FALSE(valid_name("node%n"));
  EXPECT_TRUE(valid_name(std::string(253, 'a')));
  EXPECT_FALSE(valid_name(""));
  EXPECT_FALSE(valid_name("-node"));
  EXPECT_FALSE(valid_name("node 1"));
  EXPECT_FALSE(valid_name("../etc"));
  EXPECT_FALSE(valid_name("n\xc3\xb6"));
  EXPECT_FALSE(valid_name(std::string(254, 'a')));
}

}  // namespace
}  // namespace tapas
