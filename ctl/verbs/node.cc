#include "ctl/agents.h"
#include "ctl/fields.h"
#include "ctl/table.h"
#include "ctl/verbs.h"

#include <CLI/App.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tapas::ctl {

namespace {

Result<Exit> list_nodes(const Context& context) {
  const auto status = context.client().get("/v1/status", "tapas.status/1");
  if (!status) {
    return tl::unexpected(status.error());
  }
  const json::Value& agents = array_at(*status, "agents");
  if (context.json()) {
    print_json({{"schema", "tapas.nodes/1"}, {"nodes", agents}});
  } else {
    print(agent_table(agents));
  }
  return Exit::kOk;
}

/// Adds the node that was probably meant to an error about an unknown one.
Error with_suggestion(const Client& client, const std::string& node, Error error) {
  if (error.code != ErrorCode::kNotFound) {
    return error;
  }
  const auto status = client.get("/v1/status", "tapas.status/1");
  if (!status) {
    return error;
  }
  std::vector<std::string> names;
  for (const json::Value& agent : array_at(*status, "agents")) {
    names.push_back(text_at(agent, "node"));
  }
  const std::string nearest = nearest_name(node, names);
  error.message += nearest.empty() ? "; `tapasctl node list` shows the names"
                                   : fmt::format("; did you mean {}?", printable(nearest));
  return error;
}

Result<Exit> change_node(const Context& context, const std::string& node, std::string_view action,
                         const json::Value& body) {
  const Client client = context.client();
  const auto answer = client.post(fmt::format("/v1/nodes/{}/{}", url_escape(node), action), body);
  if (!answer) {
    return tl::unexpected(with_suggestion(client, node, answer.error()));
  }
  print(printable(text_at(*answer, "message", "done")) + "\n");
  return Exit::kOk;
}

}  // namespace

void add_node(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("node", "List nodes, take one out of service, put it back");
  verb->require_subcommand(1);
  verb->footer(
      "Examples:\n  tapasctl node list\n"
      "  tapasctl node drain a800-037 --reason \"fan replacement, ticket 4711\"\n"
      "  tapasctl node undrain a800-037");

  CLI::App* list = verb->add_subcommand("list", "All nodes with state, slowdown and records");
  add_socket_option(*list, context);
  add_format_option(*list, context);
  list->callback([&context] { context.run = [&context] { return list_nodes(context); }; });

  auto node = std::make_shared<std::string>();
  auto reason = std::make_shared<std::string>();
  CLI::App* drain = verb->add_subcommand("drain", "Move work off a node at the next replan");
  drain->add_option("NODE", *node, "Name as in `tapasctl node list`")->required();
  drain->add_option("--reason", *reason, "Why; goes into the journal")->required();
  drain->footer("Example:\n  tapasctl node drain a800-037 --reason \"fan replacement\"");
  add_socket_option(*drain, context);
  drain->callback([&context, node, reason] {
    context.run = [&context, node, reason] {
      return change_node(context, *node, "drain", {{"reason", *reason}});
    };
  });

  CLI::App* undrain = verb->add_subcommand("undrain", "Let a node take work again");
  undrain->add_option("NODE", *node, "Name as in `tapasctl node list`")->required();
  undrain->footer("Example:\n  tapasctl node undrain a800-037");
  add_socket_option(*undrain, context);
  undrain->callback([&context, node] {
    context.run = [&context, node] {
      return change_node(context, *node, "undrain", json::Value::object());
    };
  });
}

}  // namespace tapas::ctl
