#pragma once

#include "base/result.h"
#include "daemon/net/allow_list.h"
#include "daemon/net/reject_counter.h"

#include <zmq.hpp>

#include <string>

namespace tapas::daemon {

/// Answers libzmq's question whether a connecting key may come in (ZeroMQ RFC 27). The file is
/// private to daemon/net.
class ZapHandler {
 public:
  ZapHandler(zmq::context_t& context, std::string keys_folder, RejectCounter& rejects);

  /// Must come before any socket that relies on it: without a handler libzmq lets everybody in.
  /// Throws zmq::error_t.
  void bind();
  [[nodiscard]] zmq::socket_t& socket() { return socket_; }
  /// Answers the requests that wait. Unknown keys get 300, so that they come in by themselves once
  /// they are allowed.
  void answer(const AllowList& agents);
  void close() { socket_.close(); }

 private:
  bool answer_one(const AllowList& agents);

  zmq::socket_t socket_;
  const std::string keys_folder_;
  RejectCounter& rejects_;
};

}  // namespace tapas::daemon
