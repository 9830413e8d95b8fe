#pragma once
/// @file empty_trace_reasons.h
/// Why a trace lacks what its user asked for, or is not made at all: an empty trace is never
/// without a reason. What patterns matched is said elsewhere (name_filter.h, rule_book.h).
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

/// @param what  is limited to these ranks: "CONVTRACE_RANKS", or a rule.
/// @return whether this rank is meant. Not to be is what the setting is for; if it names no rank of
/// the whole job that is a mistake, and rank 0 says so for all.
[[nodiscard]] bool is_rank_wanted(const std::string& what, const settings::StepSet& ranks,
                                  const Rank& rank);

/// @return the rules that are meant for this rank.
[[nodiscard]] std::vector<settings::Rule> rules_of_rank(const std::vector<settings::Rule>& rules,
                                                        const Rank& rank);

/// @return what to say of rules for ranks that the whole job does not have; nothing on other ranks
/// than 0.
[[nodiscard]] std::vector<std::string> rules_of_no_rank(const std::vector<settings::Rule>& rules,
                                                        const Rank& rank);

}  // namespace convtrace::engine
