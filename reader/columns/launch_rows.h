#pragma once
/// @file launch_rows.h
/// The launches of a chunk, one after another.
///
/// Place:    event_decoder.cpp; format/columns/launch_columns.h is its mirror.
/// Errors:   bind() finds everything that can be wrong with a hostile chunk.
/// Memory:   32 bytes an operand, at most kMaxChunkOperands.
/// Source:   format/FORMAT.md section 6.3.

#include <vector>

#include "format/events.h"
#include "reader/columns/row_table.h"

namespace convtrace::reader {

class LaunchRows {
 public:
  /// @return whether `table` holds exactly `row_count` launches.
  [[nodiscard]] bool bind(const wire::LaunchColumns* table, size_t row_count);

  /// Gives the next launch but for its header; operands are valid until the next bind().
  /// @param newest  generation of the last Alloc of the chunk; 0: none yet.
  /// @return whether all its enumerators are known. @pre there is one
  bool next(format::Launch& event, uint64_t newest);

 private:
  struct Signature {
    format::Launch event;  ///< without header and operands
    uint32_t operand_count = 0;
    size_t first_shape = 0;  ///< in shapes_
    bool known = true;
  };
  struct Row {
    uint32_t first_operand;
    uint64_t newest;
  };
  [[nodiscard]] bool bind_signatures(const wire::LaunchColumns& table);
  [[nodiscard]] bool bind_operands(const wire::LaunchColumns& table);
  void age_operands(size_t begin, size_t end, const Row& like_row, uint64_t newest);
  void apply(PackedColumn& column, uint64_t format::Operand::*field, size_t end);

  LikeTable rows_;
  size_t row_ = 0;
  std::vector<Signature> signatures_;
  std::vector<format::Operand> shapes_;    ///< operands of the signatures, pointing nowhere
  std::vector<format::Operand> operands_;  ///< of all launches; filled up to next_operand_
  std::vector<uint8_t> moved_;  ///< by operand: had another generation than in the like launch
  std::vector<Row> launches_;
  size_t next_operand_ = 0;
  PackedColumn address_, generation_, offset_;
};

}  // namespace convtrace::reader
