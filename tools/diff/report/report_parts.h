#pragma once
/// @file report_parts.h
/// Sentences and tables that the text, HTML and JUnit reports share.
///
/// Every text returned here is escaped for a terminal (tools/common/escape.h); HTML and XML also
/// escape markup.

#include <string>
#include <vector>

#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// "blocks.0.attn", escaped, or "root module".
[[nodiscard]] std::string scope_text(const std::string& scope);
/// "step 3, forward", preceded by the rank if `with_rank`.
[[nodiscard]] std::string when_text(const RecordReport& record, bool with_rank);
/// The same for a root, whose phase may be "after backward".
[[nodiscard]] std::string when_text(const RootReport& root, bool with_rank);
/// "step 3, forward, h.0.mlp (call 1)", preceded by the rank if `with_rank`.
[[nodiscard]] std::string place_text(const RecordReport& record, bool with_rank);
/// "forward, h.0.mlp": the place without its step, and without its call if that is the only one.
[[nodiscard]] std::string module_text(const RecordReport& record);
/// "op demo::gelu, output:0", "kernel gemm, arg:3", or the slot alone.
[[nodiscard]] std::string object_text(const RecordReport& record);
/// "f32 [4, 64] on cpu"; both sides if they differ.
[[nodiscard]] std::string type_text(const RecordReport& record);

struct StatRow {
  std::string name, base, cand;
  bool deciding = false;  ///< the field with the largest difference
};
/// Both statistics side by side, the hash last.
[[nodiscard]] std::vector<StatRow> stat_rows(const RecordReport& record);

/// @return the first `most` lines, and how many more there are.
[[nodiscard]] std::vector<std::string> shortened(std::vector<std::string> lines, size_t most);
/// One sentence about the root.
[[nodiscard]] std::string root_sentence(const RootReport& root);
/// The call whose backward made the root, and the evidence for it; "" if the root is no such
/// gradient.
[[nodiscard]] std::string maker_line(const RootReport& root);
/// Step and phase of the root, with an explanation; "" without a root.
[[nodiscard]] std::string phase_text(const DiffResult& result);
/// The differences of the elements of two stored values, a line each; empty if they were not
/// stored.
[[nodiscard]] std::vector<std::string> element_lines(const RecordReport& record);
/// Loss and gradient norm of a step near the root, in its rank.
struct StepRow {
  uint32_t rank = 0, step = 0;
  std::string base_loss, cand_loss, base_norm, cand_norm;
  Class worst = Class::kIdentical;
};
[[nodiscard]] std::vector<StepRow> step_rows(const DiffResult& result, uint32_t around);
/// Ranks that were replicas of each other and stopped agreeing, a line each.
[[nodiscard]] std::vector<std::string> replica_lines(const DiffResult& result);
/// The first few alias_patterns, in words.
[[nodiscard]] std::vector<std::string> alias_lines(const DiffResult& result);
/// The way in which the two records were matched.
[[nodiscard]] std::string match_text(const RecordReport& record);
/// The modules that have another name in the candidate; "" if none has.
[[nodiscard]] std::string renamed_text(const DiffResult& result);
/// @return the precision of a difference's number: "exact", "estimate" or "at least".
[[nodiscard]] std::string_view precision_of(const Comparison& comparison);
/// "about 5 %", for a measured difference.
[[nodiscard]] std::string difference_text(const Comparison& comparison);
/// "they differ by about 5 % of their size (rms difference), tolerance used 0.1 % ...; 0.05 would
/// have passed"; "" if the difference has no size.
[[nodiscard]] std::string tolerance_text(const RecordReport& record);
/// "the candidate is about 8 times the baseline, but for about 0.1 %", from the sketches; "" if it
/// is no multiple.
[[nodiscard]] std::string factor_text(const RecordReport& record);
/// The same for the value shown at a root; scalars add ", in all 8 calls of the step".
[[nodiscard]] std::string factor_text(const RootReport& root);
/// The agreement before the root: "12 values matched; the 8 of earlier steps are the same bit by
/// bit".
/// @pre there is a root.
[[nodiscard]] std::string before_text(const DiffResult& result);
/// The values before the root that only one run recorded; "" if there are none.
[[nodiscard]] std::string one_sided_text(const RootReport& root);
/// Says that the root is no larger than rounding, or not much larger, and which run would show
/// more; "" otherwise.
/// @pre there is a root.
[[nodiscard]] std::string rounding_hint(const DiffResult& result);
/// For several ranks: how many diverge and where each does, the earliest first; empty for one rank.
[[nodiscard]] std::vector<std::string> rank_lines(const DiffResult& result);
/// Where rounding begins, what explains it, and what fault it could hide; empty if nothing differs,
/// or if the difference is larger than rounding.
[[nodiscard]] std::vector<std::string> rounding_lines(const DiffResult& result);
/// The smallest fault that would show beside the rounding of the types in use.
[[nodiscard]] std::string hidden_text(const DiffResult& result);
/// The values that could not be read, a line for each reason.
[[nodiscard]] std::vector<std::string> unread_lines(const DiffResult& result);
/// Modules in which the runs execute other ops, a line each.
[[nodiscard]] std::vector<std::string> rewritten_lines(const DiffResult& result);

/// Modules, ops and inputs that only one run has, a line each.
[[nodiscard]] std::vector<std::string> one_sided_lines(const DiffResult& result);
/// The combined ranks, and values that could not be combined; none if ranks are compared one by
/// one.
[[nodiscard]] std::vector<std::string> whole_lines(const DiffResult& result);
/// Steps in which one run makes more backward passes, and what of them was not compared; "" if there
/// are none.
[[nodiscard]] std::string passes_text(const DiffResult& result);
/// Inputs that have another type or shape while the outputs agree: their number, "" if there are
/// none; and a line for each slot and pair of forms.
[[nodiscard]] std::string other_form_text(const DiffResult& result);
[[nodiscard]] std::vector<std::string> other_form_lines(const DiffResult& result);
/// The values left out by --ignore; "" if none of them differed.
[[nodiscard]] std::string waived_text(const DiffResult& result);
/// Differences that the sources of their values do not explain, a line for each place with the
/// first step, the earliest first.
[[nodiscard]] std::vector<std::string> birth_lines(const DiffResult& result);
/// @return whether all compared values have the same bits, apart from inputs in other forms.
[[nodiscard]] bool is_identical(const DiffResult& result);
/// The growth of rounding before the root, or before the end; "" if it did not grow.
[[nodiscard]] std::string carried_text(const DiffResult& result);
/// The value whose difference is shown: the root's, or for changed-between the first value that it
/// affected.
[[nodiscard]] const RecordReport& shown_difference(const RootReport& root);

/// "freed-under-output (error) in the candidate, step 0, h.0.mlp, op demo::gelu, output:0"
[[nodiscard]] std::string finding_title(const FindingReport& finding, bool in_cand);
/// @pre the cause of the root is a finding
[[nodiscard]] std::string title_of_cause(const DiffResult& result);

/// @return the probable cause and its evidence: "LayerNorm eps: 1e-05 | 1e-06 in h.*.ln (the first
/// value that differs is of this module)"; "" if no rule applies, or the cause is a finding.
[[nodiscard]] std::string cause_text(const DiffResult& result);
/// The verdict in one line.
[[nodiscard]] std::string headline(const DiffResult& result);
/// @return advice for runs that could not be compared; empty if they could.
[[nodiscard]] std::vector<std::string> advice(const DiffResult& result);
/// The offset of the candidate's step numbers, and its reason; "" if there is none.
[[nodiscard]] std::string step_offset_text(const StepOffset& offset);
/// "1,200 values and 300 launches in 3 steps: 1,199 identical, 1 diverged"
[[nodiscard]] std::string compared_text(const DiffResult& result);

}  // namespace convtrace::diff
