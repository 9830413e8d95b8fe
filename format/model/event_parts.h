#pragma once
/// @file event_parts.h
/// Parts that several kinds of events share: headers, places, devices, identities of values.

#include <cstdint>

#include "format/model/event_enums.h"
#include "format/model/fields.h"
#include "format/model/ids.h"

namespace convtrace::format {

/// The step of a record whose step is not known. Steps count from 0; records before the first
/// forward have step 0.
inline constexpr uint32_t kNoStep = 0xFFFFFFFF;

/// A device: `cpu` (index 0) or `cuda:<index>`; kOther is any other device of a framework.
struct Device {
  enum class Type : uint8_t { kCpu = 0, kCuda = 1, kOther = 2 };
  Type type = Type::kCpu;
  uint8_t index = 0;
  constexpr bool operator==(const Device&) const = default;
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kPart<0>, "device_type", e.type);
    visit(kPart<1>, "device_index", e.index);
  }
};
template <>
inline constexpr size_t kEnumCount<Device::Type> = 3;

/// Common to all events.
struct EventHeader {
  uint64_t seq = 0;     ///< strictly ascending in a file; set by the writer
  uint64_t t_ns = 0;    ///< CLOCK_MONOTONIC
  uint32_t step = 0;    ///< training step, or kNoStep
  uint32_t thread = 0;  ///< native thread id (gettid)
};

/// Where in the training program something happened. Contains no addresses, times or module
/// indices, so two runs that do the same have equal places.
struct Place {
  StringId scope;     ///< qualified module name; "" (an interned empty text) is the root, none =
                      ///< outside any module
  uint32_t call = 0;  ///< number of earlier calls of this scope in this step and phase
  Phase phase = Phase::kForward;
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kPart<0>, "scope", e.scope);
    visit(kPart<1>, "call", e.call);
    visit(kPart<2>, "phase", e.phase);
  }
};

/// A word of a kernel's parameters that points into known memory.
struct Operand {
  uint16_t param = 0;  ///< kernel parameter position
  uint16_t word = 0;   ///< byte offset of the word inside the parameter
  Confidence confidence = Confidence::kPointerBase;
  uint64_t address = 0;
  uint64_t generation = 0;  ///< generation of the memory it points into; 0: unknown
  uint64_t offset = 0;      ///< bytes from the generation's base
};

/// Identity of a value: the storage, its allocation, and the number of in-place writes that the
/// framework has counted. Two records of one run with equal identities should have the same bytes.
struct ValueId {
  /// Identity of the storage that owns the memory; never reused inside a trace.
  uint64_t storage = 0;
  uint64_t offset = 0;      ///< bytes from the storage's base
  uint64_t generation = 0;  ///< generation of the allocation below it; 0: unknown
  uint32_t version = 0;     ///< framework's in-place version counter
  constexpr bool operator==(const ValueId&) const = default;
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kPart<0>, "storage", e.storage);
    visit(kPart<1>, "storage_offset", e.offset);
    visit(kPart<2>, "generation", e.generation);
    visit(kPart<3>, "version", e.version);
  }
};

}  // namespace convtrace::format
