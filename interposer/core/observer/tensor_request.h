#pragma once
/// @file tensor_request.h
/// Validates a TENSOR message and converts it into a view and an event without statistics.
///
/// Threads:  plain functions.
/// Errors:   parse_tensor() gives nullopt for a message that does not fit the layout; in_bounds()
///           is false for a tensor that reaches outside its storage.

#include <cstdint>
#include <optional>
#include <vector>

#include "cupti/stats/tile/tensor_view.h"
#include "format/model/events.h"
#include "interposer/core/observer/message_reader.h"

namespace convtrace::engine {

struct TensorRequest {
  stats::TensorView view;
  format::TensorStats event;  ///< its shape is not set: see stats::shape_of()
  uint64_t storage_base = 0;
  uint64_t storage_bytes = 0;
  uint64_t stream = 0;
  uint32_t samples = 0;  ///< raw values that are kept; above 8 also the first elements
};

/// @return nullopt if a field is outside its range or the message too short.
[[nodiscard]] std::optional<TensorRequest> parse_tensor(const Message& message);

/// @return whether all elements lie in the storage, and their number does not exceed the storage so
/// far that reading them would take seconds. A CPU tensor that fails this is not read.
[[nodiscard]] bool in_bounds(const TensorRequest& request);

/// @return the values of the first `count` elements in logical order, as samples are stored. Empty if
/// the view cannot be walked.
[[nodiscard]] std::vector<std::byte> leading_values(const stats::TensorView& view, uint64_t count);

}  // namespace convtrace::engine
