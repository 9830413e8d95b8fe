#pragma once
/// @file kernel_signature.h
/// Names and types of a kernel's parameters, from a compiler that knows them (Triton). The driver
/// knows only where each parameter lies and how long it is.
///
/// Place:    parsed_messages.h makes it from the observer's message; function_table.h applies it.
/// Threads:  plain values.

#include <cstddef>
#include <string>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/dtype.h"

namespace convtrace::cupti {

struct KernelSignature {
  struct Param {
    format::StringId slot;  ///< slot of its values: "arg:x_ptr"
    bool is_pointer = false;
    format::DType dtype = format::DType::kUnknown;  ///< type of the elements a pointer points to
  };

  std::string kernel;  ///< as the driver names it
  std::vector<Param> params;

  /// Parameters that compilers append are not in a signature (Triton: two for scratch memory).
  static constexpr size_t kMostAppended = 4;
};

}  // namespace convtrace::cupti
