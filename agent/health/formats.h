#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// What single sysfs and procfs files say, old kernels included. Empty when the text is none of the
/// known forms: an unknown value is never a zero. Any thread.
namespace tapas::agent::health {

/// Decimal digits only, or hexadecimal ones after "0x".
[[nodiscard]] std::optional<std::uint64_t> parse_count(std::string_view text);

/// PCIe transfer rate in GT/s: "16.0 GT/s PCIe"; older kernels write "8 GT/s".
[[nodiscard]] std::optional<double> parse_gt_per_s(std::string_view text);

/// PCIe lanes. A device that does not answer reads as all ones, which is 63 lanes; 0 and 255 are
/// the kernel's words for unknown.
[[nodiscard]] std::optional<unsigned> parse_lanes(std::string_view text);

/// "400 Gb/sec (4X NDR)"; "2.5 Gb/sec (1X SDR)"; the name may be missing.
struct IbRate {
  double bits_per_s = 0;
  unsigned lanes = 0;
};
[[nodiscard]] std::optional<IbRate> parse_ib_rate(std::string_view text);

/// The word of "4: ACTIVE".
[[nodiscard]] std::optional<std::string> parse_ib_state(std::string_view text);

/// Bits per second from a network interface's `speed` in Mb/s. -1, and what it became as an
/// unsigned number of 16 or 32 bits, is unknown.
[[nodiscard]] std::optional<double> parse_net_speed(std::string_view text);

/// One line of /proc/pressure, by its first word: "some avg10=1.50 avg60=... total=123".
struct PressureLine {
  double avg10_ratio = 0;  ///< Of the last ten seconds, 0 to 1.
  std::uint64_t total_us = 0;
};
[[nodiscard]] std::optional<PressureLine> parse_pressure(std::string_view text,
                                                         std::string_view line);

/// "0000:17:00.0"; domains may be longer.
[[nodiscard]] bool is_pci_address(std::string_view name);

}  // namespace tapas::agent::health
