#pragma once
/// @file launch_rows.h
/// Decodes the launches of a chunk one by one.
///
/// Place:    event_decoder.cpp; format/file/columns/launch_columns.h is its mirror.
/// Errors:   bind() detects everything that can be wrong with a hostile chunk.
/// Memory:   32 bytes an operand, at most kMaxChunkOperands.
/// Source:   format/FORMAT.md section 6.3.

#include <algorithm>
#include <span>
#include <vector>

#include "format/model/events.h"
#include "reader/columns/kind_rows.h"

namespace convtrace::reader {

class LaunchRows {
 public:
  /// @param newest  for each launch, the generation of the chunk's last Alloc before it; 0: none.
  /// @return whether `table` has exactly as many launches.
  [[nodiscard]] bool bind(const wire::LaunchColumns* table, std::span<const uint64_t> newest);

  /// Sets `event` to the next launch, whose operands are valid until the next bind().
  /// @return whether all its enumerators are known. @pre there is one
  bool next(format::EventHeader header, format::Event& event) {
    const size_t row = row_++;
    const Signature& signature = signatures_[rows_.signature(row)];
    auto& launch = event.emplace<format::Launch>(signature.event);
    launch.header = header;
    launch.operands = {operands_.data() + first_operands_[row], signature.operand_count};
    return signature.known;
  }

  /// @return whether every id (string, scope, kernel) in the events is defined. Events with an
  /// enumerator that this reader does not know are not checked.
  [[nodiscard]] bool resolved_by(const DefinitionCheck& check) const {
    return std::ranges::all_of(signatures_, [&check](const Signature& made) {
      return !made.known || check.resolves(made.event);
    });
  }

 private:
  /// Without header and operands.
  struct Signature {
    format::Launch event;
    uint32_t operand_count = 0;
    size_t first_shape = 0;  ///< index in shapes_
    bool known = true;
  };
  [[nodiscard]] bool bind_signatures(const wire::LaunchColumns& table);
  /// Reserves memory for the operands of all launches.
  [[nodiscard]] bool count_operands();
  [[nodiscard]] bool bind_shapes(const wire::LaunchColumns& table);
  [[nodiscard]] bool bind_operands(const wire::LaunchColumns& table,
                                   std::span<const uint64_t> newest);
  [[nodiscard]] size_t end_of_run(size_t row, std::span<const uint64_t> newest) const;
  void copy_shapes(size_t row, size_t end);
  void repeat_operands(size_t row, size_t end, size_t like, uint64_t aged);
  void apply_differences(size_t end, size_t distance);

  LikeTable rows_;
  size_t row_ = 0;
  std::vector<Signature> signatures_;
  std::vector<format::Operand> shapes_;  ///< operands of the signatures, without addresses
  /// By launch: index in operands_; the last entry is the end.
  std::vector<uint32_t> first_operands_;
  std::vector<format::Operand> operands_;  ///< operands of all launches, with spare capacity
  /// By operand: its generation differs from that in the similar launch.
  std::vector<uint8_t> moved_;
  PackedColumn address_, generation_, offset_;
};

}  // namespace convtrace::reader
