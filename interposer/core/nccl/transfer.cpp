#include "interposer/core/nccl/transfer.h"

#include <iterator>

namespace convtrace::engine {

bool has_peer(int kind) noexcept {
  switch (kind) {
    case CONVTRACE_NCCL_BROADCAST:
    case CONVTRACE_NCCL_REDUCE:
    case CONVTRACE_NCCL_GATHER:
    case CONVTRACE_NCCL_SCATTER:
    case CONVTRACE_NCCL_SEND:
    case CONVTRACE_NCCL_RECV: return true;
    default: return false;
  }
}

std::string_view name_of(int kind) noexcept {
  constexpr std::string_view kNames[] = {"all_reduce",     "broadcast",  "reduce", "all_gather",
                                         "reduce_scatter", "all_to_all", "gather", "scatter",
                                         "send",           "recv"};
  return is_transfer(kind) ? kNames[kind] : std::string_view();
}

std::string_view reduction_of(int kind, int reduction) noexcept {
  constexpr std::string_view kNames[] = {"sum", "product", "max", "min", "avg"};
  if (kind != CONVTRACE_NCCL_ALL_REDUCE && kind != CONVTRACE_NCCL_REDUCE &&
      kind != CONVTRACE_NCCL_REDUCE_SCATTER) {
    return {};
  }
  if (reduction < 0) return {};
  // Others are made by ncclRedOpCreatePreMulSum, the only function that makes any.
  return reduction < static_cast<int>(std::size(kNames)) ? kNames[reduction] : "premul_sum";
}

format::DType dtype_of(int type) noexcept {
  using enum format::DType;
  constexpr format::DType kTypes[] = {kI8,  kU8,  kI32, kU32,  kI64,      kU64,
                                      kF16, kF32, kF64, kBF16, kF8E4M3FN, kF8E5M2};
  return type >= 0 && type < static_cast<int>(std::size(kTypes)) ? kTypes[type] : kUnknown;
}

Elements elements_of(const convtrace_nccl_call& call, uint32_t rank, uint32_t size) noexcept {
  const uint64_t count = call.count;
  const uint64_t all = count * size;
  const bool is_root = call.peer >= 0 && static_cast<uint32_t>(call.peer) == rank;
  switch (call.kind) {
    case CONVTRACE_NCCL_ALL_REDUCE: return {count, count};
    case CONVTRACE_NCCL_BROADCAST: return {is_root ? count : 0, count};
    case CONVTRACE_NCCL_REDUCE: return {count, is_root ? count : 0};
    case CONVTRACE_NCCL_ALL_GATHER: return {count, all};
    case CONVTRACE_NCCL_REDUCE_SCATTER: return {all, count};
    case CONVTRACE_NCCL_ALL_TO_ALL: return {all, all};
    case CONVTRACE_NCCL_GATHER: return {count, is_root ? all : 0};
    case CONVTRACE_NCCL_SCATTER: return {is_root ? all : 0, count};
    case CONVTRACE_NCCL_SEND: return {count, 0};
    case CONVTRACE_NCCL_RECV: return {0, count};
    default: return {};
  }
}

}  // namespace convtrace::engine
