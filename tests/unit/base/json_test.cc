#include "base/json/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace tapas::json {
namespace {

std::string error_of(std::string_view text, const ParseLimits& limits = {}) {
  const auto value = parse(text, limits);
  return value ? "parsed: " + dump(*value) : value.error().message;
}

TEST(JsonParse, KeepsValuesAndTheOrderOfKeys) {
  const std::string text =
      R"({"z":1,"a":[true,false,null,-2,1.5,"\u00e4\"\\"],"m":{"x":{}},"u":18446744073709551615})";
  const auto value = parse(text);
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ(dump(*value),
            "{\"z\":1,\"a\":[true,false,null,-2,1.5,\"\xc3\xa4\\\"\\\\\"],"
            "\"m\":{\"x\":{}},\"u\":18446744073709551615}");
}

TEST(JsonParse, AgreesWithTheLibraryOnRandomDocuments) {
  std::uint64_t random = 7;
  const auto next = [&random](std::uint64_t bound) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random >> 33U) % bound;
  };
  const std::vector<std::string> pieces = {"{",     "}",      "[",      "]",   ":",    ",",
                                           "\"a\"", "\"b\":", "-0.5",   "1e2", "true", " ",
                                           "\n",    "x",      "\"a\":", "\""};
  int parsed = 0;
  for (int round = 0; round < 15000; ++round) {
    std::string text;
    const auto length = next(10);
    for (std::uint64_t i = 0; i < length; ++i) {
      text += pieces[next(pieces.size())];
    }
    const auto ours = parse(text);
    const auto theirs = Value::parse(text, nullptr, false);
    if (ours) {
      ++parsed;
      EXPECT_EQ(*ours, theirs) << text;
    } else if (!theirs.is_discarded()) {
      EXPECT_NE(ours.error().message.find("duplicate"), std::string::npos) << text;
    }
  }
  EXPECT_GT(parsed, 50);
}

TEST(JsonParse, RefusesDuplicateKeysWithTheirPlace) {
  EXPECT_EQ(error_of("{\"a\": 1,\n  \"b\": {\"a\": 2},\n  \"a\": 3}"),
            "line 3, column 3: duplicate key \"a\"");
  EXPECT_EQ(error_of(R"([{"\"": 1, "\"": 2}])"), "line 1, column 12: duplicate key \"\"\"");
  EXPECT_EQ(error_of(R"({"": 1, "": 2})"), "line 1, column 9: duplicate key \"\"");
}

TEST(JsonParse, RefusesNestingOverTheLimit) {
  EXPECT_TRUE(parse(std::string(32, '[') + std::string(32, ']')));
  EXPECT_EQ(error_of(std::string(33, '[') + std::string(33, ']')),
            "line 1, column 33: nested deeper than 32 levels");
  EXPECT_NE(error_of(std::string(1000000, '[')).find("nested deeper"), std::string::npos);
}

TEST(JsonParse, RefusesNumbersThatAreNotFinite) {
  EXPECT_NE(error_of("{\"a\":\n 1e999}").find("line 2, column"), std::string::npos);
  EXPECT_NE(error_of("[-1e999]").find("1e999"), std::string::npos);
  EXPECT_NE(error_of("[NaN]").find("line 1, column 2"), std::string::npos) << error_of("[NaN]");
  EXPECT_FALSE(parse("[Infinity]"));
}

TEST(JsonParse, RefusesOtherEncodingsZeroBytesAndTails) {
  EXPECT_FALSE(parse("[\"\xff\xfe\"]"));
  EXPECT_FALSE(parse("[\"\xc0\xaf\"]"));
  EXPECT_EQ(error_of(std::string_view("{}\0 []", 6)), "line 1, column 3: zero byte in JSON text");
  EXPECT_FALSE(parse("{} {}"));
  EXPECT_FALSE(parse(""));
  EXPECT_FALSE(parse("{\"a\":1,}"));
}

TEST(JsonParse, NamesLineAndColumnOfSyntaxErrors) {
  EXPECT_EQ(error_of("{\n  \"a\": tru\n}").rfind("line 2, column ", 0), 0U)
      << error_of("{\n  \"a\": tru\n}");
  EXPECT_EQ(error_of("{\n  \"a\": 1").rfind("line 2, column ", 0), 0U);
}

TEST(JsonParse, HoldsToItsSizeLimit) {
  ParseLimits limits;
  limits.max_bytes = 4;
  EXPECT_TRUE(parse("[12]", limits));
  EXPECT_EQ(error_of("[123]", limits), "JSON text of 5 bytes is over the limit of 4 bytes");
}

TEST(JsonParse, TakesCommentsOnlyWhenAsked) {
  ParseLimits limits;
  EXPECT_FALSE(parse("{ /* why */ } // done", limits));
  limits.comments = true;
  EXPECT_TRUE(parse("{ /* why */ } // done", limits));
}

TEST(JsonParse, ReadsManyKeysInReasonableTime) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) {
    text += "\"k" + std::to_string(i) + "\":0,";
  }
  text.back() = '}';
  const auto value = parse(text);  // a quadratic parser would outlast the test's time limit
  ASSERT_TRUE(value);
  EXPECT_EQ(value->size(), 200000U);
}

TEST(JsonFile, NamesThePathInErrors) {
  const auto missing = parse_file("/nonexistent/x.json");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message.rfind("/nonexistent/x.json: ", 0), 0U);

  const std::string path = testing::TempDir() + "tapas_json_test.json";
  std::ofstream(path) << "{\"a\":1,\n\"a\":2}";
  const auto bad = parse_file(path);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, path + ": line 2, column 1: duplicate key \"a\"");
  ParseLimits limits;
  limits.max_bytes = 10;
  EXPECT_NE(parse_file(path, limits).error().message.find("larger than"), std::string::npos);
  EXPECT_FALSE(parse_file(testing::TempDir()));
  std::remove(path.c_str());
}

TEST(JsonDump, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(dump(Value("a\xff")), "\"a\xef\xbf\xbd\"");
}

std::string finish_error(ObjectReader& in) {
  const auto done = in.finish();
  return done ? "" : done.error().message;
}

TEST(ObjectReader, ReadsEveryKindOfValue) {
  const Value value = *parse(
      R"({"schema":"tapas.x/1","s":"text","n":1.5,"i":-3,"b":true,"a":[1],"o":{},"w":"red"})");
  ObjectReader in(value, "x");
  in.require_schema("tapas.x/1");
  EXPECT_EQ(in.string("s"), "text");
  EXPECT_EQ(in.string_or("s2", "other"), "other");
  EXPECT_EQ(in.number("n", 0, 2), 1.5);
  EXPECT_EQ(in.number_or("n2", 4, 0, 2), 4);
  EXPECT_EQ(in.integer("i", -5, 5), -3);
  EXPECT_EQ(in.integer_or("i2", 9, -5, 5), 9);
  EXPECT_TRUE(in.boolean_or("b", false));
  EXPECT_TRUE(in.boolean_or("b2", true));
  EXPECT_EQ(in.array("a", 1).size(), 1U);
  EXPECT_TRUE(in.object("o").is_object());
  EXPECT_EQ(in.word("w", {"red", "blue"}), "red");
  EXPECT_EQ(finish_error(in), "");
}

TEST(ObjectReader, SuggestsTheNearestKnownKey) {
  const Value value = *parse(R"({"name":"a","globl_batch":2})");
  ObjectReader in(value, "job");
  EXPECT_EQ(in.string("name"), "a");
  EXPECT_EQ(in.integer_or("global_batch", 0, 0, 9), 0);
  EXPECT_EQ(finish_error(in), "job: unknown key \"globl_batch\"; did you mean \"global_batch\"?");

  ObjectReader strict(value, "job");
  EXPECT_EQ(strict.integer("global_batch", 0, 9), 0);
  EXPECT_EQ(finish_error(strict),
            "job: missing key \"global_batch\"; is \"globl_batch\" meant to be it?");

  const Value odd = *parse(R"({"name":"a","zzz":2})");
  ObjectReader far(odd, "");
  EXPECT_EQ(far.string("name"), "a");
  EXPECT_EQ(finish_error(far), "document: unknown key \"zzz\"; known: name");
}

TEST(ObjectReader, SticksToTheFirstErrorAndReturnsZeros) {
  const Value value = *parse(R"({"a":"x","b":7,"list":[1,2,3]})");
  ObjectReader in(value, "doc");
  EXPECT_EQ(in.integer("a", 0, 9), 0);
  EXPECT_EQ(in.integer("b", 0, 9), 0);
  EXPECT_EQ(in.number_or("missing", 5, 0, 9), 0);
  EXPECT_TRUE(in.array("list", 3).empty());
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(finish_error(in), "doc.a must be an integer from 0 to 9, not \"x\"");
}

TEST(ObjectReader, ChecksRangesTypesAndSizes) {
  const Value value =
      *parse(R"({"i":10,"f":1.0,"u":18446744073709551615,"w":"green","a":[1,2],"s":5,"b":1})");
  const auto error = [&](auto read) {
    ObjectReader in(value, "d");
    read(in);
    return finish_error(in);
  };
  EXPECT_EQ(error([](auto& in) { (void)in.integer("i", 0, 9); }),
            "d.i must be an integer from 0 to 9, not 10");
  EXPECT_NE(error([](auto& in) { (void)in.integer("f", 0, 9); }), "");
  EXPECT_NE(error([](auto& in) { (void)in.integer("u", INT64_MIN, INT64_MAX); }), "");
  EXPECT_EQ(error([](auto& in) {
              (void)in.word("w", {"red", "blue"});
            }),
            "d.w is \"green\"; allowed: red, blue");
  EXPECT_EQ(error([](auto& in) { (void)in.array("a", 1); }),
            "d.a has 2 entries; at most 1 are allowed");
  EXPECT_EQ(error([](auto& in) { (void)in.string("s"); }), "d.s must be a string, not 5");
  EXPECT_EQ(error([](auto& in) { (void)in.boolean_or("b", true); }),
            "d.b must be true or false, not 1");
  EXPECT_EQ(error([](auto& in) { (void)in.object("a"); }), "d.a must be an object, not [1,2]");
  EXPECT_EQ(error([](auto& in) { in.require_schema("tapas.d/1"); }),
            "d: missing key \"schema\"; it must be \"tapas.d/1\"");
}

TEST(ObjectReader, RefusesOtherSchemasAndNonObjects) {
  const Value value = *parse(R"({"schema":"tapas.x/2"})");
  ObjectReader in(value, "x");
  in.require_schema("tapas.x/1");
  EXPECT_EQ(finish_error(in), "x.schema is \"tapas.x/2\"; this version reads \"tapas.x/1\"");
  const Value list = *parse("[1]");
  ObjectReader wrong(list, "x");
  EXPECT_EQ(wrong.string("a"), "");
  EXPECT_EQ(finish_error(wrong), "x must be an object, not [1]");
  EXPECT_EQ(wrong.child("nodes", 3), "x.nodes[3]");
}

}  // namespace
}  // namespace tapas::json
