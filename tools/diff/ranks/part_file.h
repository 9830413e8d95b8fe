#pragma once
/// @file part_file.h
/// The modes of convtrace-diff for convtrace.jobs: many processes compare a job, and one joins the
/// results.
///
///     --describe SIDE KIND TRACE NAME   writes a trace's description for the pairing to stdout
///     --pairs BASE CAND                 reads descriptions from stdin; writes the pairs as JSON
///     --part RANK BASE CAND             compares one pair of traces; writes its part to stdout;
///                                       with --json F also the report of the pair alone
///     --parts BASE CAND                 reads descriptions and parts from stdin; writes the
///                                       reports of the whole
///
/// On stdin: a u32 count and as many descriptions, then the parts in the order of --pairs. Each
/// begins with a u64 of its length; an empty part has failed.
///
/// Errors:    bytes of another version, or damaged, are refused.

#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tools/diff/ranks/rank_part.h"
#include "tools/trace/names/rules.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::diff {

/// A trace, as far as pairing needs to know it.
struct Description {
  bool in_cand = false;
  bool in_folder = false;
  std::string problem{};  ///< a line, escaped, why it cannot be read; "" if it can
  TraceFile file{};
  std::vector<std::string> placements{};  ///< facts/layouts.h
};

/// @param name  the path to show. @param problem  why the trace is not opened; "" if it is.
[[nodiscard]] Description describe(bool in_cand, bool in_folder, const std::string& trace,
                                   const std::string& name, const std::string& problem);
[[nodiscard]] std::string to_bytes(const Description& description);
[[nodiscard]] std::string to_bytes(const RankPart& part);

/// The traces of both runs, as they were described.
struct Described {
  TraceSet base, cand;
  bool placed_unlike = false;  ///< their first traces are
};
/// @param described  has the paths. @param error  one line, escaped, if a run has no trace that can
/// be read, or if the bytes are odd.
[[nodiscard]] bool read_descriptions(std::istream& in, Described& described, std::string& error);
/// Reads to the end. @return false: the bytes are odd.
[[nodiscard]] bool read_parts(std::istream& in, std::vector<std::optional<RankPart>>& parts);

/// Writes {"whole": W, "pairs": [{"base": B, "cand": C, "rank": R}...]}: whether the runs are
/// compared as wholes, and the paths of the pairs that both runs have.
void write_pairs(const Described& described, const DiffRules& rules, std::ostream& out);

}  // namespace convtrace::diff
