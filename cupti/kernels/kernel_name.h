#pragma once
/// @file kernel_name.h
/// Converts the driver's name of a kernel into the names that people read and that the diff pairs
/// by.
///
/// Place:    once per kernel, off the hot path (about 4 us a name).
/// Threads:  reentrant.
/// Errors:   none: a name that cannot be demangled (Triton's, C kernels) is kept as it is.

#include <string>

namespace convtrace::cupti {

/// @return the C++ spelling of an Itanium-mangled name, else `name` itself.
[[nodiscard]] std::string demangle(const std::string& name);

/// The name with everything removed that differs between two builds of one program: numbers of
/// lambdas, anonymous namespaces and those that name a build (nvcc's file hashes, the versions of
/// CUB, Thrust and libcu++), Triton's signature suffix, the running numbers that TorchInductor, XLA
/// and Numba give.
///
/// @param demangled from demangle().
[[nodiscard]] std::string kernel_family(const std::string& demangled);

}  // namespace convtrace::cupti
