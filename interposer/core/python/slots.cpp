#include "interposer/core/python/slots.h"

namespace convtrace::python {

bool find_slots(PyObject* kind, std::initializer_list<std::pair<Slot&, const char*>> slots) {
  const Ref make(api.PyUnicode_InternFromString("__new__"));
  const Ref size(api.PyUnicode_InternFromString("__basicsize__"));
  if (!make || !size) return false;
  const uint64_t bytes = word(attribute(kind, size.get()));
  const Ref instance = method(kind, make.get(), {kind});
  if (failed(bytes) || !instance) return false;
  for (const auto& [slot, text] : slots) {
    const Ref name(api.PyUnicode_InternFromString(text)), mark(api.PyDict_New());
    if (!name || !mark || !assign(instance.get(), name.get(), mark.get())) return false;
    slot.offset_ = sizeof(PyObject);
    while (slot.offset_ < bytes && slot.place(instance.get()) != mark.get()) {
      slot.offset_ += sizeof(PyObject*);
    }
    if (slot.offset_ >= bytes) {
      api.PyErr_SetString(*api.PyExc_RuntimeError, text);
      return false;
    }
  }
  return true;
}

}  // namespace convtrace::python
