#include "tools/diff/verdict/result.h"

#include <cstdlib>

#include "tools/common/text.h"
#include "tools/diff/births/sources.h"

namespace convtrace::diff {

std::string_view to_string(Verdict value) {
  switch (value) {
    case Verdict::kSame:
      return "same";
    case Verdict::kDiverged:
      return "diverged";
    case Verdict::kNotComparable:
      return "not-comparable";
    case Verdict::kFindings:
      return "findings";
    case Verdict::kIncomplete:
      return "incomplete";
    case Verdict::kCannotTell:
      return "cannot-tell";
  }
  return "unknown";
}

std::string more_writes_text(const RootReport& root) {
  return std::string("the ") + (root.more_writes > 0 ? "candidate" : "baseline") + " wrote to it " +
         tools::counted(static_cast<uint64_t>(std::abs(root.more_writes)), "time") +
         " more before the optimizer got it";
}

bool hides_all(double difference) { return !(kGain * difference < 1); }

}  // namespace convtrace::diff
