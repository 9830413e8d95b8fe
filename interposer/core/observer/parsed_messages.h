#pragma once
/// @file parsed_messages.h
/// Parses the observer's messages about tensors, collectives, and kernels that a compiler of the program
/// has loaded.
///
/// Place:    observer_port.cpp.
/// Threads:  pure functions.
/// Errors:   parse functions return nullopt for a message that is too short or has a field outside its
///           range.
/// Source:   interposer/abi/observer_abi.h.

#include <cstdint>
#include <optional>
#include <vector>

#include "cupti/kernels/kernel_signature.h"
#include "cupti/stats/tile/tensor_view.h"
#include "format/model/definitions.h"
#include "format/model/events.h"
#include "interposer/core/observer/message_reader.h"

namespace convtrace::engine {

/// A TENSOR message as a view and an event without statistics.
struct TensorRequest {
  stats::TensorView view;
  format::TensorStats event;  ///< its shape is not set: see stats::shape_of()
  uint64_t storage_base = 0;
  uint64_t storage_bytes = 0;
  uint64_t stream = 0;
  uint32_t samples = 0;  ///< raw values that are kept; above 8 also the first elements
};

[[nodiscard]] std::optional<TensorRequest> parse_tensor(const Message& message);

/// @return whether all elements lie in the storage, and their number does not exceed the storage so
/// far that reading them would take seconds. A CPU tensor that fails this is not read.
[[nodiscard]] bool in_bounds(const TensorRequest& request);

/// @return the values of the first `count` elements in logical order, as samples are stored. Empty if
/// the view cannot be walked.
[[nodiscard]] std::vector<std::byte> leading_values(const stats::TensorView& view, uint64_t count);

/// The collective to which the TENSOR messages of a batch belong.
struct OfCollective {
  uint64_t id = 0;  ///< 0: none
  uint32_t step = 0;
};

/// @return the event, without its step.
[[nodiscard]] std::optional<format::Collective> parse_collective(const Message& message);
[[nodiscard]] std::optional<OfCollective> parse_collective_values(const Message& message);

/// The contents of a message about a tensor that a collective is using, or was.
struct FlightMessage {
  format::Op event;                      ///< without its step, generation and stack
  std::optional<format::StringId> line;  ///< the program's line
};
[[nodiscard]] std::optional<FlightMessage> parse_flight(const Message& message);

[[nodiscard]] std::optional<cupti::KernelSignature> parse_kernel(
    const Message& message, const format::Definitions& definitions);

}  // namespace convtrace::engine
