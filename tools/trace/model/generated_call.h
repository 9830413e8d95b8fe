#pragma once
/// @file generated_call.h
/// A call in the code of a compiled region, as a fact of the trace tells it.
///
/// Threads:  pure functions.
/// Source:   docs/recording.md "Compiled regions".

#include <string>
#include <string_view>
#include <vector>

namespace convtrace::diff {

/// A call in the code that a compiler generated for a region.
struct GeneratedCall {
  std::string kernel;              ///< its name there, "triton_poi_fused_gelu_2"; "" if unknown
  std::vector<std::string> nodes;  ///< the known nodes of the region's graph that it implements
  std::string line;                ///< FILE:LINE of the last of them
  bool drops_view = false;         ///< only in the candidate: part of its result is lost
  std::string region;              ///< "0/1 backward": the compiler's number of it, and which pass
};

/// @param fact  the value of `compiled.SCOPE.OP`: "KERNEL [NODE, ...] FILE:LINE region 0/1 forward"
/// @return the parts of the fact; empty if it is malformed.
[[nodiscard]] GeneratedCall generated_call(std::string_view fact);

}  // namespace convtrace::diff
