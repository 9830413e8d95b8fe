#pragma once
/// @file cubin_layout.h
/// The parameters of each kernel as its cubin describes them, without asking the driver: those
/// before CUDA 12.4 cannot tell.
///
/// Threads:  pure function.
/// Errors:   whatever is damaged, or of a form that is not known, is left out; nothing is read
/// outside the bytes given.
/// Source:   ELF64; the section `.nv.info.<kernel>` holds attributes, among them one for each
/// parameter (EIATTR_KPARAM_INFO). Not documented; checked on cubins of nvcc 13.0 for sm_75 to
/// sm_120 against the layout that the host compiler gives (tests/unit/cupti/cubin_layout_test.cpp).

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cupti/operands.h"

namespace convtrace::cupti {

struct KernelLayout {
  std::string kernel;  ///< mangled
  std::vector<ParamLayout> params;
};

/// @return the kernels whose parameters are all described, in the order of their sections.
[[nodiscard]] std::vector<KernelLayout> read_cubin_layouts(std::span<const std::byte> cubin);

}  // namespace convtrace::cupti
