#pragma once
/// @file report_parts.h
/// The sentences and tables that the text, HTML and JUnit reports have in common.
///
/// Every text returned here is already safe for a terminal (tools/common/escape.h); HTML and XML
/// escape once more for markup.

#include <string>
#include <vector>

#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// "blocks.0.attn", escaped, or "root module".
[[nodiscard]] std::string scope_text(const std::string& scope);
/// "step 3, forward, h.0.mlp (call 1)", with the rank in front when there are several.
[[nodiscard]] std::string place_text(const RecordReport& record, bool with_rank);
/// "forward, h.0.mlp": the place without its step, and without its call if that is the only one.
[[nodiscard]] std::string module_text(const RecordReport& record);
/// "op demo::gelu, output:0", "kernel gemm, arg:3", or the slot alone.
[[nodiscard]] std::string object_text(const RecordReport& record);
/// "f32 [4, 64] on cpu"; both sides when they are not alike.
[[nodiscard]] std::string type_text(const RecordReport& record);

struct StatRow {
  std::string name, base, cand;
  bool deciding = false;  ///< the field with the largest difference
};
/// Both statistics side by side, hash last.
[[nodiscard]] std::vector<StatRow> stat_rows(const RecordReport& record);

/// What happened at the root, one sentence.
[[nodiscard]] std::string root_sentence(const RootReport& root);
/// Step and phase of the root, and what that means; "" without a root.
[[nodiscard]] std::string phase_text(const DiffResult& result);
/// How the elements of two stored values differ, a line each; none where they were not stored.
[[nodiscard]] std::vector<std::string> element_lines(const RecordReport& record);
/// Loss and norm of all gradients of the steps around the root, in its rank.
struct StepRow {
  uint32_t rank = 0, step = 0;
  std::string base_loss, cand_loss, base_norm, cand_norm;
  Class worst = Class::kIdentical;
};
[[nodiscard]] std::vector<StepRow> step_rows(const DiffResult& result, uint32_t around);
/// Ranks that were replicas of each other and part, a line each.
[[nodiscard]] std::vector<std::string> replica_lines(const DiffResult& result);
/// The first few of alias_patterns, in words.
[[nodiscard]] std::vector<std::string> alias_lines(const DiffResult& result);
/// How the two records were found to be of one value.
[[nodiscard]] std::string match_text(const RecordReport& record);
/// Of modules that have another name in the candidate; "" if none has.
[[nodiscard]] std::string renamed_text(const DiffResult& result);
/// "they differ by 5 % of their size (rms difference), tolerance used 0.1 % ...; 0.05 would have
/// passed"; "" if no number says it.
[[nodiscard]] std::string tolerance_text(const RecordReport& record);
/// "the candidate is 8 times the baseline, but for 0.1 %": by the sketches; "" if it is no
/// multiple.
[[nodiscard]] std::string factor_text(const RecordReport& record);
/// What agrees before the root: "12 values matched; all earlier steps are the same bit by bit".
/// @pre there is a root.
[[nodiscard]] std::string before_text(const DiffResult& result);
/// What one run alone recorded before the root; empty if nothing.
[[nodiscard]] std::string one_sided_text(const RootReport& root);
/// That the root is no larger than rounding, or not by much, and what run would tell; or "".
/// @pre there is a root.
[[nodiscard]] std::string rounding_hint(const DiffResult& result);
/// Of several ranks: how many part, and where each does, the first first; nothing for one rank.
[[nodiscard]] std::vector<std::string> rank_lines(const DiffResult& result);
/// Where rounding begins, what explains it, what could hide in it; none where nothing differs, or
/// more than rounding does.
[[nodiscard]] std::vector<std::string> rounding_lines(const DiffResult& result);
/// The smallest fault that shows beside the rounding of the types at hand.
[[nodiscard]] std::string hidden_text(const DiffResult& result);
/// @return whether rounding has grown until differences are as large as the values.
[[nodiscard]] bool hides_any_fault(const DiffResult& result);
/// Modules, ops and inputs of one run alone, a line each.
[[nodiscard]] std::vector<std::string> one_sided_lines(const DiffResult& result);
/// Inputs of another type or shape, of which the same is made: how many, empty if none; and a line
/// for each slot and pair of forms.
[[nodiscard]] std::string other_form_text(const DiffResult& result);
[[nodiscard]] std::vector<std::string> other_form_lines(const DiffResult& result);
/// What the user asked to leave out; empty if nothing differed.
[[nodiscard]] std::string waived_text(const DiffResult& result);
/// Differences that what a value was made of does not explain, a line each, the first first.
[[nodiscard]] std::vector<std::string> birth_lines(const DiffResult& result);
/// Whether all compared values have the same bits, but for inputs of which the same is made.
[[nodiscard]] bool is_identical(const DiffResult& result);
/// What grew of rounding before the root, or before the end; empty if nothing did.
[[nodiscard]] std::string carried_text(const DiffResult& result);
/// The values whose difference is shown: the root's, or for changed-between the first that
/// suffered.
[[nodiscard]] const RecordReport& shown_difference(const RootReport& root);

/// "freed-under-output (error) in the candidate, step 0, h.0.mlp, op demo::gelu, output:0"
[[nodiscard]] std::string finding_title(const FindingReport& finding, bool in_cand);

/// The answer in one line.
[[nodiscard]] std::string headline(const DiffResult& result);
/// What to do where the runs could not be compared; none if they could.
[[nodiscard]] std::vector<std::string> advice(const DiffResult& result);
/// Which step of the candidate is which of the baseline, and why; "" where they are numbered alike.
[[nodiscard]] std::string step_offset_text(const StepOffset& offset);
/// "1,200 values and 300 launches in 3 steps: 1,199 identical, 1 diverged"
[[nodiscard]] std::string compared_text(const DiffResult& result);

}  // namespace convtrace::diff
