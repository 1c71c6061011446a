#pragma once

#include "solver/profile/profile.h"

/// Small profiles of each layout, made up for the tests; the forms are those of the originals.
namespace tapas::solver::profile {

inline const File kAcesoSample{
    "tiny_op_profile.csv",
    "mbs,tp,algo,op_name,forward_us,backward_us,input_MB,output_MB,weights_MB,activations_MB,"
    "fwd_reserved_MB,bwd_reserved_MB\n"
    "1,1,0,encoder-embedding,100,200,0.008,2,8,3,0,5\n"
    "1,1,0,enc-attention-qkv,400,800,2,6,4,2,1,3\n"
    "1,1,0,enc-MLP-GEMM-2,300,600,6,2,4,6,0,2\n"
    "1,1,0,gpt-post-process,500,900,2,0,8,16,4,20\n"
    "1,2,0,encoder-embedding,110,120,0.008,2,4,3,0,3\n"
    "1,2,0,enc-attention-qkv,210,450,2,3,2,2,1,2\n"
    "1,2,0,enc-MLP-GEMM-2,190,310,3,2,2,3,0,1\n"
    "1,2,0,gpt-post-process,260,480,2,0,4,8,2,10\n"
    "1,2,1,enc-attention-qkv,900,900,2,3,2,2,1,2\n"
    "2,1,0,encoder-embedding,190,390,0.016,4,8,6,0,9\n"};

inline const File kGalvatronTimes{
    "tiny_computation_bf16_h64_seq32.json",
    R"({"layernum[2]_bsz1": 9.0, "layertype_0": 4.0, "layertype_0_bsz1": 4.0,
        "layertype_other_0_bsz1": 3.0, "layertype_0_bsz2": 3.5, "layertype_other_bsz2": 2.5})"};
inline const File kGalvatronMemory{"tiny_memory_bf16_h64_seq32.json",
                                   R"({"1_1_8": {"layernum[1]_bsz8_rank0_ms": 9},
        "layertype_0": {"parameter_size": 8.0,
                        "tp_activation_per_bsz_dict": {"1": 4, "2": 2.5, "checkpoint": 1}},
        "other_memory_pp_off": {"model_states": 64.0, "activation": 5}})"};

/// a -> b -> d, a -> c -> d, written out of order; "in" and "view" cost nothing.
inline const File kPipedreamSample{
    "tiny_graph.txt",
    "d -- Add() -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=400.0, "
    "parameter_size=0.000\n"
    "in -- Input0 -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=0.0, "
    "parameter_size=0.0\n"
    "a -- Conv2d(3, 64, kernel_size=(3, 3)) -- forward_compute_time=10.0, "
    "backward_compute_time=20.0, activation_size=[100.0; 50.0], parameter_size=1000.0\n"
    "b -- ReLU(inplace) -- forward_compute_time=2.0, backward_compute_time=3.0, "
    "activation_size=200.0, parameter_size=0.0\n"
    "c -- view -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=150.0, "
    "parameter_size=0.0 -- stage_id=1\n"
    "\tin -- a\n\ta -- b\n\ta -- c\n\tb -- d\n\tc -- d\n"};

inline const File kPiperSample{"tiny.json", R"({
  "maxDevices": 4, "maxMemoryPerDevice": 8e9, "bandwidth": 1e9, "mbsInBatch": 64,
  "nodes": [
    {"id": 5, "name": "out", "TMPCs": {"1": [
      {"id": "vanilla", "timePerSample": 0.003, "parameterSize": 0, "memoryUsageA": 10,
       "memoryUsageB": 7, "syncTimeFw": {}, "syncTimeBw": {"2": 0}}]}},
    {"id": 2, "name": "in", "TMPCs": {
      "1": [
        {"id": "vanilla", "timePerSample": 0.009, "parameterSize": 100, "memoryUsageA": 40,
         "memoryUsageB": 230, "syncTimeFw": {"5": 0}, "syncTimeBw": {}},
        {"id": "activation recomp", "timePerSample": 0.013, "parameterSize": 100,
         "memoryUsageA": 4, "memoryUsageB": 266, "syncTimeFw": {"5": 0}, "syncTimeBw": {}}],
      "2": [
        {"id": "vanilla", "timePerSample": 0.005, "parameterSize": 50, "memoryUsageA": 20,
         "memoryUsageB": 100, "syncTimeFw": {"5": 0}, "syncTimeBw": {}},
        {"id": "activation recomp", "timePerSample": 0.007, "parameterSize": 50,
         "memoryUsageA": 4, "memoryUsageB": 120, "syncTimeFw": {"5": 0}, "syncTimeBw": {}}]}}],
  "edges": [{"sourceId": 2, "destId": 5, "communicationCost": 30}]})"};

inline const File kSailorTimes{"Tiny_V100-16_profile.json",
                               R"({"1": {"1": {"0": [0.1, 0.2, 0.01], "1": [0.3, 0.6, 0.01]},
                                        "2": {"0": [0.06, 0.12, 0.01], "1": [0.2, 0.4, 0.01]}},
                                  "4": {"2": {"1": [0.7, 1.4, 0.01], "0": [0.2, 0.4, 0.01]}}})"};
inline const File kSailorOtherTimes{"Tiny_A100-40_profile.json",
                                    R"({"1": {"1": {"0": [0.05, 0.1, 0.01],
                                                    "1": [0.1, 0.2, 0.01]}}})"};
inline const File kSailorSizes{"llm_info.json", R"({
  "Other": {},
  "Tiny": {
    "1": {"0": {"params_floats": 1000, "act_output_floats": 50, "act_input_floats": 20,
                "act_mem_floats": 70, "params_bytes": 4000, "act_output_bytes": 200,
                "act_input_bytes": 80, "act_mem_bytes": 280},
          "1": {"params_floats": 600, "act_output_floats": 50, "act_input_floats": 50,
                "act_mem_floats": 90}},
    "2": {"0": {"params_floats": 500, "act_output_floats": 50, "act_input_floats": 20,
                "act_mem_floats": 60},
          "1": {"params_floats": 300, "act_output_floats": 50, "act_input_floats": 50,
                "act_mem_floats": 45}}}})"};

}  // namespace tapas::solver::profile
