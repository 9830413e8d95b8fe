#pragma once
/// @file trace_set.h
/// The traces of one run: one file, or a folder with one file per rank.
///
/// Threads:  plain values. A set keeps META alone, and its traces are opened again when their ranks
///           are compared, so thousands of ranks need few file descriptors.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/base/status.h"
#include "format/model/meta.h"
#include "reader/trace_reader.h"

namespace convtrace::diff {

struct TraceFile {
  std::string path;
  format::TraceMeta meta;
  uint64_t events = 0;  ///< from the headers of its records
};

struct TraceSet {
  std::string path;
  bool is_folder = false;
  std::vector<TraceFile> files;         ///< by rank, then start
  std::vector<std::string> unreadable;  ///< why, for files of a folder beside readable ones
};

/// @return a line about a file that cannot be read, with its message number, escaped.
[[nodiscard]] std::string unreadable(const std::string& path, const std::string& why);

/// @return a line about a trace that was not closed, or is damaged, escaped.
[[nodiscard]] std::string not_whole(const std::string& path);

using VisitTrace =
    std::function<void(const std::string& path, std::unique_ptr<reader::TraceReader> trace)>;
/// Opens a file, or every trace directly in a folder, whatever its name, one after the other, in
/// the order of their names.
/// @param refused  gets a line, escaped, for each file of a folder that cannot be read.
/// @param error    one line, escaped, when nothing could be read.
/// @return false with `error` set.
[[nodiscard]] bool visit_traces(const std::string& path, reader::OpenPolicy policy,
                                const VisitTrace& visit, std::vector<std::string>& refused,
                                std::string& error);

/// The same, and keeps META alone; ranks come from there.
[[nodiscard]] bool open_trace_set(const std::string& path, TraceSet& set, std::string& error);

/// Sorts the traces of a folder by rank, then start.
void sort_by_rank(std::vector<TraceFile>& files);

/// A pair of indices into TraceSet::files; -1: that run has no trace of this rank.
struct RankPair {
  uint32_t rank = 0;
  int base = -1;
  int cand = -1;
};

/// Pairs traces by rank. Two sets of one trace each are a pair, whatever their ranks. Several
/// traces of one rank (a restarted job) are paired in the order of their starts.
/// @param base_rank  the baseline's rank for ranks of the candidate with another number.
[[nodiscard]] std::vector<RankPair> pair_ranks(const TraceSet& base, const TraceSet& cand,
                                               const std::map<uint32_t, uint32_t>& base_rank);

}  // namespace convtrace::diff
