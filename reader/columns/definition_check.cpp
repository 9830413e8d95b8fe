#include "reader/columns/definition_check.h"

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
  return format::visit_event([this](const auto& e) { return resolves(e); }, event);
}

}  // namespace convtrace::reader
