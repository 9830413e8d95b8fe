#include "cupti/kernels/operands.h"

#include <cstring>

namespace convtrace::cupti {
namespace {

using format::Confidence;

constexpr size_t kWord = sizeof(uint64_t);

Confidence confidence(bool whole_parameter, bool at_base) {
  if (whole_parameter) return at_base ? Confidence::kPointerBase : Confidence::kPointerInterior;
  return at_base ? Confidence::kWordBase : Confidence::kWordInterior;
}

/// Looks words up and stores the hits until there is no more room.
class Scan {
 public:
  Scan(const AddressMap& addresses, std::span<format::Operand> operands)
      : addresses_(addresses), operands_(operands) {}

  [[nodiscard]] size_t found() const { return found_; }

  /// @return false if there was no room for a hit.
  bool look_up(uint64_t address, size_t param, size_t word, bool whole_parameter) {
    const MemoryAllocation allocation = addresses_.allocation_at(address);
    if (allocation.generation == 0) return true;
    if (found_ == operands_.size()) return false;
    format::Operand& operand = operands_[found_++];
    operand.param = static_cast<uint16_t>(param);
    operand.word = static_cast<uint16_t>(word);
    operand.confidence = confidence(whole_parameter, address == allocation.base);
    operand.address = address;
    operand.generation = allocation.generation;
    operand.offset = address - allocation.base;
    return true;
  }

 private:
  const AddressMap& addresses_;
  std::span<format::Operand> operands_;
  size_t found_ = 0;
};

/// The distance from the parameter's begin to its first aligned word, as it lies on the device.
size_t first_aligned(size_t offset, size_t alignment) {
  return (alignment - offset % alignment) % alignment;
}

}  // namespace

size_t scan_operands(const LaunchInfo& launch, std::span<const ParamLayout> layout,
                     const AddressMap& addresses, const TensorMaps& tensor_maps,
                     std::span<format::Operand> operands) {
  const LaunchParams params(launch);
  Scan scan(addresses, operands);
  for (size_t index = 0; index < layout.size(); ++index) {
    const ParamLayout& place = layout[index];
    if (place.bytes < kWord) continue;  // many are just numbers
    const auto bytes = params.bytes_of(index, place.offset, place.bytes);
    const bool may_hold_map = bytes.size() >= TensorMaps::kBytes && tensor_maps.any();
    for (size_t at = first_aligned(place.offset, kWord); at + kWord <= bytes.size();) {
      uint64_t address = 0;
      // A struct has the alignment of the maps in it, wherever it lies in the host's buffer.
      if (may_hold_map && at % TensorMaps::kAlignment == 0 &&
          bytes.size() - at >= TensorMaps::kBytes) {
        address = tensor_maps.find(bytes.data() + at);
      }
      const size_t size = address == 0 ? kWord : TensorMaps::kBytes;
      if (address == 0) std::memcpy(&address, bytes.data() + at, kWord);
      if (!scan.look_up(address, index, at, bytes.size() == size)) return scan.found();
      at += size;
    }
  }
  return scan.found();
}

}  // namespace convtrace::cupti
