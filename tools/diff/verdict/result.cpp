#include "tools/diff/verdict/result.h"

#include <algorithm>

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

double smallest_fault(const Allowance& allowance, double grown) {
  return std::max(allowance.value, kGain * grown);
}

}  // namespace convtrace::diff
