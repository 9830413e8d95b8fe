#pragma once
/// @file options.h
/// What job to make up.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::simulate {

enum class FaultKind : uint8_t { kNan, kScale, kLost, kFlip, kSkip, kSwap, kStale };
inline constexpr std::string_view kFaultNames[] = {"nan",  "scale", "lost", "flip",
                                                   "skip", "swap",  "stale"};

/// Where a fault is to be planted.
struct Origin {
  uint32_t rank = 0, step = 0;
  FaultKind kind = FaultKind::kNan;
};

/// Of activations and what is sent of them; parameters and their gradients are f32.
enum class Types : uint8_t { kMixed, kF32, kBF16 };
inline constexpr std::string_view kTypeNames[] = {"mixed", "f32", "bf16"};

/// 0: to be chosen.
struct Options {
  uint32_t ranks = 1, steps = 1;
  uint32_t data = 0, tensor = 0, stages = 0;
  uint32_t collectives = 0;  ///< about so many a rank and step
  uint32_t elements = 0;     ///< of an activation and of a weight
  uint32_t micro_batches = 0;
  uint32_t threads = 0;
  uint64_t seed = 0;
  Types types = Types::kMixed;
  bool cheap = false;    ///< small tensors, few values beside those of collectives
  bool sharded = false;  ///< gradients and updates are divided among replicas
  std::vector<Origin> origins;
  std::string output;
};

}  // namespace convtrace::simulate
