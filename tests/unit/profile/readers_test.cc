#include "solver/model/io/load.h"
#include "tests/unit/profile/samples.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace tapas::solver::profile {
namespace {

Options on(const std::string& device, std::uint32_t layers = 0) {
  Options options;
  options.device = device;
  options.layers = layers;
  return options;
}

std::string error_of(Layout layout, const std::vector<File>& files, const Options& options) {
  const auto profile = read(layout, files, options);
  return profile ? "" : profile.error().message;
}

/// What read() says after one piece of a sample's text was replaced.
std::string error_after(Layout layout, std::vector<File> files, const Options& options,
                        const std::string& from, const std::string& to) {
  std::size_t replaced = 0;
  for (File& file : files) {
    if (const std::size_t at = file.text.find(from); at != std::string::npos) {
      file.text.replace(at, from.size(), to);
      ++replaced;
    }
  }
  EXPECT_GT(replaced, 0U) << from;
  return error_of(layout, files, options);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Layout, ReadsItsOwnWords) {
  for (int i = 0; i <= static_cast<int>(Layout::kVtrain); ++i) {
    const auto layout = static_cast<Layout>(i);
    EXPECT_EQ(layout_from(to_string(layout)).value(), layout);
  }
  EXPECT_TRUE(has(layout_from("alpa").error().message, "aceso, galvatron"));
}

TEST(Layout, SaysWhatItDoesNotHold) {
  EXPECT_TRUE(has(error_of(Layout::kVtrain, {kPiperSample}, {}), "only collectives"));
  EXPECT_TRUE(has(read_collectives(Layout::kPiper, {kPiperSample}, {}).error().message,
                  "only layer times"));
  EXPECT_TRUE(has(error_of(Layout::kPiper, {}, {}), "no profile file"));
}

TEST(Aceso, RepeatsTheBlockBetweenEmbeddingAndHead) {
  const auto profile = read(Layout::kAceso, {kAcesoSample}, on("V100", 3));
  ASSERT_TRUE(profile) << profile.error().message;
  const Graph& graph = profile->graph;
  EXPECT_EQ(graph.name, "tiny");
  EXPECT_EQ(graph.layer_count(), 1U + 3 * 2 + 1);  // the MLP's second product starts a layer
  ASSERT_EQ(graph.nodes.size(), 1U + 3 * 2 + 1);
  const OpNode& qkv = graph.nodes[3];
  EXPECT_EQ(qkv.name, "enc-attention-qkv");
  EXPECT_EQ(qkv.layer, 3U);
  EXPECT_EQ(qkv.kind, OpKind::kColumnParallelLinear);
  ASSERT_NE(find_measured(qkv, "V100", 1, 2), nullptr);
  EXPECT_DOUBLE_EQ(find_measured(qkv, "V100", 1, 2)->backward_s, 450e-6);
  EXPECT_DOUBLE_EQ(*find_measured(qkv, "V100", 1, 1)->param_bytes, 4 * 1048576.0);
  EXPECT_DOUBLE_EQ(*find_measured(qkv, "V100", 1, 1)->work_bytes, 3 * 1048576.0);
  EXPECT_DOUBLE_EQ(graph.edges[2].bytes, 2 * 1048576.0);
  EXPECT_TRUE(check_measured(graph, "V100", 2));
  EXPECT_FALSE(check_measured(graph, "V100", 4));
}

TEST(Aceso, NamesTheLineThatIsWrong) {
  const auto after = [](const std::string& from, const std::string& to) {
    return error_after(Layout::kAceso, {kAcesoSample}, on("V100", 3), from, to);
  };
  EXPECT_TRUE(has(after("mbs,tp", "tp,mbs"), "tiny_op_profile.csv:1: expected the columns"));
  EXPECT_TRUE(has(after("1,1,0,enc-attention-qkv,400", "1,1,0,enc-attention-qkv,fast"),
                  "tiny_op_profile.csv:3: forward_us is \"fast\""));
  EXPECT_TRUE(has(after("1,1,0,enc-attention-qkv,400", "1,1,0,enc-attention-qkv,nan"), ":3:"));
  EXPECT_TRUE(has(after("1,1,0,enc-attention-qkv,400", "0,1,0,enc-attention-qkv,400"), ":3: mbs"));
  EXPECT_TRUE(has(after(",4,20\n", ",4\n"), ":5: 11 fields"));
  EXPECT_TRUE(has(after("1,2,0,encoder", "1,1,0,encoder"), "measured twice"));
  EXPECT_TRUE(has(after("1,1,0,gpt-post", "1,1,0,x\nenc-gpt-post"), "1:6: 4 fields") ||
              has(after("1,1,0,gpt-post", "1,1,0,x\nenc-gpt-post"), "fields"));
  EXPECT_TRUE(has(error_of(Layout::kAceso, {kAcesoSample}, on("V100")), "give both"));
  EXPECT_TRUE(
      has(error_of(Layout::kAceso, {kAcesoSample, kAcesoSample}, on("V100", 1)), "2 files"));
}

TEST(Aceso, LeavesOutSizesThatWereNotProfiledInFull) {
  Options options = on("V100", 1);
  options.micro_batch_size = 2;
  const auto profile = read(Layout::kAceso, {kAcesoSample}, options);
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_FALSE(check_measured(profile->graph, "V100", 1));
  options.micro_batch_size = 16;
  EXPECT_TRUE(has(error_of(Layout::kAceso, {kAcesoSample}, options), "16 was not profiled"));
}

TEST(Galvatron, DividesTheBlockAsItDoes) {
  const auto profile = read(Layout::kGalvatron, {kGalvatronTimes, kGalvatronMemory}, on("A100", 2));
  ASSERT_TRUE(profile) << profile.error().message;
  const Graph& graph = profile->graph;
  EXPECT_EQ(graph.layer_count(), 4U);
  EXPECT_EQ(graph.hidden_size, 64U);
  EXPECT_EQ(graph.sequence_length, 32U);
  double forward = 0;
  double backward = 0;
  double act = 0;
  double params = 0;
  for (const OpNode& op : graph.nodes) {
    if (op.layer == 2) {
      const MeasuredOp* m = find_measured(op, "A100", 2, 2);
      ASSERT_NE(m, nullptr);
      forward += m->forward_s;
      backward += m->backward_s;
      act += *m->act_bytes;
      params += op.param_bytes;
    }
  }
  EXPECT_DOUBLE_EQ(forward, 3.5e-3 * 2 / 2);
  EXPECT_DOUBLE_EQ(backward, 2 * forward);
  EXPECT_DOUBLE_EQ(act, 2.5 * 1048576 * 2);
  EXPECT_DOUBLE_EQ(params, 8.0 * 1048576 / 4 * 2);
  EXPECT_DOUBLE_EQ(find_measured(graph.nodes.back(), "A100", 1, 1)->forward_s, 3e-3);
  EXPECT_DOUBLE_EQ(graph.nodes.front().out_bytes, 1.0 * 32 * 64 * 2);
}

TEST(Galvatron, SaysWhatIsMissing) {
  const std::vector<File> both = {kGalvatronTimes, kGalvatronMemory};
  const Options options = on("A100", 2);
  EXPECT_TRUE(has(error_of(Layout::kGalvatron, both, on("A100")), "give both"));
  EXPECT_TRUE(has(error_of(Layout::kGalvatron, {kGalvatronTimes}, options), "found no memory"));
  EXPECT_TRUE(has(error_of(Layout::kGalvatron, {kGalvatronMemory}, options), "found no times"));
  EXPECT_TRUE(has(error_after(Layout::kGalvatron, both, options, "\"layertype_0_bsz1\": 4.0",
                              "\"layertype_0_bsz1\": -4.0"),
                  "layertype_0_bsz1: -4"));
  EXPECT_TRUE(has(error_after(Layout::kGalvatron, both, options, "\"2\": 2.5", "\"two\": 2.5"),
                  "not a TP width"));
  EXPECT_TRUE(has(error_after(Layout::kGalvatron, both, options, "\"model_states\": 64.0",
                              "\"model_states\": \"many\""),
                  "expected a number, found string"));
  std::vector<File> renamed = both;
  renamed[0].name = "a.json";
  renamed[1].name = "b.json";
  EXPECT_TRUE(has(error_of(Layout::kGalvatron, renamed, options), "give both"));
}

TEST(Pipedream, OrdersTheGraphAndJoinsWhatCostsNothing) {
  const auto profile = read(Layout::kPipedream, {kPipedreamSample}, on("V100"));
  ASSERT_TRUE(profile) << profile.error().message;
  const Graph& graph = profile->graph;
  EXPECT_EQ(graph.name, "tiny");
  ASSERT_EQ(graph.nodes.size(), 5U);
  EXPECT_EQ(graph.nodes[0].name, "in Input0");
  EXPECT_EQ(graph.nodes[1].name, "a Conv2d(3, 64, kernel_size=(3, 3))");
  EXPECT_EQ(graph.nodes[4].name, "d Add()");
  EXPECT_EQ(graph.layer_count(), 3U);
  EXPECT_DOUBLE_EQ(graph.nodes[1].act_bytes, 150);
  EXPECT_DOUBLE_EQ(graph.nodes[1].measured[0].backward_s, 0.02);
  EXPECT_EQ(graph.edges.size(), 5U);
  EXPECT_TRUE(check_measured(graph, "V100", 1));
  EXPECT_FALSE(check_measured(graph, "V100", 2));
}

TEST(Pipedream, NamesTheLineThatIsWrong) {
  const auto after = [](const std::string& from, const std::string& to) {
    return error_after(Layout::kPipedream, {kPipedreamSample}, on("V100"), from, to);
  };
  EXPECT_TRUE(has(after("\tb -- d", "\tb -- e"), "tiny_graph.txt:9: edge to e"));
  EXPECT_TRUE(has(after("\tin -- a", "\tin a"), ":6: expected \"node -- node\""));
  EXPECT_TRUE(has(after("\tin -- a", "\td -- a"), "cycle"));
  EXPECT_TRUE(has(after("b -- ReLU", "a -- ReLU"), ":4: a was described before"));
  EXPECT_TRUE(has(after("=1.0,", "=inf,"), ":1: \"inf\""));
  EXPECT_TRUE(has(after("=1.0,", "=-1.0,"), ":1: \"-1.0\""));
  EXPECT_TRUE(has(after("[100.0; 50.0]", "[100.0; x]"), ":3: \"x\""));
  EXPECT_TRUE(
      has(after("forward_compute_time=1.0", "fw=1.0"), ":1: expected forward_compute_time"));
  EXPECT_TRUE(has(error_of(Layout::kPipedream, {{"empty", ""}}, on("V100")), "no node"));
  EXPECT_TRUE(has(error_of(Layout::kPipedream, {kPipedreamSample}, {}), "name it"));
}

TEST(Piper, TakesTheForwardFromTheRecomputingVariant) {
  const auto profile = read(Layout::kPiper, {kPiperSample}, on("A100"));
  ASSERT_TRUE(profile) << profile.error().message;
  const Graph& graph = profile->graph;
  ASSERT_EQ(graph.nodes.size(), 2U);
  EXPECT_EQ(graph.nodes[0].name, "in");
  const MeasuredOp* two = find_measured(graph.nodes[0], "A100", 1, 2);
  ASSERT_NE(two, nullptr);
  EXPECT_DOUBLE_EQ(two->forward_s, 0.002);
  EXPECT_DOUBLE_EQ(two->backward_s, 0.003);
  EXPECT_EQ(*two->forward_comm_s, 0);
  EXPECT_DOUBLE_EQ(*two->param_bytes, 50);
  EXPECT_DOUBLE_EQ(graph.nodes[0].work_bytes, 30);
  EXPECT_DOUBLE_EQ(graph.nodes[0].out_bytes, 30);
  // Without the variant a third of the time is taken to be the forward.
  EXPECT_DOUBLE_EQ(graph.nodes[1].measured[0].forward_s, 0.001);
  EXPECT_TRUE(has(profile->notes.back(), "1 times without"));
  Options options = on("A100");
  options.seconds_per_unit = 1e-3;
  options.micro_batch_size = 4;
  const auto scaled = read(Layout::kPiper, {kPiperSample}, options);
  ASSERT_TRUE(scaled);
  EXPECT_DOUBLE_EQ(find_measured(scaled->graph.nodes[0], "A100", 4, 2)->forward_s, 8e-6);
  EXPECT_DOUBLE_EQ(scaled->graph.edges[0].bytes, 120);
}

TEST(Piper, NamesTheKeyThatIsWrong) {
  const auto after = [](const std::string& from, const std::string& to) {
    return error_after(Layout::kPiper, {kPiperSample}, on("A100"), from, to);
  };
  EXPECT_TRUE(has(after("\"id\": \"vanilla\"", "\"id\": \"fast\""), "unknown variant \"fast\""));
  EXPECT_TRUE(has(after("\"2\": [", "\"0\": ["), "not a TP degree"));
  EXPECT_TRUE(has(after("\"destId\": 5", "\"destId\": 6"), "2 -> 6 names a node"));
  EXPECT_TRUE(has(after("\"timePerSample\": 0.003", "\"timePerSample\": 1e999"), "tiny.json"));
  EXPECT_TRUE(has(after("\"bandwidth\"", "\"bandwith\""), "bandwidth"));
  EXPECT_TRUE(has(after("\"id\": 5", "\"id\": 2"), "two nodes have the id 2"));
  EXPECT_TRUE(has(after("{", "["), "tiny.json"));
}

TEST(Sailor, MergesDevicesAndToleratesGaps) {
  const auto profile =
      read(Layout::kSailor, {kSailorTimes, kSailorSizes, kSailorOtherTimes}, Options{});
  ASSERT_TRUE(profile) << profile.error().message;
  const Graph& graph = profile->graph;
  EXPECT_EQ(graph.name, "Tiny");
  EXPECT_EQ(graph.layer_count(), 2U);
  EXPECT_EQ(graph.micro_batch_size, 1U);
  EXPECT_TRUE(check_measured(graph, "V100-16", 2));
  EXPECT_TRUE(check_measured(graph, "A100-40", 1));
  EXPECT_FALSE(check_measured(graph, "A100-40", 2));
  const MeasuredOp* four = find_measured(graph.nodes[1], "V100-16", 4, 2);
  ASSERT_NE(four, nullptr);
  EXPECT_DOUBLE_EQ(four->forward_s, 0.7);
  EXPECT_DOUBLE_EQ(*four->param_bytes, 600);
  EXPECT_DOUBLE_EQ(*four->act_bytes, 45 * 2 * 4);
  EXPECT_EQ(find_measured(graph.nodes[1], "V100-16", 4, 1), nullptr);
  EXPECT_DOUBLE_EQ(graph.nodes[0].out_bytes, 100);
}

TEST(Sailor, SaysWhichWidthsTheSizesLack) {
  File times = kSailorTimes;
  times.text.replace(times.text.find("\"4\": {\"2\""), 9, "\"4\": {\"8\"");
  const auto profile = read(Layout::kSailor, {times, kSailorSizes}, {});
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(find_measured(profile->graph.nodes[0], "V100-16", 4, 8), nullptr);
  EXPECT_TRUE(has(profile->notes.back(), "TP 8"));
}

TEST(Sailor, NamesTheEntryThatIsWrong) {
  const auto after = [](const std::string& from, const std::string& to) {
    return error_after(Layout::kSailor, {kSailorTimes, kSailorSizes}, Options{}, from, to);
  };
  EXPECT_TRUE(has(after("\"1\": [0.7", "\"2\": [0.7"), "4.2: layer 1 is missing"));
  EXPECT_TRUE(has(after("[0.7, 1.4, 0.01]", "[0.7, 1.4]"), "expected [forward, backward, update]"));
  EXPECT_TRUE(has(after("[0.7, 1.4, 0.01]", "[0.7, \"x\", 0]"), "4.2.1: expected a number"));
  EXPECT_TRUE(has(after("\"act_mem_floats\": 45", "\"act_floats\": 45"), "act_mem_floats"));
  EXPECT_TRUE(has(after("\"4\": {\"2\"", "\"4\": {\"0\""), "start at 1"));
  EXPECT_TRUE(has(after("\"Tiny\"", "\"Small\""), "no sizes of model \"Tiny\""));
  EXPECT_TRUE(has(error_of(Layout::kSailor, {kSailorTimes}, {}), "found 1 and 0"));
  File other = kSailorOtherTimes;
  other.name = "Big_A100-40_profile.json";
  EXPECT_TRUE(has(error_of(Layout::kSailor, {kSailorTimes, kSailorSizes, other}, {}),
                  "does not say which device profiled Tiny"));
}

TEST(Profiles, AreGraphsThatCanBeWrittenAndReadAgain) {
  const std::vector<std::pair<Layout, std::vector<File>>> samples = {
      {Layout::kAceso, {kAcesoSample}},
      {Layout::kGalvatron, {kGalvatronTimes, kGalvatronMemory}},
      {Layout::kPipedream, {kPipedreamSample}},
      {Layout::kPiper, {kPiperSample}},
      {Layout::kSailor, {kSailorTimes, kSailorSizes}}};
  for (const auto& [layout, files] : samples) {
    const auto profile = read(layout, files, on("V100-16", 2));
    ASSERT_TRUE(profile) << profile.error().message;
    EXPECT_FALSE(profile->notes.empty());
    const json::Value value = graph_to_json(profile->graph);
    const auto again = graph_from_json(value);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(graph_to_json(*again), value);
  }
}

// Every prefix and every text with one byte changed either reads or is refused with a reason.
TEST(Profiles, SurviveDamagedText) {
  const std::vector<std::pair<Layout, std::vector<File>>> samples = {
      {Layout::kAceso, {kAcesoSample}},
      {Layout::kGalvatron, {kGalvatronTimes, kGalvatronMemory}},
      {Layout::kPipedream, {kPipedreamSample}},
      {Layout::kPiper, {kPiperSample}},
      {Layout::kSailor, {kSailorTimes, kSailorSizes}}};
  for (const auto& [layout, files] : samples) {
    for (std::size_t f = 0; f < files.size(); ++f) {
      for (std::size_t at = 0; at < files[f].text.size(); at += 3) {
        std::vector<File> cut = files;
        cut[f].text.resize(at);
        std::vector<File> changed = files;
        changed[f].text[at] = at % 2 == 0 ? '9' : '-';
        for (const auto& damaged : {cut, changed}) {
          const auto profile = read(layout, damaged, on("V100-16", 2));
          EXPECT_TRUE(profile || !profile.error().message.empty());
        }
      }
    }
  }
}

}  // namespace
}  // namespace tapas::solver::profile
