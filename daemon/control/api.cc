#include "daemon/control/api.h"

#include "base/ids.h"
#include "daemon/control/format.h"
#include "daemon/control/metrics.h"
#include "solver/model/io/load.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>
#include <variant>

namespace tapas::daemon {
namespace {

constexpr std::size_t kMaxWaiters = 256;
constexpr std::size_t kMaxPending = 64;
constexpr std::size_t kMaxReason = 512;
constexpr std::size_t kMaxEvents = 1000;
constexpr std::size_t kMaxDecisions = 1000;
constexpr std::int64_t kMaxWaitS = 30;
constexpr std::chrono::seconds kCommandTimeout{60};
constexpr const char* kPlainText = "text/plain; charset=utf-8";

unsigned http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return 400;
    case ErrorCode::kDenied:
      return 403;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kInfeasible:
    case ErrorCode::kConflict:
      return 409;
    case ErrorCode::kTimeout:
      return 504;
    case ErrorCode::kUnavailable:
    case ErrorCode::kIo:
      return 503;
  }
  return 503;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

/// Names need no escapes in a path (valid_name), so escapes are not read.
Result<std::string> name_of(const std::string& text, std::string_view what) {
  if (!valid_name(text)) {
    return fail(ErrorCode::kInvalid, "\"{}\" cannot be the name of a {}", text, what);
  }
  return text;
}

}  // namespace

/// "/v1/jobs/j/plan?epoch=3" taken apart.
struct Api::Target {
  std::vector<std::string> path;  // without "v1"
  std::map<std::string, std::string> query;

  static Result<Target> parse(const std::string& text) {
    Target target;
    const std::size_t mark = text.find('?');
    if (text.rfind("/v1/", 0) != 0) {
      return fail(ErrorCode::kNotFound, "{}: paths begin with /v1/", text);
    }
    target.path =
        split(std::string_view(text).substr(4, mark == std::string::npos ? mark : mark - 4), '/');
    if (mark != std::string::npos) {
      for (const std::string& item : split(std::string_view(text).substr(mark + 1), '&')) {
        const std::size_t equals = item.find('=');
        if (equals == std::string::npos ||
            !target.query.emplace(item.substr(0, equals), item.substr(equals + 1)).second) {
          return fail(ErrorCode::kInvalid, "query \"{}\": key=value expected, each key once", item);
        }
      }
    }
    return target;
  }

  [[nodiscard]] Result<void> only(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : query) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        return fail(ErrorCode::kInvalid, "unknown query key \"{}\"; known: {}", key,
                    fmt::join(known, ", "));
      }
    }
    return {};
  }

  [[nodiscard]] Result<std::optional<std::int64_t>> integer(const std::string& key,
                                                            std::int64_t max) const {
    const auto found = query.find(key);
    if (found == query.end()) {
      return std::optional<std::int64_t>();
    }
    const std::string& text = found->second;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > max) {
      return fail(ErrorCode::kInvalid, "{}={}: a whole number from 0 to {} is expected", key, text,
                  max);
    }
    return std::optional(value);
  }
};

void Api::answer_error(const Reply& reply, const Error& error) {
  reply({http_status(error.code), json::dump(error_json(error.code, error.message))});
}

template <typename T>
Store::Reply<T> Api::on_core(Reply reply, std::function<json::Value(const T&)> format) {
  return [post = backend_.post, reply = std::move(reply),
          format = std::move(format)](Result<T> result) {
    post([reply, format, result = std::move(result)] {
      if (result) {
        reply({200, json::dump(format(*result))});
      } else {
        answer_error(reply, result.error());
      }
    });
  };
}

bool Api::probe(const std::string& path, const Reply& reply) {
  if (path == "/livez") {
    reply({200, "alive", kPlainText});
  } else if (path == "/readyz") {
    const std::uint64_t unwritten = backend_.store->unwritten();
    reply(unwritten == 0
              ? HttpResponse{200, "ready", kPlainText}
              : HttpResponse{503,
                             fmt::format("not ready: {} writes wait for the disk of state_dir; "
                                         "no plan changes by itself until it takes them",
                                         unwritten),
                             kPlainText});
  } else if (path == "/metrics") {
    reply({200,
           metrics_text(backend_.status(), backend_.wire(), backend_.rejected(),
                        backend_.store->unwritten()),
           "text/plain; version=0.0.4; charset=utf-8"});
  } else {
    return false;
  }
  return true;
}

void Api::handle(const HttpRequest& request, const std::optional<OperatorPeer>& peer, Reply reply) {
  if (request.method == "GET" && probe(request.target, reply)) {
    return;
  }
  const auto target = Target::parse(request.target);
  if (!target) {
    return answer_error(reply, target.error());
  }
  if (request.method == "GET") {
    return read(*target, std::move(reply));
  }
  if (request.method == "POST") {
    if (!peer) {
      return answer_error(reply, {ErrorCode::kDenied,
                                  "this address only reads; changes go through the operator "
                                  "socket (control_socket), as tapasctl does"});
    }
    return change(request, *peer, *target, std::move(reply));
  }
  answer_error(reply, {ErrorCode::kInvalid,
                       fmt::format("method {}: only GET and POST are known", request.method)});
}

void Api::read(const Target& target, Reply reply) {
  const std::vector<std::string>& path = target.path;
  if (path.size() == 1 && path[0] == "status") {
    if (auto ok = target.only({}); !ok) {
      return answer_error(reply, ok.error());
    }
    return reply(
        {200, json::dump(status_json(backend_.status(), backend_.wire(), backend_.rejected()))});
  }
  if (path.size() == 1 && path[0] == "events") {
    return read_events(target, std::move(reply));
  }
  if (path.size() == 3 && path[0] == "jobs") {
    return read_job(target, std::move(reply));
  }
  answer_error(reply, {ErrorCode::kNotFound,
                       fmt::format("nothing to read at /v1/{}", fmt::join(path, "/"))});
}

void Api::read_job(const Target& target, Reply reply) {
  const std::string& name = target.path[1];
  const std::string& what = target.path[2];
  const auto job = jobs_.find(name);
  if (job == jobs_.end()) {
    std::string known;
    for (const auto& [other, ignored] : jobs_) {
      known += (known.empty() ? "" : ", ") + other;
    }
    return answer_error(
        reply, {ErrorCode::kNotFound, fmt::format("no job \"{}\"; this daemon has: {}", name,
                                                  known.empty() ? "none" : known)});
  }
  if (what == "plan") {
    const auto known = target.only({"epoch"});
    const auto epoch = target.integer("epoch", INT64_MAX);
    if (!known || !epoch) {
      return answer_error(reply, known ? epoch.error() : known.error());
    }
    if (*epoch) {
      return backend_.store->plan_body(
          name, Epoch(static_cast<std::uint64_t>(**epoch)),
          on_core<std::string>(std::move(reply), [](const std::string& body) {
            auto value = json::parse(body);
            return value ? *std::move(value) : json::Value();
          }));
    }
    const auto plan = backend_.plan(name);
    if (plan == nullptr) {
      return answer_error(reply, {ErrorCode::kNotFound,
                                  fmt::format("job \"{}\" has no plan yet; see its phase in the "
                                              "status",
                                              name)});
    }
    return reply({200, json::dump(solver::plan_to_json(*plan, *job->second))});
  }
  if (what == "plans") {
    if (auto ok = target.only({}); !ok) {
      return answer_error(reply, ok.error());
    }
    return backend_.store->plans(name,
                                 on_core<std::vector<StoredPlan>>(std::move(reply), plans_json));
  }
  if (what == "decisions") {
    const auto known = target.only({"limit"});
    const auto limit = target.integer("limit", kMaxDecisions);
    if (!known || !limit) {
      return answer_error(reply, known ? limit.error() : known.error());
    }
    return backend_.store->decisions(
        name, static_cast<std::size_t>(limit->value_or(20)),
        on_core<std::vector<StoredDecision>>(std::move(reply), decisions_json));
  }
  answer_error(reply, {ErrorCode::kNotFound,
                       fmt::format("a job has plan, plans and decisions, but no \"{}\"", what)});
}

void Api::read_events(const Target& target, Reply reply) {
  const auto known = target.only({"after", "limit", "wait_s"});
  const auto after = target.integer("after", INT64_MAX);
  const auto limit = target.integer("limit", kMaxEvents);
  const auto wait_s = target.integer("wait_s", kMaxWaitS);
  for (const Error* error :
       {known ? nullptr : &known.error(), after ? nullptr : &after.error(),
        limit ? nullptr : &limit.error(), wait_s ? nullptr : &wait_s.error()}) {
    if (error != nullptr) {
      return answer_error(reply, *error);
    }
  }
  const auto count = static_cast<std::size_t>(limit->value_or(100));
  if (*after && wait_s->value_or(0) > 0 && **after >= last_event_) {
    if (waiters_.size() >= kMaxWaiters) {
      return answer_error(reply, {ErrorCode::kUnavailable,
                                  "too many clients wait for events; try again without wait_s"});
    }
    waiters_.push_back(
        {**after, count, Clock::now() + std::chrono::seconds(**wait_s), std::move(reply)});
    return;
  }
  send_events(*after, count, std::move(reply));
}

void Api::send_events(std::optional<std::int64_t> after, std::size_t limit, Reply reply) {
  backend_.store->events(after, limit,
                         on_core<std::vector<StoredEvent>>(
                             std::move(reply), [after](const std::vector<StoredEvent>& events) {
                               return events_json(events, after.value_or(0));
                             }));
}

void Api::change(const HttpRequest& request, const OperatorPeer& peer, const Target& target,
                 Reply reply) {
  if (!may_change(peer, group_)) {
    return answer_error(
        reply, {ErrorCode::kDenied,
                fmt::format("{} may read but not change anything; root, the daemon's user and "
                            "members of {} may",
                            describe(peer),
                            group_.empty() ? "no group (operator_group is not set)" : group_)});
  }
  const auto body = json::parse(request.body.empty() ? "{}" : std::string_view(request.body),
                                {.max_bytes = 1U << 16U, .max_depth = 4});
  if (!body) {
    return answer_error(reply, {ErrorCode::kInvalid, "body: " + body.error().message});
  }
  json::ObjectReader in(*body, "body");
  OperatorCommand command;
  std::string job;
  const std::vector<std::string>& path = target.path;
  const auto reason = [&] {
    std::string text = in.string("reason");
    if (in.ok() && (text.empty() || text.size() > kMaxReason)) {
      in.absorb({ErrorCode::kInvalid,
                 fmt::format("body.reason: 1 to {} bytes that say why", kMaxReason)});
    }
    return text;
  };
  if (path.size() == 3 && path[0] == "jobs" && path[2] == "replan") {
    job = path[1];
    if (!jobs_.contains(job)) {
      return answer_error(reply, {ErrorCode::kNotFound, fmt::format("no job \"{}\"", job)});
    }
    command.verb = Replan{job, in.boolean_or("dry_run", false)};
  } else if (path.size() == 3 && path[0] == "nodes" &&
             (path[2] == "drain" || path[2] == "undrain" || path[2] == "pin" ||
              path[2] == "unpin")) {
    const auto node = name_of(path[1], "node");
    if (!node) {
      return answer_error(reply, node.error());
    }
    if (path[2] == "drain") {
      command.verb = Drain{*node, reason()};
    } else if (path[2] == "undrain") {
      command.verb = Undrain{*node};
    } else if (path[2] == "pin") {
      command.verb = Pin{*node, reason()};
    } else {
      command.verb = Unpin{*node};
    }
  } else if (path.size() == 1 && path[0] == "auto") {
    if (!in.has("on")) {
      in.absorb({ErrorCode::kInvalid, "body.on: true or false is missing"});
    }
    const bool on = in.boolean_or("on", false);
    command.verb = SetAuto{on, reason()};
  } else {
    return answer_error(reply, {ErrorCode::kNotFound,
                                fmt::format("nothing to change at /v1/{}", fmt::join(path, "/"))});
  }
  auto known = target.only({});
  if (known) {
    known = in.finish();
  }
  if (!known) {
    return answer_error(reply, known.error());
  }
  if (pending_.size() >= kMaxPending) {
    return answer_error(reply, {ErrorCode::kUnavailable, "too many changes at once; try again"});
  }
  command.request = next_request_++;
  command.who = describe(peer);
  pending_.emplace(command.request,
                   Pending{std::move(job), Clock::now() + kCommandTimeout, std::move(reply)});
  backend_.submit(std::move(command));
}

void Api::complete(const OperatorReply& answer) {
  const auto found = pending_.find(answer.request);
  if (found == pending_.end()) {
    return;  // the client was told that it takes too long
  }
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  if (!answer.outcome) {
    return answer_error(pending.reply, answer.outcome.error());
  }
  const auto job = jobs_.find(pending.job);
  if (answer.proposal != nullptr && job != jobs_.end()) {
    pending.reply(
        {200, json::dump(proposal_json(*answer.proposal, *job->second, *answer.outcome))});
  } else {
    pending.reply({200, json::dump({{"schema", "tapas.done/1"}, {"message", *answer.outcome}})});
  }
}

void Api::events_stored(std::int64_t last) {
  last_event_ = last;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (waiter->after < last) {
      send_events(waiter->after, waiter->limit, std::move(waiter->reply));
      waiter = waiters_.erase(waiter);
    } else {
      ++waiter;
    }
  }
}

void Api::tick(Clock::time_point now) {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (waiter->until <= now) {
      waiter->reply({200, json::dump(events_json({}, waiter->after))});
      waiter = waiters_.erase(waiter);
    } else {
      ++waiter;
    }
  }
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    if (pending->second.until <= now) {
      answer_error(pending->second.reply,
                   {ErrorCode::kTimeout,
                    "no answer in time; the outcome is unknown, see tapasctl status and events"});
      pending = pending_.erase(pending);
    } else {
      ++pending;
    }
  }
}

}  // namespace tapas::daemon
