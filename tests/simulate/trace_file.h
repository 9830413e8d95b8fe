#pragma once
/// @file trace_file.h
/// Writes the records of one rank to its trace.
///
/// Threads:  one at a time for each file.
/// Errors:   Status of the writer; sticky.

#include <memory>
#include <string>
#include <vector>

#include "format/file/trace_writer.h"
#include "tests/simulate/rank.h"

namespace convtrace::simulate {

class TraceFile {
 public:
  TraceFile(const World& world, const std::string& folder, uint32_t rank);

  /// @pre every value is summarized.
  void append(uint32_t step, const std::vector<Record>& records);
  /// What is there survives.
  void flush();
  /// The program ended well. Without it the trace is one of a program that was killed.
  void close();

  [[nodiscard]] Status status() const { return status_; }
  [[nodiscard]] uint64_t bytes() const { return writer_ ? writer_->bytes_written() : 0; }
  [[nodiscard]] uint64_t events() const { return writer_ ? writer_->events_written() : 0; }

 private:
  [[nodiscard]] format::StringId id(Name name);
  [[nodiscard]] format::Event event_of(const Record& record);
  [[nodiscard]] format::Event collective_of(const Record& record);
  [[nodiscard]] format::Event stats_of(const Record& record);

  const World& world_;
  format::TraceMeta meta_;
  format::Definitions definitions_;
  std::unique_ptr<format::TraceWriter> writer_;
  Status status_;
  std::vector<format::StringId> ids_;      ///< by Name
  std::vector<format::StringId> members_;  ///< by group
  std::vector<format::StringId> groups_;
  uint64_t shape_[1] = {};
};

}  // namespace convtrace::simulate
