#pragma once
/// @file layouts.h
/// Reads how a run divides its tensors among ranks, from the facts that its DTensors recorded.
///
/// Place:    diff.cpp, before traces are paired. Reads only chunks with facts.
/// Source:   facts `placement.NAME`, format/FORMAT.md section 6.6.

#include <set>
#include <string>

namespace convtrace::diff {

/// @return the meshes and placements of a trace: "mesh=(tp=2), at=(0,), placements=(Shard(dim=0),)"
/// each.
[[nodiscard]] std::set<std::string> layouts_of(const std::string& path);

/// @return whether a tensor of one run has a mesh and placements that no tensor of the other has.
/// Traces that cannot be read have none.
[[nodiscard]] bool placed_unlike(const std::string& base_path, const std::string& cand_path);

}  // namespace convtrace::diff
