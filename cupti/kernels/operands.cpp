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

/// The distance from the parameter's begin to its first aligned word, as it lies on the device.
size_t first_aligned(size_t offset, size_t alignment) {
  return (alignment - offset % alignment) % alignment;
}

/// A struct has the alignment of the maps in it, wherever it lies in the host's buffer.
bool may_begin_map(const ParamWord& place) {
  return place.left >= TensorMaps::kBytes && place.word % TensorMaps::kAlignment == 0;
}

}  // namespace

std::vector<ParamWord> words_of(std::span<const ParamLayout> params) {
  std::vector<ParamWord> words;
  for (size_t i = 0; i < params.size(); ++i) {
    const auto [offset, bytes] = params[i];
    for (size_t at = first_aligned(offset, kWord); at + kWord <= bytes; at += kWord)
      words.push_back({static_cast<uint16_t>(i), static_cast<uint16_t>(at),
                       static_cast<uint16_t>(bytes - at), static_cast<uint16_t>(offset)});
  }
  return words;
}

size_t scan_operands(const LaunchInfo& launch, std::span<const ParamWord> words,
                     const AddressMap& addresses, const TensorMaps& tensor_maps,
                     std::span<format::Operand> operands) {
  const LaunchParams params(launch);
  const bool any_map = tensor_maps.any();
  size_t found = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const ParamWord& place = words[i];
    const auto bytes = params.bytes_of(place.param, place.offset, size_t{place.word} + place.left);
    if (bytes.data() == nullptr) continue;
    const std::byte* const begin = bytes.data() + place.word;
    size_t size = kWord;
    uint64_t address = 0;
    std::memcpy(&address, begin, kWord);
    if (any_map && may_begin_map(place)) {
      if (const uint64_t mapped = tensor_maps.find(begin)) {
        address = mapped;
        size = TensorMaps::kBytes;
        i += size / kWord - 1;
      }
    }
    const MemoryAllocation allocation = addresses.allocation_at(address);
    if (allocation.generation == 0) continue;
    if (found == operands.size()) break;
    const bool whole = place.word == 0 && place.left == size;
    operands[found++] = {.param = place.param,
                         .word = place.word,
                         .confidence = confidence(whole, address == allocation.base),
                         .address = address,
                         .generation = allocation.generation,
                         .offset = address - allocation.base};
  }
  return found;
}

}  // namespace convtrace::cupti
