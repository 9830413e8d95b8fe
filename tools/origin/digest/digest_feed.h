#pragma once
/// @file digest_feed.h
/// Reads digests of a job (rows.h), in windows of steps that ascend, from one stream.
///
/// The stream begins with the rows of all traces. Rows of a window come in any order.
///
/// Errors:   inconsistent rows are refused, since a digest comes from another program.

#include <istream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "format/model/definitions.h"
#include "tools/origin/digest/table_in.h"
#include "tools/origin/read/feed.h"

namespace convtrace::origin {

class DigestFeed : public Feed {
 public:
  /// @param paths  the arguments that the traces belong to, as they were given. @param names  of
  /// the job. All borrowed.
  DigestFeed(std::istream& in, const std::vector<std::string>& paths, format::Definitions& names)
      : in_(in), paths_(paths), names_(names) {}

  [[nodiscard]] bool open(OriginResult& result, std::string& error) override;
  [[nodiscard]] bool next(std::span<RankQueue* const> queues, bool& last,
                          std::string& error) override;

 private:
  /// The rows of one trace in a window.
  struct Arrived {
    std::vector<CallRow> calls;
    std::vector<ValueRow> values;
    std::vector<ParameterRow> parameters;
    std::vector<BadRow> bads;
    std::vector<StepRow> steps;
  };

  [[nodiscard]] bool read_head();
  [[nodiscard]] bool read_block(Block& block);
  [[nodiscard]] bool read_traces(OriginResult& result, std::string& error);
  [[nodiscard]] bool take(const Block& block, std::vector<Arrived>& arrived);
  template <typename Row>
  [[nodiscard]] bool take_rows(const Block& block, std::vector<Arrived>& arrived,
                               std::vector<Row> Arrived::*rows);
  [[nodiscard]] bool append(Arrived& from, RankQueue& to) const;
  void start(std::span<RankQueue* const> queues) const;

  std::istream& in_;
  const std::vector<std::string>& paths_;
  format::Definitions& names_;
  std::vector<TraceRow> traces_;
  std::vector<size_t> queue_of_;  ///< by trace; SIZE_MAX: not judged
  Block first_;                   ///< the first block of the next window
  bool started_ = false;
};

}  // namespace convtrace::origin
