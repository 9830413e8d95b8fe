#pragma once
/// @file api.h
/// Python's stable ABI, found in the process: the functions and objects of api.def as pointers.
///
/// Place:    under hot_path.h. Nothing of Python is linked or included, so the core library loads in
///           processes without Python.
/// Threads:  load() and all functions: threads that hold the GIL.
/// Source:   docs.python.org/3/c-api/stable.html. Layouts below are part of that ABI, except in
///           free-threaded builds and builds with Py_TRACE_REFS, where base/native.py does not load
///           this part.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace convtrace::python {

using Py_ssize_t = ptrdiff_t;

struct PyObject {
  Py_ssize_t refcount;
  PyObject* type;
};

struct PyMethodDef {
  const char* name;
  PyObject* (*function)(PyObject* self, PyObject* const* args, Py_ssize_t count);
  int flags;
  const char* doc;
};
inline constexpr int kFastCall = 0x80;    // METH_FASTCALL
inline constexpr int kArguments = 0x1;    // METH_VARARGS
inline constexpr int kKeywords = 0x2;     // METH_KEYWORDS
inline constexpr int kNoArguments = 0x4;  // METH_NOARGS
/// Added to an argument count: the callee may overwrite args[-1]. PY_VECTORCALL_ARGUMENTS_OFFSET
inline constexpr size_t kOffset = size_t{1} << (8 * sizeof(size_t) - 1);

struct Api {
#define CALL(result, name, parameters) result(*name) parameters = nullptr;
#define NEWER(result, name, parameters) CALL(result, name, parameters)
#define OBJECT(name) PyObject* name = nullptr;
#define POINTER(name) PyObject** name = nullptr;
#include "interposer/core/python/api.def"
#undef CALL
#undef NEWER
#undef OBJECT
#undef POINTER
  /// Looks everything up. @return false if anything that must be there is missing.
  bool load();
};

/// Filled once, by the first load().
extern Api api;

/// An owned reference, or null after an error of Python.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) api.Py_DecRef(object_);
  }
  /// A new reference to a borrowed object, which may be null.
  static Ref to(PyObject* borrowed) {
    if (borrowed != nullptr) api.Py_IncRef(borrowed);
    return Ref(borrowed);
  }
  [[nodiscard]] PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

inline Ref none() { return Ref::to(api._Py_NoneStruct); }
inline bool is_none(const PyObject* object) { return object == api._Py_NoneStruct; }
/// None and False, the usual falsehoods of getters that give a bool.
inline bool is_true(const PyObject* object) { return object == api._Py_TrueStruct; }

inline Ref attribute(PyObject* object, PyObject* name) {
  return Ref(api.PyObject_GetAttr(object, name));
}
/// As attribute(), without running code of the program. Null also for attributes that a TorchScript
/// module keeps in C++, which base/__init__.py reads.
inline Ref own_attribute(PyObject* object, PyObject* name) {
  return Ref(api.PyObject_GenericGetAttr(object, name));
}
inline Ref number(uint64_t value) { return Ref(api.PyLong_FromUnsignedLongLong(value)); }
/// @return the low 64 bits of an integer; all ones, with Python's error set, for null and for other
/// objects.
inline uint64_t word(PyObject* integer) {
  return integer != nullptr ? api.PyLong_AsUnsignedLongLongMask(integer) : ~uint64_t{0};
}
inline uint64_t word(const Ref& integer) { return word(integer.get()); }
/// @return whether a word is what word() gave for an error.
inline bool failed(uint64_t word) {
  return word == ~uint64_t{0} && api.PyErr_Occurred() != nullptr;
}
inline bool failed(const Ref& result) { return !result; }

/// object.name = value. @return false with Python's error set, also where `value` is null.
inline bool assign(PyObject* object, PyObject* name, PyObject* value) {
  return value != nullptr && api.PyObject_SetAttr(object, name, value) == 0;
}
/// @return a borrowed item of a tuple; null with Python's error set, also where `tuple` is null.
inline PyObject* item(PyObject* tuple, Py_ssize_t index) {
  return tuple != nullptr ? api.PyTuple_GetItem(tuple, index) : nullptr;
}

/// (*items), which are borrowed. @return null with Python's error set, also where an item is null.
Ref tuple(std::initializer_list<PyObject*> items);
/// function(*arguments)
Ref call(PyObject* function, std::initializer_list<PyObject*> arguments);
/// object[key], of a class whose code is ours
Ref value_at(PyObject* object, PyObject* key);
/// object.name(*arguments)
Ref method(PyObject* object, PyObject* name, std::initializer_list<PyObject*> arguments = {});

/// A method without arguments that its class has in C: looked up once, then called as a C function.
class CMethod {
 public:
  CMethod& operator=(Ref name) {
    name_ = std::move(name);
    return *this;
  }
  explicit operator bool() const { return static_cast<bool>(name_); }
  /// object.name(). @param object  its class has the same method as the one of the first call.
  Ref operator()(PyObject* object);

 private:
  using Function = PyObject* (*)(PyObject* self, PyObject* unused);

  Ref name_;
  Function function_ = nullptr;
};

/// Sets the function that hide_frames() calls: it takes an error, removes the observer's frames from its
/// traceback, and returns the rest of the traceback (base/frames.py).
/// @param function  kept for as long as the process lives; null for none.
void hide_frames_by(PyObject* function);

/// Removes the observer's frames from the traceback of the error that is set: one that a handler of a
/// signal has raised while the observer ran, and that goes on to the program. A traceback that cannot
/// be changed stays as it is.
void hide_frames();

}  // namespace convtrace::python
