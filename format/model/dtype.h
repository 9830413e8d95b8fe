#pragma once
/// @file dtype.h
/// Element types of tensors, their sizes and the spelling used in traces, rules and JSON.

#include <cstdint>
#include <optional>
#include <string_view>

#include "format/base/named_enum.h"

namespace convtrace::format {

/// Name, stored value, spelling, bytes of one element as shapes and strides count them. Values are
/// stored in traces: append only, never renumber.
#define CONVTRACE_DTYPES(X)       \
  X(kUnknown, 0, "unknown", 1)    \
  X(kF64, 1, "f64", 8)            \
  X(kF32, 2, "f32", 4)            \
  X(kF16, 3, "f16", 2)            \
  X(kBF16, 4, "bf16", 2)          \
  X(kF8E4M3FN, 5, "f8e4m3fn", 1)  \
  X(kF8E5M2, 6, "f8e5m2", 1)      \
  X(kI8, 7, "i8", 1)              \
  X(kU8, 8, "u8", 1)              \
  X(kI16, 9, "i16", 2)            \
  X(kU16, 10, "u16", 2)           \
  X(kI32, 11, "i32", 4)           \
  X(kU32, 12, "u32", 4)           \
  X(kI64, 13, "i64", 8)           \
  X(kU64, 14, "u64", 8)           \
  X(kBool, 15, "bool", 1)         \
  X(kC64, 16, "c64", 8)           \
  X(kC128, 17, "c128", 16)        \
  X(kF4E2M1FN, 18, "f4e2m1fn", 1) \
  X(kF8E8M0FNU, 19, "f8e8m0fnu", 1)

enum class DType : uint8_t {
#define CONVTRACE_X(name, value, text, bytes) name = value,
  CONVTRACE_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
};

template <>
inline constexpr size_t kEnumCount<DType> = 0
#define CONVTRACE_X(name, value, text, bytes) +1
    CONVTRACE_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    ;

/// @return spelling in traces and JSON ("bf16"), static storage.
constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
#define CONVTRACE_X(name, value, text, bytes) \
  case DType::name: return text;
    CONVTRACE_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
  }
  return "unknown";
}

/// @return bytes of one element; 1 for kUnknown (bytes are its elements) and for kF4E2M1FN, whose
/// element is the byte that two values share.
constexpr uint32_t element_bytes(DType dtype) {
  switch (dtype) {
#define CONVTRACE_X(name, value, text, bytes) \
  case DType::name: return bytes;
    CONVTRACE_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
  }
  return 1;
}

/// @return real numbers in one element, each of which counts in statistics.
constexpr uint32_t values_in_element(DType dtype) {
  return dtype == DType::kC64 || dtype == DType::kC128 || dtype == DType::kF4E2M1FN ? 2 : 1;
}

/// @return the largest finite value; 0 for types without infinity or NaN.
constexpr double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kC128: return 0x1.fffffffffffffp1023;
    case DType::kF32:
    case DType::kC64: return 0x1.fffffep127;
    case DType::kBF16: return 0x1.fep127;
    case DType::kF16: return 65504;
    case DType::kF8E5M2: return 57344;
    case DType::kF8E4M3FN: return 448;
    case DType::kF8E8M0FNU: return 0x1p127;
    default: return 0;
  }
}

constexpr std::optional<DType> dtype_from_string(std::string_view text) {
#define CONVTRACE_X(name, value, spelling, bytes) \
  if (text == (spelling)) return DType::name;
  CONVTRACE_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
  return std::nullopt;
}

/// How the numbers of a Stats are to be read (see format/model/stats.h).
enum class NumberClass : uint8_t { kFloat, kSigned, kUnsigned, kBytes };

constexpr NumberClass number_class(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
    case DType::kC64:
    case DType::kC128:
    case DType::kF4E2M1FN:
    case DType::kF8E8M0FNU: return NumberClass::kFloat;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64: return NumberClass::kSigned;
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
    case DType::kBool: return NumberClass::kUnsigned;
    case DType::kUnknown: return NumberClass::kBytes;
  }
  return NumberClass::kBytes;
}

}  // namespace convtrace::format
