#pragma once
/// @file alias_text.h
/// The sentence of an alias finding: what happened, what it means, what to do.

#include <string>

#include "format/definitions.h"
#include "interposer/engine/alias_detector.h"

namespace convtrace::engine {

/// @return one paragraph, for somebody who has not read the manual.
[[nodiscard]] std::string describe(const AliasFinding& finding,
                                   const format::Definitions& definitions);

}  // namespace convtrace::engine
