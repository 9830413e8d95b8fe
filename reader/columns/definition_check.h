#pragma once
/// @file definition_check.h
/// Whether everything an event names is defined in the trace.
///
/// Why:      a definition can be lost with its record while the events that use it survive; such an
///           event is counted, not shown with a wrong or empty name.
/// Memory:   one bit an id, computed once.

#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::reader {

class DefinitionCheck {
 public:
  DefinitionCheck() = default;
  explicit DefinitionCheck(const format::Definitions& definitions);

  /// @return whether all ids of `event` are none or defined, down to the texts of kernels and stack
  /// frames.
  [[nodiscard]] bool resolves(const format::Event& event) const;
  [[nodiscard]] bool resolves(const format::Launch& e) const;
  [[nodiscard]] bool resolves(const format::TensorStats& e) const;
  [[nodiscard]] bool resolves(const format::Finding& e) const;
  [[nodiscard]] bool resolves(const format::Alloc& e) const { return known(e.stack); }
  [[nodiscard]] bool resolves(const format::Free& e) const { return known(e.stack); }
  [[nodiscard]] bool resolves(const format::Scope& e) const { return known(e.place.scope); }
  [[nodiscard]] bool resolves(const format::Copy&) const { return true; }
  [[nodiscard]] bool resolves(const format::Step&) const { return true; }
  [[nodiscard]] bool resolves(const format::Diagnostic&) const { return true; }
  [[nodiscard]] bool resolves(const format::Loss&) const { return true; }
  [[nodiscard]] bool resolves(const format::Cost&) const { return true; }
  [[nodiscard]] bool resolves(const format::Sync&) const { return true; }
  [[nodiscard]] bool resolves(const format::Fact& e) const {
    return known(e.scope) && known(e.name);
  }
  [[nodiscard]] bool resolves(const format::Op& e) const {
    return known(e.place.scope) && known(e.op) && known(e.slot) && known(e.stack);
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

}  // namespace convtrace::reader
