#pragma once
/// @file memory_rows.h
/// The allocations, or frees, or other writes to memory, of a chunk, one after another.
///
/// Place:    event_decoder.cpp; format/columns/memory_columns.h is its mirror.
/// Errors:   bind() finds everything that can be wrong with a hostile chunk.
/// Source:   format/FORMAT.md section 6.5.

#include <vector>

#include "format/events.h"
#include "reader/columns/row_table.h"

namespace convtrace::reader {

class MemoryRows {
 public:
  [[nodiscard]] bool bind(const wire::MemoryColumns* table, size_t row_count);

  /// Gives the next event, an Alloc or a Free, but for its header.
  /// @return whether all its enumerators are known. @pre there is one
  template <typename Memory>
  bool next(Memory& event) {
    const size_t row = row_++;
    const Signature& signature = signatures_[rows_.signature(row)];
    const auto& v = varying_.next(row, rows_);
    last_generation_ += v[1];
    event.address = v[0];
    event.bytes = signature.event.bytes;
    event.generation = last_generation_;
    event.source = signature.event.source;
    event.device = signature.event.device;
    event.stream = signature.event.stream;
    event.stack = signature.event.stack;
    return signature.known;
  }

  /// @return generation of the event last given; 0: none yet.
  [[nodiscard]] uint64_t last_generation() const { return last_generation_; }

 private:
  struct Signature {
    format::Alloc event;
    bool known = true;
  };
  LikeTable rows_;
  size_t row_ = 0;
  std::vector<Signature> signatures_;
  VaryingTable<2> varying_;
  uint64_t last_generation_ = 0;
};

class CopyRows {
 public:
  [[nodiscard]] bool bind(const wire::CopyColumns* table, size_t row_count);
  /// As MemoryRows::next.
  bool next(format::Copy& event);

 private:
  struct Signature {
    format::Copy event;
    bool known = true;
  };
  LikeTable rows_;
  size_t row_ = 0;
  std::vector<Signature> signatures_;
  VaryingTable<2> varying_;
};

}  // namespace convtrace::reader
