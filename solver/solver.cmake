add_library(
  tapas_solver STATIC
  check/check_memory.cc
  check/check_plan.cc
  cost/breakdown.cc
  cost/collectives.cc
  cost/cost_model.cc
  cost/document_model.cc
  cost/layer_table.cc
  cost/links.cc
  cost/physical_model.cc
  cost/pipeline.cc
  cost/plan_evaluator.cc
  cost/predict.cc
  cost/stage_fit.cc
  replan/micro_replan.cc
  replan/row_repair.cc
  search/anneal.cc
  search/device_order.cc
  search/explain.cc
  search/naive.cc
  search/place.cc
  search/remedies.cc
  search/shapes.cc
  search/solve.cc
  search/split.cc)
target_link_libraries(tapas_solver PUBLIC tapas_model PRIVATE tapas_hot)
