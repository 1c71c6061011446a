#pragma once

#include "ctl/context.h"

/// One file per verb in verbs/. Each function adds its verb to the command line; the verb's
/// callback puts the work into Context::run.
namespace tapas::ctl {

void add_status(CLI::App& app, Context& context);
void add_solve(CLI::App& app, Context& context);
void add_plan(CLI::App& app, Context& context);
/// Below the verb `plan`.
void add_plan_explain(CLI::App& plan, Context& context);
void add_replan(CLI::App& app, Context& context);
void add_whatif(CLI::App& app, Context& context);
void add_explain(CLI::App& app, Context& context);
void add_replay(CLI::App& app, Context& context);
void add_events(CLI::App& app, Context& context);
void add_node(CLI::App& app, Context& context);
void add_auto(CLI::App& app, Context& context);
void add_key(CLI::App& app, Context& context);
void add_topo(CLI::App& app, Context& context);
void add_cluster(CLI::App& app, Context& context);
void add_model(CLI::App& app, Context& context);
/// Below the verb `model`.
void add_model_import(CLI::App& model, Context& context);
void add_version(CLI::App& app, Context& context);

}  // namespace tapas::ctl
