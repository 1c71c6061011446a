#pragma once

#include "base/result.h"
#include "daemon/net/allow_list.h"
#include "daemon/net/quota.h"
#include "daemon/net/reject_counter.h"

#include <zmq.hpp>

#include <map>
#include <string>
#include <string_view>

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
  /// Answers the requests that wait. Unknown keys, and those that come too often, get 300, so that
  /// they come in by themselves later.
  void answer(const AllowList& agents);
  void close() { socket_.close(); }

 private:
  bool answer_one(const AllowList& agents);
  void refuse_unknown(std::string_view address, std::string_view key);
  [[nodiscard]] bool within_quota(const std::string& node, std::string_view address);

  zmq::socket_t socket_;
  const std::string keys_folder_;
  RejectCounter& rejects_;
  std::map<std::string, HandshakeQuota> quotas_;  ///< by node
};

}  // namespace tapas::daemon
