// Holds docs/protocol.md to the code: record layouts byte by byte, and every key of every message.
#include "base/json/json.h"
#include "wire/message_codec.h"
#include "wire/record.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace tapas::wire {
namespace {

struct Field {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  bool operator==(const Field&) const = default;
};
using Layout = std::map<std::string, Field>;
/// Heading -> the cells of its tables, one row per entry, heads and rules left out.
using Tables = std::map<std::string, std::vector<std::vector<std::string>>>;

std::string trimmed(std::string text) {
  const auto strip = [](char c) { return c == ' ' || c == '`'; };
  while (!text.empty() && strip(text.back())) {
    text.pop_back();
  }
  while (!text.empty() && strip(text.front())) {
    text.erase(0, 1);
  }
  return text;
}

Tables read_tables() {
  std::ifstream file(TAPAS_SOURCE_DIR "/docs/protocol.md");
  EXPECT_TRUE(file) << "docs/protocol.md is missing";
  Tables tables;
  std::string heading;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) {
      heading = line.substr(line.find(' ') + 1);
    } else if (line.starts_with("| ") && !line.starts_with("| key") &&
               !line.starts_with("| offset")) {
      std::vector<std::string> cells;
      for (std::size_t at = 1; at < line.size();) {
        const std::size_t end = line.find('|', at);
        cells.push_back(trimmed(line.substr(at, end - at)));
        at = end == std::string::npos ? line.size() : end + 1;
      }
      tables[heading].push_back(cells);
    }
  }
  return tables;
}

Layout documented(const std::string& heading) {
  Layout layout;
  const Tables tables = read_tables();
  for (const auto& row : tables.at(heading)) {
    layout[row.at(2)] = {std::stoul(row.at(0)), std::stoul(row.at(1))};
  }
  return layout;
}

#define FIELD(type, name)                               \
  {                                                     \
#name, { offsetof(type, name), sizeof(type::name) } \
  }

void expect_covers_record(const Layout& layout) {
  std::vector<int> covered(kRecordBytes, 0);
  for (const auto& [name, field] : layout) {
    for (std::size_t i = field.offset; i < field.offset + field.bytes && i < kRecordBytes; ++i) {
      ++covered[i];
    }
  }
  EXPECT_EQ(covered, std::vector<int>(kRecordBytes, 1)) << "each byte belongs to one field";
}

TEST(ProtocolDocument, GivesTheLayoutOfStepRecords) {
  using R = StepRecord;
  const Layout code = {FIELD(R, kind),
                       FIELD(R, version),
                       FIELD(R, flags),
                       FIELD(R, job),
                       FIELD(R, session),
                       FIELD(R, node),
                       FIELD(R, epoch),
                       FIELD(R, step),
                       FIELD(R, end_time_ns),
                       FIELD(R, rank),
                       FIELD(R, microbatches),
                       FIELD(R, device),
                       FIELD(R, wall_us),
                       FIELD(R, forward_us),
                       FIELD(R, backward_us),
                       FIELD(R, optimizer_us),
                       FIELD(R, tp_collective_us),
                       FIELD(R, pp_wait_us),
                       FIELD(R, pp_transfer_us),
                       FIELD(R, dp_collective_us),
                       FIELD(R, bytes_moved),
                       FIELD(R, work_tokens),
                       FIELD(R, input_wait_us)};
  EXPECT_EQ(documented("StepRecord (kind 1)"), code);
  expect_covers_record(code);
}

TEST(ProtocolDocument, GivesTheLayoutOfLinkRecords) {
  using R = LinkRecord;
  const Layout code = {FIELD(R, kind),
                       FIELD(R, version),
                       FIELD(R, flags),
                       FIELD(R, job),
                       FIELD(R, session),
                       FIELD(R, source_node),
                       FIELD(R, destination_node),
                       FIELD(R, end_time_ns),
                       FIELD(R, bytes),
                       FIELD(R, transfer_us),
                       FIELD(R, rank),
                       FIELD(R, peer_rank),
                       FIELD(R, transfers),
                       FIELD(R, errors),
                       FIELD(R, retransmits),
                       FIELD(R, reserved0),
                       FIELD(R, device),
                       FIELD(R, reserved)};
  EXPECT_EQ(documented("LinkRecord (kind 2)"), code);
  expect_covers_record(code);
}

TEST(ProtocolDocument, GivesTheLayoutOfHealthRecords) {
  using R = HealthRecord;
  const Layout code = {FIELD(R, kind),
                       FIELD(R, version),
                       FIELD(R, flags),
                       FIELD(R, job),
                       FIELD(R, session),
                       FIELD(R, node),
                       FIELD(R, time_ns),
                       FIELD(R, rank),
                       FIELD(R, sm_clock_mhz),
                       FIELD(R, memory_clock_mhz),
                       FIELD(R, temperature_mc),
                       FIELD(R, power_mw),
                       FIELD(R, pcie_generation),
                       FIELD(R, throttle_reasons),
                       FIELD(R, ecc_corrected),
                       FIELD(R, ecc_uncorrected),
                       FIELD(R, pcie_width),
                       FIELD(R, fast_links_active),
                       FIELD(R, fast_link_errors),
                       FIELD(R, nic_speed_mbit),
                       FIELD(R, nic_errors),
                       FIELD(R, device)};
  EXPECT_EQ(documented("HealthRecord (kind 3)"), code);
  expect_covers_record(code);
}

using Keys = std::set<std::string>;

Keys keys_of(const json::Value& object) {
  Keys keys;
  for (const auto& item : object.items()) {
    keys.insert(item.key());
  }
  return keys;
}

Keys documented_keys(const std::string& heading) {
  Keys keys;
  const Tables tables = read_tables();
  for (const auto& row : tables.at(heading)) {
    keys.insert(row.at(0));
  }
  return keys;
}

json::Value parsed(const std::vector<std::byte>& payload) {
  return json::parse({reinterpret_cast<const char*>(payload.data()), payload.size()}).value();
}

TEST(ProtocolDocument, ListsTheKeysOfEveryMessage) {
  Hello hello;
  hello.attachments = {{"j", 1, 0, 0, {}}};
  const std::map<std::string, Frames> to_daemon = {
      {"heartbeat", encode(ToDaemon{Heartbeat{}}, 1)},
      {"vote", encode(ToDaemon{Vote{}}, 1)},
  };
  const std::map<std::string, Frames> to_agent = {
      {"welcome", encode(ToAgent{Welcome{}}, 1)},
      {"reject", encode(ToAgent{Reject{}}, 1)},
      {"heartbeat_ack", encode(ToAgent{HeartbeatAck{}}, 1)},
      {"switch", encode(ToAgent{SwitchCommand{}}, 1)},
  };
  for (const auto& messages : {to_daemon, to_agent}) {
    for (const auto& [name, frames] : messages) {
      EXPECT_EQ(documented_keys(name), keys_of(parsed(frames.payload))) << name;
      EXPECT_EQ(documented_keys("Transport"), keys_of(json::parse(frames.header).value())) << name;
    }
  }
  // The section on hello has two tables: its own and the attachment's.
  const json::Value body = parsed(encode(ToDaemon{hello}, 1).payload);
  Keys both = keys_of(body);
  both.merge(keys_of(body["attachments"][0]));
  EXPECT_EQ(documented_keys("hello"), both);
  const json::Value list = parsed(encode(ToDaemon{Findings{{{"d", "k", "t"}}}}, 1).payload);
  Keys listed = keys_of(list);
  listed.merge(keys_of(list["findings"][0]));
  EXPECT_EQ(documented_keys("findings"), listed);
  // A plan's keys are in its header.
  Keys plan = documented_keys("plan");
  plan.merge(documented_keys("Transport"));
  EXPECT_EQ(plan, keys_of(json::parse(encode(ToAgent{PlanChunk{}}, 1).header).value()));
}

}  // namespace
}  // namespace tapas::wire
