#pragma once
/// @file operation.h
/// The kind of collective of a call, from the texts of format/FORMAT.md 6.5.

#include <cstdint>
#include <string_view>

namespace convtrace::origin {

enum class Operation : uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kRecv,
  kOther,
};

enum class Reduction : uint8_t { kNone, kSum, kAvg, kMin, kMax, kOther };

[[nodiscard]] constexpr Operation op_of(std::string_view text) {
  constexpr std::string_view kNames[] = {"all_reduce",     "broadcast", "reduce",  "all_gather",
                                         "reduce_scatter", "gather",    "scatter", "all_to_all",
                                         "barrier",        "send",      "recv"};
  uint8_t number = 0;
  for (const std::string_view name : kNames) {
    if (text == name) return static_cast<Operation>(number);
    ++number;
  }
  return Operation::kOther;
}

[[nodiscard]] constexpr Reduction reduction_of(std::string_view text) {
  if (text.empty()) return Reduction::kNone;
  if (text == "sum") return Reduction::kSum;
  if (text == "avg") return Reduction::kAvg;
  if (text == "min") return Reduction::kMin;
  if (text == "max") return Reduction::kMax;
  return Reduction::kOther;
}

[[nodiscard]] constexpr bool is_transfer(Operation op) {
  return op == Operation::kSend || op == Operation::kRecv;
}
/// @return whether one member sends to, or receives from, all others.
[[nodiscard]] constexpr bool has_root(Operation op) {
  return op == Operation::kBroadcast || op == Operation::kReduce || op == Operation::kGather ||
         op == Operation::kScatter;
}
[[nodiscard]] constexpr bool reduces(Operation op) {
  return op == Operation::kAllReduce || op == Operation::kReduce || op == Operation::kReduceScatter;
}

}  // namespace convtrace::origin
