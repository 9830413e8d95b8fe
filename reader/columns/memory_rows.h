#pragma once
/// @file memory_rows.h
/// The allocations, or frees, or other writes to memory, of a chunk, one after another.
///
/// Place:    event_decoder.cpp; format/file/columns/memory_columns.h is its mirror.
/// Errors:   bind() finds everything that can be wrong with a hostile chunk.
/// Source:   format/FORMAT.md section 6.5.

#include <algorithm>
#include <vector>

#include "format/model/events.h"
#include "reader/columns/definition_check.h"
#include "reader/columns/row_table.h"

namespace convtrace::reader {

/// @tparam Memory  Alloc or Free.
template <typename Memory>
class MemoryRows {
 public:
  /// @return whether `table` holds exactly `row_count` events.
  [[nodiscard]] bool bind(const wire::MemoryColumns* table, size_t row_count);

  /// Makes `event` the next one.
  /// @return whether all its enumerators are known. @pre there is one
  bool next(format::EventHeader header, format::Event& event) {
    const size_t row = row_++;
    const Signature& signature = signatures_[rows_.signature(row)];
    auto& memory = event.emplace<Memory>(signature.event);
    memory.header = header;
    memory.address = varying_[row][0];
    memory.generation = generations_[row + 1];
    return signature.known;
  }

  /// @return whether all that the events name is defined, of those whose enumerators are known.
  [[nodiscard]] bool resolved_by(const DefinitionCheck& check) const {
    return std::ranges::all_of(signatures_, [&check](const Signature& made) {
      return !made.known || check.resolves(made.event);
    });
  }

  /// @return generation of the last of the first `count` events; 0: none.
  [[nodiscard]] uint64_t generation_after(size_t count) const { return generations_[count]; }

 private:
  struct Signature {
    Memory event;
    bool known = true;
  };
  LikeTable rows_;
  size_t row_ = 0;
  std::vector<Signature> signatures_;
  VaryingTable<2> varying_;
  std::vector<uint64_t> generations_;  ///< after none, one, two, ... events
};

class CopyRows {
 public:
  [[nodiscard]] bool bind(const wire::CopyColumns* table, size_t row_count);
  /// As MemoryRows::next.
  bool next(format::EventHeader header, format::Event& event);

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
