#pragma once

#include "daemon/core/event.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tapas::daemon {

/// Collects the actions of one apply(), stamps rows with the wall clock and gathers the journal
/// lines nobody waits for into one write.
class Outbox {
 public:
  /// `last_write` numbers the writes that are waited for, over the whole life of the core.
  Outbox(const Now& now, std::uint64_t& last_write) : now_(now), last_write_(last_write) {}

  [[nodiscard]] const Now& now() const { return now_; }

  template <typename Message>
  void send(const std::string& node, Message message) {
    actions_.emplace_back(SendToAgent{node, std::move(message)});
  }
  void add(Action action) { actions_.push_back(std::move(action)); }

  void event(std::string job, std::string kind, std::string node, std::string sentence,
             std::vector<Evidence> evidence = {}) {
    journal(EventRow{std::move(job), std::move(kind), std::move(node), std::move(sentence),
                     std::move(evidence), 0});
  }
  /// Nobody waits for the row.
  void journal(StoreRow row) {
    stamp(row);
    journal_.push_back(std::move(row));
  }
  /// Returns the number that StoreDone will carry once the rows are durable.
  [[nodiscard]] std::uint64_t store(std::vector<StoreRow> rows) {
    for (StoreRow& row : rows) {
      stamp(row);
    }
    // Lines written before stay before: a reader of the journal sees causes first.
    flush_journal();
    actions_.emplace_back(StoreWrite{++last_write_, std::move(rows)});
    return last_write_;
  }

  [[nodiscard]] std::vector<Action> take() {
    flush_journal();
    return std::exchange(actions_, {});
  }

 private:
  /// A row that is written again (a decision that learnt its outcome) keeps its first time.
  void stamp(StoreRow& row) const {
    std::visit(
        [this](auto& typed) {
          if (typed.wall_ns == 0) {
            typed.wall_ns = now_.wall_ns;
          }
        },
        row);
  }
  void flush_journal() {
    if (!journal_.empty()) {
      actions_.emplace_back(StoreWrite{0, std::exchange(journal_, {})});
    }
  }

  Now now_;
  std::uint64_t& last_write_;
  std::vector<Action> actions_;
  std::vector<StoreRow> journal_;
};

}  // namespace tapas::daemon
