#include <string>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/report/report_parts.h"

namespace convtrace::diff {
namespace {

using tools::count_text;
using tools::escape_text;

std::string agreement_text(const DiffResult& result) {
  return is_identical(result) ? "identical" : "the same but for rounding";
}

std::string unknown_text(const DiffResult& result) {
  const uint64_t hashes = result.counts[static_cast<size_t>(Class::kBitDifference)];
  const uint64_t averages = result.allowance.averages_only;
  std::string text;
  if (hashes != 0) {
    text += "; of " + tools::counted(hashes, "value") +
            (result.bits_known ? " only the hash is known, and it differs"
                               : " only hashes are known, which differ or are of two versions") +
            ": a fault of any size would look the same";
  }
  if (averages != 0) {
    text += "; of " + tools::counted(averages, "value") +
            (result.wholes ? " in pieces, or with other dimensions, only sums and extrema are known"
                           : " that differ only averages are known (raw values of small tensors "
                             "were left out, or dimensions are in another order)") +
            ": elements that changed places would look the same";
  }
  return text;
}

std::string explained_text(const DiffResult& result) {
  const std::string text =
      result.noise_given ? "rounding and the --noise runs explain" : "rounding explains";
  return text + (result.allowance.by_tolerance ? ", or --tol allows" : "");
}

/// A root module has no name, so its class identifies it.
std::string root_place_text(const RootReport& root, bool with_rank) {
  const RecordReport& record = root.record;
  std::string text = when_text(root, with_rank);
  if (root.in_no_module) return text;
  text += ", " + scope_text(record.scope);
  const std::string& kind = root.code.module_class;
  if (record.scope.empty() && !kind.empty()) text += " (" + escape_text(kind) + ')';
  return text + " (call " + std::to_string(record.call) + ')';
}

std::string holder_text(const RootReport& root) {
  if (!root.holder) return "";
  return ", held by rank " + std::to_string(root.holder->rank) + " of the " +
         (root.holder->in_cand ? "candidate" : "baseline");
}

/// @return the call that made the gradient, and the one that received it.
std::string maker_headline(const RootReport& root, bool with_rank) {
  const MadeBy& made = *root.made_by;
  const Maker& receiver = made.receiver;
  std::string text = when_text(root.record, with_rank) + ", ";
  if (made.makers.size() == 1 && !made.makers.front().own_code) {
    const Maker& maker = made.makers.front();
    text += (made.is_likely() ? "likely " : "") + scope_text(maker.scope) + " (call " +
            std::to_string(maker.call) + "): ";
    if (!maker.op.empty()) text += "op " + escape_text(maker.op) + (maker.slot.empty() ? "" : ", ");
    text += escape_text(maker.slot.empty() && maker.op.empty() ? "its backward" : maker.slot);
  } else {
    text += (made.is_likely() ? "likely " : "") + escape_text(makers_text(made));
  }
  if (made.how == HowKnown::kOverwrote)
    return text + ", which " + escape_text(maker_text(receiver)) + " still needed" +
           holder_text(root);
  return text + ", received by " + escape_text(maker_text(receiver)) + " (call " +
         std::to_string(receiver.call) + ") as " + escape_text(receiver.slot) + holder_text(root);
}

/// Several wrong updates are counted, since they share the optimizer and not the first one's
/// module.
std::string root_headline(const RootReport& root, bool with_rank) {
  if (root.made_by) return maker_headline(root, with_rank);
  const auto& [wrong, all] = root.updates;
  if (wrong < 2)
    return root_place_text(root, with_rank) + ": " + object_text(root.record) +
           (root.known_as.empty() ? "" : " (" + escape_text(root.known_as) + ')') +
           holder_text(root);
  return when_text(root.record, with_rank) + ": updates of " + count_text(wrong) + " of " +
         tools::counted(all, "parameter") + ", first " + scope_text(root.record.scope) + ", " +
         object_text(root.record) + holder_text(root);
}

}  // namespace

std::string maker_line(const RootReport& root) {
  if (!root.made_by) return "";
  const MadeBy& made = *root.made_by;
  return escape_text((made.is_likely() ? "likely " : "") + makers_text(made) + ": " +
                     how_text(made));
}

std::string headline(const DiffResult& result) {
  switch (result.verdict) {
    case Verdict::kDiverged:
      return "DIVERGED at " + root_headline(*result.root, result.ranks.size() > 1);
    case Verdict::kNotComparable: return "NOT COMPARABLE: " + result.why_not_comparable;
    case Verdict::kFindings:
      return "SAME VALUES (" + agreement_text(result) + "), but " +
             tools::counted(result.base_findings.errors + result.cand_findings.errors,
                            "error-level finding");
    case Verdict::kIncomplete:
      return "INCOMPLETE: what was compared is " + agreement_text(result) +
             ", but not all of both runs was";
    case Verdict::kCannotTell:
      return "CANNOT TELL: rounding has grown to the size of the values in step " +
             std::to_string(result.hidden->step) +
             (result.hidden->judged == 0
                  ? ", the first of both runs"
                  : "; what was compared before is " + agreement_text(result));
    case Verdict::kSame: break;
  }
  const uint64_t alike = result.counts[static_cast<size_t>(Class::kIdentical)] +
                         result.counts[static_cast<size_t>(Class::kOtherForm)];
  return is_identical(result)
             ? "IDENTICAL: every compared value has the same bits" + other_form_text(result) +
                   (alike == result.values ? ""
                    : result.waived != 0   ? ", but for what --ignore names"
                                           : ", but for memory that was yet to be written")
             : "ROUNDING: no value differs by more than " + explained_text(result) +
                   unknown_text(result);
}

}  // namespace convtrace::diff
