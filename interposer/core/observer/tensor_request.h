#pragma once
/// @file tensor_request.h
/// A TENSOR message made safe: checked, as a view and an event that lacks only its numbers.
///
/// Threads:  plain functions.
/// Errors:   nullopt for what does not fit the layout; in_bounds() for what would read outside the
///           tensor's storage.

#include <cstdint>
#include <optional>
#include <vector>

#include "cupti/stats/tile/tensor_view.h"
#include "format/model/events.h"
#include "interposer/core/observer/message_reader.h"

namespace convtrace::engine {

struct TensorRequest {
  stats::TensorView view;
  format::TensorStats event;  ///< shape still unset: see stats::shape_of()
  uint64_t storage_base = 0;
  uint64_t storage_bytes = 0;
  uint64_t stream = 0;
  uint32_t samples = 0;  ///< raw values that are kept; above 8 also the first ones
};

/// @return nullopt if a field is outside its range or the message too short.
[[nodiscard]] std::optional<TensorRequest> parse_tensor(const Message& message);

/// Whether all elements lie inside the storage, and are not so many more than it holds that reading
/// them would take seconds. A CPU tensor for which this is false is not read.
[[nodiscard]] bool in_bounds(const TensorRequest& request);

/// @return the values of the first `count` elements in logical order, as samples are stored. Empty if
/// the view cannot be walked.
[[nodiscard]] std::vector<std::byte> leading_values(const stats::TensorView& view, uint64_t count);

}  // namespace convtrace::engine
