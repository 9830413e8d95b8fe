#pragma once
/// @file empty_trace_reasons.h
/// Reasons why a trace lacks what its user asked for, or was not made: no trace is empty without a
/// reason. Reports about patterns that match nothing are made elsewhere (name_filter.h,
/// rule_book.h).
///
/// Threads:  plain functions.

#include <string>
#include <vector>

#include "format/settings/rules.h"
#include "format/settings/settings.h"
#include "interposer/core/control/output_name.h"
#include "interposer/core/control/step_control.h"

namespace convtrace::engine {

/// @param has_context  whether this process made a CUDA context.
/// @return a line for each reason why no values, or no kernels, can be in the trace.
[[nodiscard]] std::vector<std::string> empty_trace_reasons(const StepsSeen& steps,
                                                           bool has_context);

/// Why a process of another rank is not traced; see State::disable.
inline constexpr const char* kUnwantedRank = "rank not wanted";

/// @param what  the setting with the ranks: "CONVTRACE_RANKS", or a rule.
/// @return whether it includes this rank. Leaving ranks out is the purpose of the setting, so it is
/// not reported; ranks of which the job has none are a mistake, which rank 0 reports for all.
[[nodiscard]] bool is_rank_wanted(const std::string& what, const settings::StepSet& ranks,
                                  const Rank& rank);

/// @return the rules that apply to this rank.
[[nodiscard]] std::vector<settings::Rule> rules_of_rank(const std::vector<settings::Rule>& rules,
                                                        const Rank& rank);

/// @return on rank 0, a line for each rule whose ranks do not exist in the job; on other ranks
/// nothing.
[[nodiscard]] std::vector<std::string> rules_of_no_rank(const std::vector<settings::Rule>& rules,
                                                        const Rank& rank);

}  // namespace convtrace::engine
