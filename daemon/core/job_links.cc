#include "daemon/core/job_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace tapas::daemon {
namespace {

constexpr double kGbit = 8e-9;  // of a byte

}  // namespace

std::optional<JobLoop::Rejection> JobLoop::sample(LoopContext& /*context*/, const std::string& node,
                                                  const LinkSample& sample) {
  const auto reject = [&](std::string reason, std::string sentence) {
    return Rejection{std::move(reason), fmt::format("{}: link record of job {} {}", node,
                                                    job_->name, std::move(sentence))};
  };
  const std::size_t ranks = job_->cluster.device_count();
  if (sample.rank.value() >= ranks || sample.peer.value() >= ranks) {
    return reject("unknown_rank", fmt::format("names ranks {} and {}, but the cluster has ranks 0 "
                                              "to {}; use one cluster file on both sides",
                                              sample.rank, sample.peer, ranks - 1));
  }
  const NodeId from = job_->cluster.node_of(sample.rank);
  const NodeId to = job_->cluster.node_of(sample.peer);
  const std::string& peer = job_->cluster.nodes[to.value()].name;
  if (job_->cluster.nodes[from.value()].name != node) {
    return reject("foreign_rank", fmt::format("names rank {} as its sender, which belongs to node "
                                              "{}",
                                              sample.rank, job_->cluster.nodes[from.value()].name));
  }
  if (sample.destination != name_hash(peer)) {
    return reject("wrong_node", fmt::format("of rank {} says its receiver {} is on a node with the "
                                            "hash {:016x}, it is on {}",
                                            sample.rank, sample.peer, sample.destination, peer));
  }
  const bool sane = std::isfinite(sample.bytes) && std::isfinite(sample.transfer_s) &&
                    std::isfinite(sample.end_time_s) && sample.bytes >= 0 && sample.transfer_s >= 0;
  if (!sane) {
    return reject("implausible", fmt::format("of rank {} says {:.6g} bytes in {:.6g} s",
                                             sample.rank, sample.bytes, sample.transfer_s));
  }
  if (!active_ || sample.session != session_) {
    return Rejection{"stale_session", ""};
  }
  if (from != to && sample.bytes > 0 && sample.transfer_s > 0) {
    links_.observe(from, to, sample.transfer_s / sample.bytes,
                   {window_.newest(), sample.end_time_s});
  }
  return std::nullopt;
}

bool JobLoop::is_slow(const std::string& node) const {
  const auto of_node = [&](const LinkFault& fault) {
    return job_->cluster.nodes[fault.owner().value()].name == node;
  };
  return slowdown(node) > 1.0 ||
         std::any_of(links_.faults().begin(), links_.faults().end(), of_node);
}

void JobLoop::on_link_faults(LoopContext& context, const std::vector<LinkFault>& faults) {
  if (faults.empty()) {
    return;
  }
  begin_loss(faults.front().since.begin_s);
  for (const LinkFault& fault : faults) {
    const std::string& node = job_->cluster.nodes[fault.owner().value()].name;
    const double begin_s = fault.since.begin_s;
    slow_.try_emplace(node, Slow{Cause::kLink, begin_s, begin_s, 0, 0, 0});
    recovered_nodes_.erase(node);
    verdict_ = fmt::format("{} as before", to_text(fault, job_->cluster));
    verdict_evidence_.clear();
    put(verdict_evidence_, "node", node);
    put(verdict_evidence_, "cause", std::string(to_string(Cause::kLink)));
    put(verdict_evidence_, "part", std::string(to_string(fault.part)));
    put(verdict_evidence_, "from", job_->cluster.nodes[fault.from.value()].name);
    put(verdict_evidence_, "to", job_->cluster.nodes[fault.to.value()].name);
    put(verdict_evidence_, "links_compared", static_cast<std::int64_t>(fault.links));
    put(verdict_evidence_, "slowdown", fault.slowdown);
    put(verdict_evidence_, "bandwidth_before_gbps", kGbit / fault.before_s);
    put(verdict_evidence_, "bandwidth_after_gbps", kGbit / fault.after_s);
    put(verdict_evidence_, "confidence_sigma", fault.confidence);
    put(verdict_evidence_, "since_step", static_cast<std::int64_t>(fault.since.step));
    put(verdict_evidence_, "detect_s", job_time_s_ - begin_s);
    context.out.event(job_->name, "verdict", node, verdict_, verdict_evidence_);
  }
  remember(context);
  refresh_prediction(context);
  want_review();
}

void JobLoop::on_link_recovery(LoopContext& context, const std::vector<LinkFault>& faults) {
  for (const LinkFault& fault : faults) {
    const std::string& node = job_->cluster.nodes[fault.owner().value()].name;
    verdict_ = fmt::format("no longer: {}", to_text(fault, job_->cluster));
    context.out.event(job_->name, "recovery", node, verdict_,
                      {{"cause", std::string(to_string(Cause::kLink))},
                       {"node", node},
                       {"part", std::string(to_string(fault.part))},
                       {"from", job_->cluster.nodes[fault.from.value()].name},
                       {"to", job_->cluster.nodes[fault.to.value()].name}});
    if (!is_slow(node)) {
      slow_.erase(node);
      recovered_nodes_.insert(node);
    }
  }
  if (!faults.empty()) {
    remember(context);
    refresh_prediction(context);
    want_review();
  }
}

}  // namespace tapas::daemon
