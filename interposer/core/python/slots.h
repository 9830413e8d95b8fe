#pragma once
/// @file slots.h
/// Attributes of the observer's own objects, read where they lie.
///
/// Place:    under hot_path.h. The classes have __slots__; an attribute lies at one place in all
///           instances of a class and of those derived from it, which takes a load to read where a
///           look-up by name takes about 40 ns.
/// Threads:  those that hold the GIL.

#include <initializer_list>
#include <utility>

#include "interposer/core/python/api.h"

namespace convtrace::python {

/// One attribute of a class with __slots__.
class Slot {
 public:
  /// @return the attribute, borrowed; null with Python's error set, if it has no value.
  [[nodiscard]] PyObject* of(PyObject* object) const {
    PyObject* const value = place(object);
    if (value == nullptr) api.PyErr_SetString(*api.PyExc_RuntimeError, "a slot without a value");
    return value;
  }
  /// @return false with Python's error set, also where `value` is null.
  [[nodiscard]] bool set(PyObject* object, PyObject* value) const {
    if (value == nullptr) return false;
    api.Py_IncRef(value);
    const Ref before(std::exchange(place(object), value));
    return true;
  }
  [[nodiscard]] bool set(PyObject* object, const Ref& value) const {
    return set(object, value.get());
  }

 private:
  friend bool find_slots(PyObject* kind,
                         std::initializer_list<std::pair<Slot&, const char*>> slots);
  [[nodiscard]] PyObject*& place(PyObject* object) const {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset_);
  }
  size_t offset_ = 0;
};

/// Finds where a class has its attributes, from an instance in which a mark is put at each.
/// @return false with Python's error set, if one is not a slot.
inline bool find_slots(PyObject* kind, std::initializer_list<std::pair<Slot&, const char*>> slots) {
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
    while (slot.offset_ < bytes && slot.place(instance.get()) != mark.get())
      slot.offset_ += sizeof(PyObject*);
    if (slot.offset_ >= bytes) {
      api.PyErr_SetString(*api.PyExc_RuntimeError, text);
      return false;
    }
  }
  return true;
}

}  // namespace convtrace::python
