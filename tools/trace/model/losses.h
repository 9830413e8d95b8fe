#pragma once
/// @file losses.h
/// What a trace says that it lacks, by reason.

#include <array>
#include <string>
#include <vector>

#include "format/model/events.h"

namespace convtrace::diff {

class Losses {
 public:
  /// A reason of a newer version is not counted.
  void take(const format::Loss& loss);

  [[nodiscard]] uint64_t of(format::LossReason reason) const {
    return counts_[static_cast<size_t>(reason)];
  }
  /// @return one text for each reason that makes a trace incomplete: "2 records lost (queue full)".
  [[nodiscard]] std::vector<std::string> gaps() const;

 private:
  std::array<uint64_t, format::kEnumCount<format::LossReason>> counts_{};
};

/// Calls visit(reason, count) for each reason that occurs.
template <typename Visit>
void visit_losses(const Losses& losses, Visit visit) {
  for (size_t i = 0; i < format::kEnumCount<format::LossReason>; ++i) {
    const auto reason = static_cast<format::LossReason>(i);
    if (losses.of(reason) != 0) visit(reason, losses.of(reason));
  }
}

}  // namespace convtrace::diff
