#include "reader/definition_check.h"

#include <algorithm>

namespace convtrace::reader {

using namespace format;

DefinitionCheck::DefinitionCheck(const Definitions& definitions) {
  const Definitions::Counts counts = definitions.counts();
  strings_.resize(size_t{counts.strings} + 1);
  kernels_.resize(size_t{counts.kernels} + 1);
  stacks_.resize(size_t{counts.stacks} + 1);
  for (StringId id; (id = definitions.next(id));) strings_[id.value] = true;
  for (KernelId id; (id = definitions.next(id));) {
    const KernelDef kernel = definitions.kernel(id);
    kernels_[id.value] = known(kernel.name) && known(kernel.family);
  }
  for (StackId id; (id = definitions.next(id));) {
    stacks_[id.value] =
        std::ranges::all_of(definitions.stack(id), [this](StringId frame) { return known(frame); });
  }
}

bool DefinitionCheck::resolves(const Event& event) const {
  struct Visitor {
    const DefinitionCheck& check;
    bool operator()(const Launch& e) const {
      return check.known(e.place.scope) && check.known(e.kernel);
    }
    bool operator()(const TensorStats& e) const {
      return check.known(e.place.scope) && check.known(e.slot) && check.known(e.op) &&
             check.known(e.kernel);
    }
    bool operator()(const Alloc& e) const { return check.known(e.stack); }
    bool operator()(const Free& e) const { return check.known(e.stack); }
    bool operator()(const Scope& e) const { return check.known(e.place.scope); }
    bool operator()(const Finding& e) const {
      return check.known(e.place.scope) && check.known(e.op) && check.known(e.kernel) &&
             check.known(e.slot) && check.known(e.other) && check.known(e.alloc_stack) &&
             check.known(e.launch_stack) && check.known(e.free_stack);
    }
    bool operator()(const Copy&) const { return true; }
    bool operator()(const Step&) const { return true; }
    bool operator()(const Diagnostic&) const { return true; }
    bool operator()(const Loss&) const { return true; }
    bool operator()(const Cost&) const { return true; }
  };
  return std::visit(Visitor{*this}, event);
}

}  // namespace convtrace::reader
