#include "agent/probe/load.h"

#include <algorithm>

namespace tapas::agent::probe {

std::optional<double> lesser(std::optional<double> one, std::optional<double> other) {
  return one && other ? std::min(*one, *other) : (one ? one : other);
}

Result<Load> agree(const Limits& one, const Limits& other, std::optional<double> nominal) {
  Load load;
  load.seconds = std::min(one.seconds, other.seconds);
  load.bytes = std::min(one.bytes, other.bytes);
  load.nominal_bytes_per_s = nominal;
  for (const Limits& limits : {one, other}) {
    if (limits.share && !nominal) {
      return fail(ErrorCode::kInvalid,
                  "neither end's interface tells its speed, so a share of it is not known: give "
                  "--rate on both ends");
    }
    load.bytes_per_s =
        lesser(load.bytes_per_s, limits.share ? *limits.share * *nominal : limits.bytes_per_s);
  }
  return load;
}

bool allows(const Limits& limits, std::optional<double> nominal, const Load& load) {
  if (lesser(load.nominal_bytes_per_s, nominal) != load.nominal_bytes_per_s) {
    return false;
  }
  const auto most = agree(limits, limits, load.nominal_bytes_per_s);
  if (!most || load.seconds > most->seconds || load.bytes > most->bytes) {
    return false;
  }
  return !most->bytes_per_s || (load.bytes_per_s && *load.bytes_per_s <= *most->bytes_per_s);
}

}  // namespace tapas::agent::probe
