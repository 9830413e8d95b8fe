#pragma once
/// @file bias_gradients.h
/// Gradients of biases beside those of their modules' outputs, whose elements have the same sum in
/// layers of torch that add a bias.
///
/// Threads:  any.

#include <string_view>

#include "tools/check/model/check.h"

namespace convtrace::check {

/// The largest difference of two equal sums, as a share of the added magnitudes.
inline constexpr double kSameSums = 1e-3;

[[nodiscard]] inline bool adds_a_bias(std::string_view kind) {
  return kind == "Linear" || kind.starts_with("Conv") || kind.ends_with("Norm") ||
         kind.starts_with("BatchNorm");
}

/// Calls `see(parameter, its gradient as the backward pass left it, gradients of its module's
/// outputs)` for each that is finite.
template <typename See>
void for_each_bias(const StepValues& step, const Surroundings& around, const See& see) {
  for (const auto& [parameter, seen] : step.parameters) {
    const Value* const gradient = seen.of_backward();
    if (gradient == nullptr || around.names.text(parameter.name) != "bias" || !gradient->finite() ||
        !around.facts.is_torchs(parameter.scope) ||
        !adds_a_bias(around.facts.class_of(parameter.scope)))
      continue;
    const auto outputs = step.grad_outputs.find(parameter.scope);
    if (outputs != step.grad_outputs.end()) see(parameter, *gradient, outputs->second);
  }
}

}  // namespace convtrace::check
