#include "tools/trace/read/shared_names.h"

namespace convtrace::diff {

using format::StringId;

StringId SharedNames::of(const format::Definitions& texts, StringId local) {
  if (!local) return {};
  if (local.value >= ids_.size()) ids_.resize(local.value + size_t{1});
  StringId& id = ids_[local.value];
  if (!id) id = names_.intern(texts.text(local));
  return id;
}

const SharedNames::Slot& SharedNames::slot(const format::Definitions& texts, StringId local) {
  if (local.value >= slots_.size()) slots_.resize(local.value + size_t{1});
  Slot& slot = slots_[local.value];
  if (!slot.id && local) {
    const std::string_view text = texts.text(local);
    slot = {of(texts, local), names_.intern(name_of(text)), role_of(text), number_of(text)};
  }
  return slot;
}

}  // namespace convtrace::diff
