#include "tools/diff/verdict/result.h"

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
  }
  return "unknown";
}

}  // namespace convtrace::diff
