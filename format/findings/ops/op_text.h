#pragma once
/// @file op_text.h
/// The sentence of a finding about a tagged op: what happened, what it means, what to do.

#include <string>

#include "format/findings/ops/op_finding.h"
#include "format/model/definitions.h"

namespace convtrace::judge {

/// @return one paragraph, for somebody who has not read the manual.
[[nodiscard]] std::string describe(const OpFinding& finding,
                                   const format::Definitions& definitions);

/// @return all but the message.
[[nodiscard]] format::Finding record_of(const OpFinding& finding);

}  // namespace convtrace::judge
