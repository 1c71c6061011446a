#include "daemon/supervision.h"

#include <fmt/format.h>
#include <systemd/sd-daemon.h>

#include <ctime>

namespace tapas::daemon {

Supervision::Supervision() {
  std::uint64_t timeout_us = 0;
  if (sd_watchdog_enabled(0, &timeout_us) > 0) {
    interval_ = std::chrono::microseconds(timeout_us / 3);
  }
}

void Supervision::ready() { sd_notify(0, "READY=1"); }

void Supervision::reloading() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  sd_notify(0, fmt::format("RELOADING=1\nMONOTONIC_USEC={}",
                           std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000)
                   .c_str());
}

void Supervision::stopping() { sd_notify(0, "STOPPING=1"); }

void Supervision::status(const std::string& text) {
  if (text != status_) {
    status_ = text;
    sd_notify(0, ("STATUS=" + text).c_str());
  }
}

void Supervision::beat(std::uint64_t net_beats, std::uint64_t store_beats, Clock::time_point now) {
  if (interval_ == Clock::duration::zero() || now - last_ < interval_ || net_beats == net_beats_ ||
      store_beats == store_beats_) {
    return;
  }
  net_beats_ = net_beats;
  store_beats_ = store_beats;
  last_ = now;
  sd_notify(0, "WATCHDOG=1");
}

}  // namespace tapas::daemon
