#pragma once
/// @file root_region.h
/// The place of a root within a compiled region. A run that is not compiled, or whose compiler
/// fused otherwise, has no counterpart of the region's calls. Then the root is a module's value,
/// which both runs have, and the calls between it and the last value that agrees may have made it.
///
/// Threads:  pure functions.
/// Source:   docs/comparison.md "Compiled regions".

#include <cstdint>
#include <string>

#include "tools/diff/verdict/result.h"
#include "tools/diff/verdict/step_pair.h"

namespace convtrace::diff {

/// @param root  index into Alignment::matches
/// @return the calls without the names of their kernels, which facts have.
[[nodiscard]] RegionPlace region_of(const StepPair& pair, uint32_t root,
                                    const PairReporter& reporter);

/// @return "equal at the border of region 0/0 forward, first differs in cpp_fused_gelu_2
/// (h.0.mlp)"; "" for a root in no region. Not escaped.
[[nodiscard]] std::string region_text(const RegionPlace& place);

}  // namespace convtrace::diff
