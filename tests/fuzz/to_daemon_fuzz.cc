#include "frames.h"
#include "wire/record_codec.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tapas::fuzz::check_frames(data, size,
                            [](auto frames) { return tapas::wire::decode_to_daemon(frames); });
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  wire::Hello hello{"n017", 0xFEDC, 3, {}};
  hello.attachments = {{"gpt3",
                        0xABCD,
                        41,
                        42,
                        {{136, std::string(32, '0'), 4711}, {137, std::string(32, 'f'), 4712}}},
                       {"idle", 1, 0, 0, {}}};
  wire::Telemetry telemetry;
  wire::append_record(wire::StepRecord{}, telemetry.records);
  return {join(wire::encode(wire::ToDaemon{hello}, 1)),
          join(wire::encode(wire::ToDaemon{wire::Heartbeat{1, 2, 3}}, 2)),
          join(wire::encode(wire::ToDaemon{wire::Findings{{{"eth0", "no_carrier", "cable"}}}}, 5)),
          join(wire::encode(wire::ToDaemon{telemetry}, 3)),
          join(wire::encode(wire::ToDaemon{wire::Vote{"gpt3", 42, wire::Phase::kArmed, false,
                                                      "\xC3\xA9 \"why\"\n", 7, 8, 0.125}},
                            4))};
}
