#include "tools/weights/weights.h"

#include <algorithm>

#include "tools/trace/model/pieces.h"

namespace convtrace::weights {
namespace {

Whole one_of(const Value& value) {
  return {.known = true,
          .exact = true,
          .piece_count = value.stats.count,
          .dtype = value.dtype,
          .measured = value.capture != format::Capture::kHash,
          .stats = value.stats};
}

}  // namespace

Whole fused(const std::vector<Whole>& parts) {
  if (parts.empty()) return {};
  Whole whole = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    const Whole& part = parts[i];
    whole.known =
        whole.known && part.known && part.dtype == whole.dtype && whole.measured && part.measured;
    whole.exact = false;
    whole.pieces += part.pieces;
    if (part.piece_count != whole.piece_count) whole.piece_count = 0;
    if (whole.known) diff::add_piece(whole.dtype, whole.stats, part.stats);
  }
  return whole;
}

Whole joined(const std::vector<Value>& values) {
  std::vector<Whole> unlike;
  for (const Value& value : values) {
    const bool is_copy = std::ranges::any_of(unlike, [&value](const Whole& other) {
      return other.stats.hash == value.stats.hash && other.stats.count == value.stats.count &&
             other.dtype == value.dtype;
    });
    if (!is_copy) unlike.push_back(one_of(value));
  }
  return fused(unlike);
}

}  // namespace convtrace::weights
