#include "cupti/operands.h"

#include <cstring>

namespace convtrace::cupti {
namespace {

using format::Confidence;

constexpr size_t kWord = sizeof(uint64_t);

Confidence confidence(bool whole_parameter, bool at_base) {
  if (whole_parameter) return at_base ? Confidence::kPointerBase : Confidence::kPointerInterior;
  return at_base ? Confidence::kWordBase : Confidence::kWordInterior;
}

}  // namespace

size_t scan_operands(const LaunchInfo& launch, std::span<const ParamLayout> layout,
                     const AddressMap& addresses, std::span<format::Operand> operands) {
  const LaunchParams params(launch);
  size_t found = 0;
  for (size_t index = 0; index < layout.size(); ++index) {
    const ParamLayout& place = layout[index];
    const auto bytes = params.bytes_of(index, place.offset, place.bytes);
    const size_t first = (kWord - place.offset % kWord) % kWord;  // words are aligned on the device
    for (size_t at = first; at + kWord <= bytes.size(); at += kWord) {
      uint64_t address = 0;
      std::memcpy(&address, bytes.data() + at, kWord);
      const MemoryLife life = addresses.life_at(address);
      if (life.generation == 0) continue;
      if (found == operands.size()) return found;
      format::Operand& operand = operands[found++];
      operand.param = static_cast<uint16_t>(index);
      operand.word = static_cast<uint16_t>(at);
      operand.confidence = confidence(bytes.size() == kWord, address == life.base);
      operand.address = address;
      operand.generation = life.generation;
      operand.offset = address - life.base;
    }
  }
  return found;
}

}  // namespace convtrace::cupti
