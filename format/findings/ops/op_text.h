#pragma once
/// @file op_text.h
/// The text of a finding about a tagged op: what happened, what it means, what to do.

#include <string>

#include "format/findings/ops/op_finding.h"
#include "format/model/definitions.h"

namespace convtrace::judge {

/// @return one paragraph for readers who do not know the manual.
[[nodiscard]] std::string describe(const OpFinding& finding,
                                   const format::Definitions& definitions);

/// @return the record without its message.
[[nodiscard]] format::Finding record_of(const OpFinding& finding);

}  // namespace convtrace::judge
