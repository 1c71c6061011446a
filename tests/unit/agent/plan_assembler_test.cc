#include "agent/collect/plan_assembler.h"

#include <gtest/gtest.h>

#include <string>

namespace tapas::agent {
namespace {

wire::PlanChunk piece(std::uint32_t index, std::uint32_t count, std::string text,
                      std::uint64_t epoch = 1) {
  return {"j", 1, epoch, true, index, count, std::move(text)};
}

TEST(PlanAssembler, PutsPiecesTogetherInOrder) {
  PlanAssembler assembler;
  EXPECT_FALSE(assembler.add(piece(0, 3, "{\"a\"")).value());
  EXPECT_FALSE(assembler.add(piece(1, 3, ":")).value());
  EXPECT_TRUE(assembler.add(piece(2, 3, "1}")).value());
  EXPECT_EQ(assembler.take_text(), "{\"a\":1}");
  EXPECT_TRUE(assembler.add(piece(0, 1, "x")).value());
  EXPECT_EQ(assembler.take_text(), "x");
}

TEST(PlanAssembler, RefusesGapsRepeatsAndOtherPlansPieces) {
  for (const wire::PlanChunk& wrong : {piece(2, 3, "c"), piece(1, 4, "c"), piece(1, 3, "c", 2)}) {
    PlanAssembler assembler;
    ASSERT_TRUE(assembler.add(piece(0, 3, "a")));
    const auto added = assembler.add(wrong);
    ASSERT_FALSE(added);
    EXPECT_NE(added.error().message.find("piece 1 of 3 for epoch 1 was expected"),
              std::string::npos);
    EXPECT_FALSE(assembler.add(piece(1, 3, "b"))) << "what was there is thrown away";
  }
  PlanAssembler assembler;
  EXPECT_FALSE(assembler.add(piece(1, 2, "b")));
}

TEST(PlanAssembler, StartsAnewWithPieceZero) {
  PlanAssembler assembler;
  ASSERT_TRUE(assembler.add(piece(0, 2, "old")));
  ASSERT_TRUE(assembler.add(piece(0, 2, "new")));
  ASSERT_TRUE(assembler.add(piece(1, 2, "!")).value());
  EXPECT_EQ(assembler.take_text(), "new!");
}

TEST(PlanAssembler, BoundsPieces) {
  PlanAssembler assembler;
  EXPECT_FALSE(assembler.add(piece(0, 1, "")));
  EXPECT_FALSE(assembler.add(piece(0, 1, std::string(wire::kMaxPlanChunkBytes + 1, 'x'))));
  EXPECT_FALSE(assembler.add(piece(0, 0, "x")));
  EXPECT_FALSE(assembler.add(piece(0, wire::kMaxPlanChunks + 1, "x")));
  EXPECT_FALSE(assembler.add(piece(1, 1, "x")));
  for (std::uint32_t i = 0; i < wire::kMaxPlanChunks; ++i) {
    const auto added =
        assembler.add(piece(i, wire::kMaxPlanChunks, std::string(wire::kMaxPlanChunkBytes, 'x')));
    ASSERT_TRUE(added);
    EXPECT_EQ(*added, i + 1 == wire::kMaxPlanChunks);
  }
  EXPECT_EQ(assembler.take_text().size(), wire::kMaxPlanChunks * wire::kMaxPlanChunkBytes);
}

}  // namespace
}  // namespace tapas::agent
