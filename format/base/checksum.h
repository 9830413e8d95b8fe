#pragma once
/// @file checksum.h
/// The one checksum of the format: XXH3-64 with seed 0. Finds damage; it is no signature.
///
/// Source:   xxHash specification, "XXH3"; used header-only because a distribution's libxxhash may
///           be built without vector instructions.

#include <cstdint>

#include "format/base/bytes.h"

namespace convtrace {

[[nodiscard]] uint64_t checksum64(Bytes bytes) noexcept;

/// @return the low 32 bits of checksum64.
[[nodiscard]] uint32_t checksum32(Bytes bytes) noexcept;

}  // namespace convtrace
