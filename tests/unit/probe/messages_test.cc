#include "agent/probe/messages.h"

#include <gtest/gtest.h>

#include <cctype>
#include <string>

namespace tapas::agent::probe {
namespace {

TEST(Messages, ArriveAsTheyWereSaid) {
  Hello hello;
  hello.token = "secret";
  hello.nominal_bytes_per_s = 1.25e10;
  hello.limits.share = 0.1;
  hello.limits.seconds = 1.7;
  hello.limits.bytes = 123'456'789'012;
  const auto heard = parse_hello(to_line(hello));
  ASSERT_TRUE(heard.has_value()) << heard.error().message;
  EXPECT_EQ(heard->token, "secret");
  EXPECT_EQ(heard->nominal_bytes_per_s, 1.25e10);
  EXPECT_EQ(heard->limits.share, 0.1);
  EXPECT_FALSE(heard->limits.bytes_per_s);
  EXPECT_EQ(heard->limits.seconds, 1.7);
  EXPECT_EQ(heard->limits.bytes, 123'456'789'012U);

  const auto load = parse_load(to_line(Load{1.0 / 3 * 1e9, 0.3, 5, std::nullopt}));
  ASSERT_TRUE(load.has_value()) << load.error().message;
  EXPECT_EQ(load->bytes_per_s, 1.0 / 3 * 1e9);
  EXPECT_FALSE(load->nominal_bytes_per_s);

  const auto sent = parse_sent(to_line(Sent{9, 7, 0.5}));
  ASSERT_TRUE(sent.has_value()) << sent.error().message;
  EXPECT_EQ(sent->segments, 9U);
  EXPECT_EQ(sent->retransmits, 7U);
  EXPECT_EQ(sent->busy_ratio, 0.5);

  const auto received = parse_received(to_line(Received{10, 2, 1, 1e8, 0.25}));
  ASSERT_TRUE(received.has_value()) << received.error().message;
  EXPECT_EQ(received->bytes, 10U);
  EXPECT_EQ(received->seconds, 2);
  EXPECT_EQ(received->measured_s, 1);
  EXPECT_EQ(received->bytes_per_s, 1e8);
  EXPECT_EQ(received->busy_ratio, 0.25);
}

TEST(Messages, TellARefusalFromJunk) {
  const auto refused = parse_load(refusal("wrong token"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kDenied);
  EXPECT_EQ(refused.error().message, "refused: wrong token");
}

TEST(Messages, RefuseWhatCannotBe) {
  const std::string good = to_line(Load{1e8, 2, 5, 1e9});
  ASSERT_TRUE(parse_load(good).has_value());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    EXPECT_NE(bad.find(from), std::string::npos) << from;
    return bad.replace(bad.find(from), from.size(), to);
  };
  for (const std::string& bad :
       {std::string("SSH-2.0-OpenSSH_9.2"), std::string(""), std::string("[]"), std::string("7"),
        std::string("\x01\xff\x1b[31m"), with("tapas.probe.wire/1", "tapas.probe.wire/2"),
        with("\"load\"", "\"sent\""), with("\"seconds\":2.0", "\"seconds\":61"),
        with("\"seconds\":2.0", "\"seconds\":-1"), with("\"seconds\":2.0", "\"seconds\":\"2\""),
        with("\"bytes\":5", "\"bytes\":-5"), with("\"bytes\":5", "\"bytes\":5e30"),
        with("\"bytes\":5", "\"bytes\":5,\"more\":1"), with("\"bytes\":5", "\"bytes\":{\"a\":{}}"),
        with("\"bytes_per_s\":100000000.0", "\"bytes_per_s\":0")}) {
    const auto load = parse_load(bad);
    ASSERT_FALSE(load.has_value()) << bad;
    EXPECT_EQ(load.error().code, ErrorCode::kInvalid) << bad;
    for (const char c : load.error().message) {
      EXPECT_TRUE(std::isprint(static_cast<unsigned char>(c)) != 0) << bad;
    }
  }
}

}  // namespace
}  // namespace tapas::agent::probe
