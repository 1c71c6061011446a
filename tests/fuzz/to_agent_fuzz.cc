#include "frames.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tapas::fuzz::check_frames(data, size,
                            [](auto frames) { return tapas::wire::decode_to_agent(frames); });
  return 0;
}

std::vector<std::string> tapas::fuzz::seeds() {
  return {
      join(wire::encode(wire::ToAgent{wire::Welcome{9, 0.5}}, 1)),
      join(wire::encode(wire::ToAgent{wire::Reject{"unknown key", 30.0}}, 2)),
      join(wire::encode(wire::ToAgent{wire::HeartbeatAck{9}}, 3)),
      join(wire::encode(wire::ToAgent{wire::PlanChunk{"gpt3", 9, 42, true, 1, 3, "{\"a\":1}"}}, 4)),
      join(wire::encode(wire::ToAgent{wire::SwitchCommand{wire::SwitchOrder::kAbort, "gpt3", 9, 41,
                                                          42, 100, "rank 3 left"}},
                        5))};
}
