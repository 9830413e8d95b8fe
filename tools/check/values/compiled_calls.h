#pragma once
/// @file compiled_calls.h
/// The calls of fused kernels in compiled regions, as checks read them.
///
/// Threads:  plain values, which borrow from a step.
/// Source:   docs/recording.md "Compiled regions", facts `compiled_made.SCOPE.OP`.

#include <map>
#include <string>
#include <vector>

#include "tools/check/model/check.h"

namespace convtrace::check {

/// One run of a fused kernel.
struct KernelCall {
  std::vector<const Value*> inputs{}, outputs{};
  uint32_t occurrence = 0;  ///< number among the step's calls with the same CallKey
  CallKey key;
};

/// @return in the order of execution.
[[nodiscard]] std::vector<KernelCall> kernel_calls(const StepValues& step,
                                                   const format::Definitions& names);

/// @return for each output's slot without its role ("out_ptr0"), the names of its sources among the
/// inputs, by the kernel's source code; empty if they are unknown.
[[nodiscard]] std::map<std::string, std::vector<std::string>, std::less<>> made_of(
    const Facts& facts, const format::Definitions& names, const KernelCall& call);

/// @return whether equal bits prove that such a value was not written: floats of 32 bits and more,
/// whose rounding does not hide a small change, 16 or more elements, not one number, all finite.
[[nodiscard]] bool tells_writes(const Value& value);

/// @return "cpp_fused_gelu_2 of module h.0.mlp, region 0/0 forward"; not escaped.
[[nodiscard]] std::string kernel_text(const Facts& facts, const format::Definitions& names,
                                      const CallKey& key);

}  // namespace convtrace::check
