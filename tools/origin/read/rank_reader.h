#pragma once
/// @file rank_reader.h
/// Reads the trace of one rank piece by piece into its queue.
///
/// The file is opened anew for each piece, so thousands of ranks need few file descriptors and no
/// buffers between.
///
/// Threads:  one at a time; several readers may run at once.
/// Memory:   12 bytes a chunk, the ids of its texts, and the last inputs of modules.
/// Errors:   damage is reported by `complete` of the queue.

#include <memory>
#include <string>
#include <vector>

#include "format/base/status.h"
#include "format/model/definitions.h"
#include "format/model/meta.h"
#include "tools/origin/read/rank_queue.h"

namespace convtrace::origin {

class RankScan;

/// A chunk of events, by the steps in it.
struct ChunkSpan {
  uint32_t step_begin = 0, step_end = 0;
  uint32_t items = 0;
};

/// What is known of a trace before its events are read.
struct RankFacts {
  std::string path;
  uint32_t rank = 0, world_size = 1;
  uint64_t events = 0;
  bool new_hashes = true;
  bool has_steps = false;
  uint32_t first_step = 0, last_step = 0;
};

class RankReader {
 public:
  /// @param names  of the job; borrowed.
  RankReader(std::string path, format::Definitions& names);
  ~RankReader();
  RankReader(RankReader&&) noexcept;

  /// Looks at the headers of all records. @return as TraceReader::open.
  [[nodiscard]] Status open();
  /// @pre it was opened
  [[nodiscard]] RankFacts facts() const;
  [[nodiscard]] const std::vector<ChunkSpan>& chunks() const { return chunks_; }

  /// Reads on up to the first chunk that begins after `step`.
  void read_to(uint32_t step, RankQueue& queue);

 private:
  std::string path_;
  format::TraceMeta meta_;
  std::vector<ChunkSpan> chunks_;
  std::vector<uint64_t> seqs_;  ///< record numbers of `chunks_`
  size_t next_ = 0;             ///< chunk
  uint64_t events_ = 0;
  std::unique_ptr<RankScan> scan_;
};

}  // namespace convtrace::origin
