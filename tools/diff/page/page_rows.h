#pragma once
/// @file page_rows.h
/// The data of the HTML page: a table of tensors, and a few bytes for each value, so that a page
/// of any length stays below 3 MB and a browser reads it quickly.
///
/// Memory:   kRowBytes a value, up to twice kMaxPageRows values; further ones are only counted.

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/common/json.h"
#include "tools/diff/page/heat_map.h"
#include "tools/diff/verdict/rank_diff.h"

namespace convtrace::diff {

/// Most rows of values that agree, and of values that do not; the first ones are kept.
inline constexpr size_t kMaxPageRows = 25'000;
/// A row, little-endian: tensor (u32), index of the step (u32), then f32: mean, its difference, l2
/// norm, its difference, tolerance of the deciding field; class (u8), deciding field (u8).
/// Differences are candidate minus baseline; a value that only one run has has NaN there.
inline constexpr size_t kRowBytes = 30;

class PageRows final : public RowSink {
 public:
  void row(const RecordReport& record, bool in_base, bool in_cand) override;

  /// @return `scopes`, `slots`, `ops`, `tensors` (each an index into those, see page_rows.cpp),
  /// `steps`, `order` (of each scope, as they ran), `rows` (base64), `left_out`, `map`
  /// (heat_map.h), and names of classes and fields.
  [[nodiscard]] tools::Json json() const;

 private:
  /// Numbers texts in order of first use.
  class Texts {
   public:
    uint32_t number(const std::string& text);
    [[nodiscard]] tools::Json json() const;

   private:
    std::unordered_map<std::string, uint32_t> numbers_;
    std::vector<std::string> texts_;
  };
  using Tensor = std::array<uint64_t, 8>;

  void note_order(const RecordReport& record, uint32_t scope);
  uint32_t tensor_of(const RecordReport& record, uint32_t scope, const SideReport& side);

  Texts scopes_, slots_, ops_, dtypes_;
  std::map<Tensor, uint32_t> numbers_;
  std::vector<Tensor> tensors_;
  std::unordered_map<uint32_t, uint32_t> step_numbers_;
  std::vector<uint32_t> steps_;
  std::vector<uint64_t> order_;  ///< by scope: where the first of its values stands that a call has
  std::string bytes_;
  std::array<size_t, 2> kept_{};  ///< values that do not agree, values that do
  uint64_t left_out_ = 0, seen_ = 0;
  HeatMap map_;
};

/// @return the op of a value, or its kernel by a name for people; "" for neither.
[[nodiscard]] std::string op_name(const RecordReport& record);

/// @return the bytes in base64 (RFC 4648), padded.
[[nodiscard]] std::string base64(std::string_view bytes);

}  // namespace convtrace::diff
