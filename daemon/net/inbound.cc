#include "daemon/net/inbound.h"

#include "base/ids.h"
#include "wire/message_codec.h"
#include "wire/record_codec.h"

#include <fmt/format.h>

#include <utility>
#include <variant>
#include <vector>

namespace tapas::daemon {
namespace {

using Outcome = tl::expected<Inbound, Refusal>;

double seconds(std::uint32_t microseconds) { return static_cast<double>(microseconds) * 1e-6; }

StepSample to_sample(const wire::StepRecord& record) {
  return {.job = record.job,
          .session = record.session,
          .node = record.node,
          .rank = RankId(record.rank),
          .epoch = Epoch(record.epoch),
          .step = record.step,
          .end_time_s = static_cast<double>(record.end_time_ns) * 1e-9,
          .flags = record.flags,
          .microbatches = record.microbatches,
          .wall_s = seconds(record.wall_us),
          .forward_s = seconds(record.forward_us),
          .backward_s = seconds(record.backward_us),
          .optimizer_s = seconds(record.optimizer_us),
          .tp_collective_s = seconds(record.tp_collective_us),
          .pp_wait_s = seconds(record.pp_wait_us),
          .pp_transfer_s = seconds(record.pp_transfer_us),
          .dp_collective_s = seconds(record.dp_collective_us),
          .input_wait_s = seconds(record.input_wait_us),
          .work_tokens = record.work_tokens};
}

LinkSample to_sample(const wire::LinkRecord& record) {
  return {.job = record.job,
          .session = record.session,
          .destination = record.destination_node,
          .rank = RankId(record.rank),
          .peer = RankId(record.peer_rank),
          .end_time_s = static_cast<double>(record.end_time_ns) * 1e-9,
          .bytes = static_cast<double>(record.bytes),
          .transfer_s = static_cast<double>(record.transfer_us) * 1e-6};
}

std::uint64_t claimed_node(const wire::Record& record) {
  if (const auto* step = std::get_if<wire::StepRecord>(&record)) {
    return step->node;
  }
  if (const auto* link = std::get_if<wire::LinkRecord>(&record)) {
    return link->source_node;
  }
  return std::get<wire::HealthRecord>(record).node;
}

SwitchPhase to_phase(wire::Phase phase) {
  switch (phase) {
    case wire::Phase::kPrepared:
      return SwitchPhase::kPrepared;
    case wire::Phase::kArmed:
      return SwitchPhase::kArmed;
    case wire::Phase::kTransferred:
      return SwitchPhase::kTransferred;
    case wire::Phase::kCommitted:
      return SwitchPhase::kCommitted;
    case wire::Phase::kAborted:
      return SwitchPhase::kAborted;
  }
  return SwitchPhase::kAborted;
}

class Translate {
 public:
  explicit Translate(const std::string& node) : node_(node) {}

  Outcome operator()(wire::Hello& hello) const {
    if (hello.node != node_) {
      return tl::unexpected(Refusal{
          "node_mismatch",
          fmt::format(
              "its HELLO says it is \"{}\", but the key is of \"{}\"; give each node its own key",
              hello.node, node_),
          true});
    }
    AgentHello out{node_, hello.nonce, Term(hello.term), {}};
    for (wire::Attachment& attachment : hello.attachments) {
      JobAttachment& job = out.jobs.emplace_back();
      job.job = std::move(attachment.job);
      job.session = attachment.session;
      job.epoch = Epoch(attachment.epoch);
      job.pending_epoch = Epoch(attachment.pending_epoch);
      for (wire::RankInfo& rank : attachment.ranks) {
        job.ranks.push_back({RankId(rank.rank), std::move(rank.device_uuid), rank.pid});
      }
    }
    return Inbound{std::move(out), true, {}};
  }

  Outcome operator()(const wire::Heartbeat& heartbeat) const {
    return Inbound{
        AgentHeartbeat{node_, heartbeat.records_sent, heartbeat.records_dropped}, false, {}};
  }

  Outcome operator()(wire::Findings& message) const {
    AgentFindings out{node_, {}};
    for (wire::Finding& finding : message.findings) {
      out.findings.push_back(
          {std::move(finding.device), std::move(finding.kind), std::move(finding.text)});
    }
    return Inbound{std::move(out), false, {}};
  }

  Outcome operator()(const wire::Telemetry& telemetry) const {
    const auto records = wire::decode_records(telemetry.records);
    if (!records) {
      return tl::unexpected(Refusal{"bad_record", records.error().message, false});
    }
    Inbound out;
    StepBatch batch{node_, {}, {}};
    for (std::size_t i = 0; i < records->size(); ++i) {
      const wire::Record& record = (*records)[i];
      if (claimed_node(record) != name_hash(node_)) {
        return tl::unexpected(Refusal{
            "node_mismatch",
            fmt::format("record {} says it comes from another node (name hash {:016x}); does the "
                        "rank take its node name from this host's agent?",
                        i, claimed_node(record)),
            false});
      }
      if (const auto* step = std::get_if<wire::StepRecord>(&record)) {
        batch.samples.push_back(to_sample(*step));
        ++out.counts.step_records;
      } else if (const auto* link = std::get_if<wire::LinkRecord>(&record)) {
        batch.links.push_back(to_sample(*link));
        ++out.counts.link_records;
      } else {
        ++out.counts.health_records;
      }
    }
    if (!batch.samples.empty() || !batch.links.empty()) {
      out.event = std::move(batch);
    }
    return out;
  }

  Outcome operator()(wire::Vote& vote) const {
    return Inbound{AgentVote{node_, std::move(vote.job), Epoch(vote.epoch), to_phase(vote.phase),
                             vote.ok, std::move(vote.reason), vote.step, vote.bytes, vote.seconds},
                   false,
                   {}};
  }

 private:
  const std::string& node_;
};

}  // namespace

Outcome read_message(const std::string& node, std::span<const std::span<const std::byte>> frames) {
  if (frames.size() > wire::kMaxFrames) {
    return tl::unexpected(Refusal{"too_many_frames",
                                  fmt::format("a message of more than {} frames", wire::kMaxFrames),
                                  false});
  }
  auto message = wire::decode_to_daemon(frames);
  if (!message) {
    return tl::unexpected(Refusal{"malformed", message.error().message, false});
  }
  return std::visit(Translate(node), *message);
}

}  // namespace tapas::daemon
