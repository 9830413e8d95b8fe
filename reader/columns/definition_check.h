#pragma once
/// @file definition_check.h
/// Checks whether all ids in an event are defined in the trace.
///
/// Why:      a definition may be lost with its record while events that use it survive. Such an
///           event is counted instead of being shown with a wrong or empty name.
/// Memory:   one bit for each id, computed once.

#include <algorithm>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::reader {

class DefinitionCheck {
 public:
  DefinitionCheck() = default;
  explicit DefinitionCheck(const format::Definitions& definitions);

  /// @return whether all ids of `event` are none or defined, including those in the definitions of
  /// kernels and stacks.
  [[nodiscard]] bool resolves(const format::Event& event) const {
    return format::visit_event([this](const auto& e) { return resolves(e); }, event);
  }
  template <typename Kind>
  [[nodiscard]] bool resolves(const Kind& event) const {
    bool all_known = true;
    format::each_column(event, [&](auto, const char*, const auto& value) {
      if constexpr (requires { known(value); }) all_known &= known(value);
    });
    return all_known;
  }

 private:
  [[nodiscard]] bool known(format::StringId id) const { return test(strings_, id.value); }
  [[nodiscard]] bool known(format::KernelId id) const { return test(kernels_, id.value); }
  [[nodiscard]] bool known(format::StackId id) const { return test(stacks_, id.value); }
  static bool test(const std::vector<bool>& bits, uint32_t id) {
    return id == 0 || (id < bits.size() && bits[id]);
  }

  // Indexed by id.
  std::vector<bool> strings_, kernels_, stacks_;
};

inline DefinitionCheck::DefinitionCheck(const format::Definitions& definitions) {
  const format::Definitions::Counts counts = definitions.counts();
  strings_.resize(size_t{counts.strings} + 1);
  kernels_.resize(size_t{counts.kernels} + 1);
  stacks_.resize(size_t{counts.stacks} + 1);
  for (format::StringId id; (id = definitions.next(id));) strings_[id.value] = true;
  for (format::KernelId id; (id = definitions.next(id));) {
    const format::KernelDef kernel = definitions.kernel(id);
    kernels_[id.value] = known(kernel.name) && known(kernel.family);
  }
  for (format::StackId id; (id = definitions.next(id));) {
    stacks_[id.value] = std::ranges::all_of(
        definitions.stack(id), [this](format::StringId frame) { return known(frame); });
  }
}

}  // namespace convtrace::reader
