#pragma once
/// @file parsed_messages.h
/// Parses the messages about collectives, and about kernels that a compiler of the program has loaded.
///
/// Place:    observer_port.cpp.
/// Threads:  pure functions.
/// Source:   interposer/abi/observer_abi.h.

#include <optional>

#include "cupti/kernels/kernel_signature.h"
#include "format/model/definitions.h"
#include "format/model/events.h"
#include "interposer/core/observer/message_reader.h"

namespace convtrace::engine {

/// The collective to which the TENSOR messages of a batch belong.
struct OfCollective {
  uint64_t id = 0;  ///< 0: none
  uint32_t step = 0;
};

/// @return the event, without its step; nullopt if the message is malformed.
[[nodiscard]] std::optional<format::Collective> parse_collective(const Message& message);
[[nodiscard]] std::optional<OfCollective> parse_collective_values(const Message& message);

/// The contents of a message about a tensor that a collective is using, or was.
struct FlightMessage {
  format::Op event;                      ///< without its step, generation and stack
  std::optional<format::StringId> line;  ///< the program's line
};
[[nodiscard]] std::optional<FlightMessage> parse_flight(const Message& message);

/// @return nullopt if the message is malformed.
[[nodiscard]] std::optional<cupti::KernelSignature> parse_kernel(
    const Message& message, const format::Definitions& definitions);

}  // namespace convtrace::engine
