#pragma once
/// @file transfer.h
/// Describes one rank's call of a collective, or of a transfer between two ranks: the memory that it
/// reads and writes, and its names.
///
/// Place:    nccl_recorder.cpp.
/// Threads:  pure functions.
/// Source:   nccl.h of NCCL 2.30; the names are those of format/FORMAT.md 6.5 "collective".

#include <cstdint>
#include <string_view>

#include "cupti/abi/hooks_v1.h"
#include "format/model/dtype.h"

namespace convtrace::engine {

/// @return whether the call moves data.
[[nodiscard]] constexpr bool is_transfer(int kind) noexcept {
  return kind >= CONVTRACE_NCCL_ALL_REDUCE && kind <= CONVTRACE_NCCL_RECV;
}
[[nodiscard]] constexpr bool is_between_two(int kind) noexcept {
  return kind == CONVTRACE_NCCL_SEND || kind == CONVTRACE_NCCL_RECV;
}
/// @return whether the call names one rank: its root, its destination or its source.
[[nodiscard]] bool has_peer(int kind) noexcept;

/// @return "all_reduce", ...
[[nodiscard]] std::string_view name_of(int kind) noexcept;
/// @return the name of an ncclRedOp_t; "" for a call that does not reduce.
[[nodiscard]] std::string_view reduction_of(int kind, int reduction) noexcept;
/// @return kUnknown for a type that is not known.
[[nodiscard]] format::DType dtype_of(int type) noexcept;

struct Elements {
  uint64_t sent = 0;
  uint64_t received = 0;
};
/// @return the numbers of elements of this rank's buffers that are sent to others, and written.
[[nodiscard]] Elements elements_of(const convtrace_nccl_call& call, uint32_t rank,
                                   uint32_t size) noexcept;

}  // namespace convtrace::engine
