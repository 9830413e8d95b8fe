#include "tools/trace/model/losses.h"

#include "format/model/loss_class.h"
#include "tools/common/text.h"

namespace convtrace::diff {

void Losses::take(const format::Loss& loss) {
  const auto index = static_cast<size_t>(loss.reason);
  if (index < counts_.size()) counts_[index] += loss.count;
}

std::vector<std::string> Losses::gaps() const {
  std::vector<std::string> texts;
  visit_losses(*this, [&](format::LossReason reason, uint64_t count) {
    if (is_gap(format::class_of(reason)))
      texts.push_back(tools::counted(count, "record") + " lost (" + std::string(to_string(reason)) +
                      ')');
  });
  return texts;
}

}  // namespace convtrace::diff
