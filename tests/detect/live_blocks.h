#pragma once

namespace tapas::daemon::testing {

/// Blocks of memory that operator new gave and delete did not get back.
[[nodiscard]] long live_blocks();

}  // namespace tapas::daemon::testing
