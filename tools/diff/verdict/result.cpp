#include "tools/diff/verdict/result.h"

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

bool hides_all(double difference) { return !(kGain * difference < 1); }

}  // namespace convtrace::diff
