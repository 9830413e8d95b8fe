#pragma once
/// @file sums_rows.h
/// Decodes step sums from EVENTS and SUMS payloads.
///
/// Place:    event_decoder.cpp, metadata_decoder.cpp; format/file/columns/step_sums.h is its
///           mirror.
/// Source:   format/FORMAT.md section 6.7.

#include <vector>

#include "format/file/columns/step_sums.h"
#include "format/file/layout.h"
#include "format/schema/sums_generated.h"

namespace convtrace::reader {

template <typename T>
[[nodiscard]] bool holds_rows(const flatbuffers::Vector<T>* column, size_t rows) {
  return column != nullptr && column->size() == rows &&
         reinterpret_cast<uintptr_t>(column->Data()) % alignof(T) == 0;
}

/// Appends the sums of `from`, which is verified.
/// @return whether they are consistent; if not, nothing is appended.
[[nodiscard]] inline bool append_sums(const format::wire::StepSums& from,
                                      std::vector<format::StepSums>& to) {
  const size_t rows = from.step() != nullptr ? from.step()->size() : 0;
  if (rows == 0) return true;
  const bool fits = rows <= format::kMaxSums && holds_rows(from.step(), rows) &&
                    holds_rows(from.launches(), rows) && holds_rows(from.values(), rows) &&
                    holds_rows(from.key_sum(), rows) && holds_rows(from.value_sum(), rows);
  for (uint32_t i = 0; fits && i < rows; ++i) {
    to.push_back({.step = from.step()->Get(i),
                  .launches = from.launches()->Get(i),
                  .values = from.values()->Get(i),
                  .key_sum = from.key_sum()->Get(i),
                  .value_sum = from.value_sum()->Get(i)});
  }
  return fits;
}

}  // namespace convtrace::reader
