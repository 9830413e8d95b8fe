#pragma once
/// @file kernel_message.h
/// Reads what the observer says of a kernel that a compiler of the program has loaded.
///
/// Place:    used by observer_port.cpp.
/// Threads:  any.

#include <optional>

#include "cupti/kernels/kernel_signature.h"
#include "format/model/definitions.h"
#include "interposer/core/observer/message_reader.h"

namespace convtrace::engine {

/// @return nullopt if the message is malformed.
[[nodiscard]] std::optional<cupti::KernelSignature> parse_kernel(
    const Message& message, const format::Definitions& definitions);

}  // namespace convtrace::engine
