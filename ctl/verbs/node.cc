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

/// A verb about one node; with an example of a reason where it needs one.
struct Change {
  const char* name;
  const char* help;
  std::string_view example;
};

void add_change(CLI::App& parent, Context& context, const Change& change) {
  CLI::App* verb = parent.add_subcommand(change.name, change.help);
  auto node = std::make_shared<std::string>();
  auto reason = std::make_shared<std::string>();
  verb->add_option("NODE", *node, "Name as in `tapasctl node list`")->required();
  std::string example = fmt::format("Example:\n  tapasctl node {} a800-037", change.name);
  if (!change.example.empty()) {
    verb->add_option("--reason", *reason, "Why; goes into the journal")->required();
    example += fmt::format(" --reason \"{}\"", change.example);
  }
  verb->footer(example);
  add_socket_option(*verb, context);
  verb->callback(
      [&context, node, reason, name = change.name, with_reason = !change.example.empty()] {
        context.run = [&context, node, reason, name, with_reason] {
          const json::Value body =
              with_reason ? json::Value{{"reason", *reason}} : json::Value::object();
          return change_node(context, *node, name, body);
        };
      });
}

}  // namespace

void add_node(CLI::App& app, Context& context) {
  CLI::App* verb =
      app.add_subcommand("node", "List nodes, take one out of service, put it back, pin it");
  verb->require_subcommand(1);
  verb->footer(
      "Examples:\n  tapasctl node list\n"
      "  tapasctl node drain a800-037 --reason \"fan replacement, ticket 4711\"\n"
      "  tapasctl node undrain a800-037\n"
      "  tapasctl node pin a800-012 --reason \"its layers are being profiled\"");

  CLI::App* list = verb->add_subcommand("list", "All nodes with state, slowdown and records");
  add_socket_option(*list, context);
  add_format_option(*list, context);
  list->callback([&context] { context.run = [&context] { return list_nodes(context); }; });

  add_change(*verb, context,
             {"drain", "Move work off a node at the next replan", "fan replacement"});
  add_change(*verb, context, {"undrain", "Let a node take work again", ""});
  add_change(*verb, context, {"pin", "Keep a node's stages and layers as they are", "under test"});
  add_change(*verb, context, {"unpin", "Let replans change a node again", ""});
}

}  // namespace tapas::ctl
