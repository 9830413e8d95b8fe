#include "tools/diff/verdict/result.h"

#include <cstdlib>

#include "tools/common/text.h"
#include "tools/diff/births/sources.h"

namespace convtrace::diff {

std::string_view to_string(Verdict value) {
  constexpr std::string_view kTexts[] = {"same",     "diverged",   "not-comparable",
                                         "findings", "incomplete", "cannot-tell"};
  return kTexts[static_cast<size_t>(value)];
}

std::string more_writes_text(const RootReport& root) {
  return std::string("the ") + (root.more_writes > 0 ? "candidate" : "baseline") + " wrote to it " +
         tools::counted(static_cast<uint64_t>(std::abs(root.more_writes)), "time") +
         " more before " +
         (root.record.phase == format::Phase::kCommunication ? "it was sent to the other ranks"
          : role_of(root.record.slot) == Role::kUnclipped    ? "it was clipped"
                                                             : "the optimizer got it");
}

bool hides_all(double difference) { return !(kGain * difference < 1); }

void add_rewritten(std::vector<RewrittenModule>& all, RewrittenModule one) {
  constexpr size_t kMost = 64;
  const bool known = std::ranges::any_of(all, [&one](const RewrittenModule& other) {
    return other.scope == one.scope && other.phase == one.phase;
  });
  if (!known && all.size() < kMost) all.push_back(std::move(one));
}

}  // namespace convtrace::diff
