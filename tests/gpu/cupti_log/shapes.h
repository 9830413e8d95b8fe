#pragma once
/// @file shapes.h
/// Which memory the decoders of cupti/ read of a call: the size of its parameters, and what they
/// follow in them.
///
/// Threads:  pure functions.
/// Source:   generated_cuda_meta.h.

#include <vector>

#include "cupti/calls/callback_table.h"

namespace convtrace::cupti_log {

struct Pointee {
  size_t at = 0;           ///< offset of the pointer
  size_t bytes = 0;        ///< of one item; 0: it is a text
  size_t count_at = 0;     ///< offset of their number
  size_t count_bytes = 0;  ///< size of that field; 0: there is one
  bool input = false;      ///< the program's, so it can be read at the entry, and of a failed call
};

struct Shape {
  size_t bytes = 0;  ///< of the structure; 0: there is none, or nobody reads it
  std::vector<Pointee> pointees;
};

/// @return null for a callback that is not in the table.
[[nodiscard]] const Shape* find_shape(const cupti::CallbackEntry& entry);

}  // namespace convtrace::cupti_log
