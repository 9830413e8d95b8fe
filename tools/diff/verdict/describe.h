#pragma once
/// @file describe.h
/// Turns records of a step, which borrow data and use ids, into reports that own their texts.

#include "tools/diff/model/record.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

[[nodiscard]] SideReport describe_side(const StepRecords& step, const ValueRecord& record);

/// Fills in everything that the key contains; sides and comparison stay empty.
[[nodiscard]] RecordReport describe_key(const format::Definitions& names, uint32_t rank,
                                        uint32_t step, const ValueRecord& record);

}  // namespace convtrace::diff
