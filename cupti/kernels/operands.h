#pragma once
/// @file operands.h
/// Finds the parameters of a launch that point into known memory.
///
/// The driver does not say which parameters are pointers, so every aligned 8-byte word of every
/// parameter, structs included, is looked up, and each hit carries a confidence. A tensor map
/// counts as a pointer to the memory that it describes. Pointers that lie in device memory (pointer
/// tables) cannot be seen.
///
/// Threads:  reentrant.

#include <cstdint>
#include <span>
#include <vector>

#include "cupti/calls/launch_decoder.h"
#include "cupti/kernels/tensor_maps.h"
#include "cupti/memory/address_map.h"
#include "format/model/events.h"

namespace convtrace::cupti {

/// Place of one parameter in the parameter buffer.
struct ParamLayout {
  size_t offset = 0;
  size_t bytes = 0;
  bool operator==(const ParamLayout&) const = default;
};

/// An aligned word of a parameter, as it lies on the device. A kernel's words are listed once, since
/// every launch goes through them.
struct ParamWord {
  uint16_t param = 0;
  uint16_t word = 0;    ///< bytes from the begin of the parameter
  uint16_t left = 0;    ///< bytes of the parameter from here on
  uint16_t offset = 0;  ///< bytes from the begin of the parameter buffer to the parameter
};
std::vector<ParamWord> words_of(std::span<const ParamLayout> params);

/// More pointers than this in one launch are not recorded.
inline constexpr size_t kMaxOperands = 256;

/// @param words  of the kernel.
/// @param[out] operands filled from the front, in order of parameter and word.
/// @return how many were found, at most operands.size().
size_t scan_operands(const LaunchInfo& launch, std::span<const ParamWord> words,
                     const AddressMap& addresses, const TensorMaps& tensor_maps,
                     std::span<format::Operand> operands);

/// Lowers the confidence of all operands to that of a word. Called where the latest reports of
/// allocators are not known, because the memory may belong to another owner by now.
inline void doubt(std::span<format::Operand> operands) {
  for (format::Operand& operand : operands) {
    using enum format::Confidence;
    if (operand.confidence == kPointerBase) operand.confidence = kWordBase;
    if (operand.confidence == kPointerInterior) operand.confidence = kWordInterior;
  }
}

}  // namespace convtrace::cupti
