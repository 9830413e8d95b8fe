#include "interposer/core/python/preceded.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <utility>

namespace convtrace::python {
namespace {

constexpr size_t kMostPreceded = 8;

/// Lives as long as the process: a program may keep the function.
struct Preceded {
  PyObject* original = nullptr;  // owned, as the next one
  PyObject* before = nullptr;
  const char* name = nullptr;  // owned, as the next one; null for none
  const char* doc = nullptr;
  PyMethodDef definition{};
};

constinit std::array<Preceded, kMostPreceded> g_all{};  // guarded by the GIL

/// `self` is the original's, its module: pickle finds the function by it.
template <size_t index>
PyObject* call_preceded(PyObject* /*self*/, PyObject* args, PyObject* named) noexcept {
  const Preceded& of = g_all[index];
  const Ref before = Ref::to(of.before);  // which the call may change
  return call(before.get(), {args}) ? api.PyObject_Call(of.original, args, named) : nullptr;
}

using Builtin = PyObject* (*)(PyObject*, PyObject*, PyObject*);

template <size_t... index>
constexpr std::array<Builtin, kMostPreceded> functions_of(std::index_sequence<index...> /*all*/) {
  return {call_preceded<index>...};
}

constexpr auto kFunctions = functions_of(std::make_index_sequence<kMostPreceded>());

/// @return a copy of an attribute that is a text, else null.
const char* copy_of(PyObject* object, const char* name) {
  const Ref key(api.PyUnicode_InternFromString(name));
  const Ref value = key ? attribute(object, key.get()) : Ref();
  const char* const text =
      value && !is_none(value.get()) ? api.PyUnicode_AsUTF8AndSize(value.get(), nullptr) : nullptr;
  if (text == nullptr) api.PyErr_Clear();
  return text != nullptr ? strdup(text) : nullptr;
}

/// @return false without memory.
bool define(Preceded& of, size_t index, PyObject* original) {
  of.name = copy_of(original, "__name__");
  of.doc = copy_of(original, "__doc__");
  of.definition = {of.name,
                   reinterpret_cast<decltype(PyMethodDef::function)>(
                       reinterpret_cast<void (*)()>(kFunctions[index])),
                   kArguments | kKeywords, of.doc};
  if (of.name == nullptr) return false;
  api.Py_IncRef(original);
  of.original = original;
  return true;
}

}  // namespace

PyObject* preceded(PyObject* /*self*/, PyObject* const* args, Py_ssize_t given) noexcept {
  if (given != 2) {
    api.PyErr_SetString(*api.PyExc_RuntimeError, "number of arguments");
    return nullptr;
  }
  PyObject *const original = args[0], *const before = args[1];
  auto* const at = std::find_if(g_all.begin(), g_all.end(), [&](const Preceded& one) {
    return one.original == original || one.original == nullptr;
  });
  if (original->type != api.PyCFunction_Type || at == g_all.end()) return none().release();
  const auto index = static_cast<size_t>(at - g_all.begin());
  if (at->original == nullptr && !define(*at, index, original)) return api.PyErr_NoMemory();
  api.Py_IncRef(before);
  const Ref last(std::exchange(at->before, before));
  const Ref key(api.PyUnicode_InternFromString("__module__"));
  const Ref module = key ? attribute(original, key.get()) : Ref();
  if (!module) return nullptr;
  return api.PyCFunction_NewEx(&at->definition, api.PyCFunction_GetSelf(original), module.get());
}

}  // namespace convtrace::python
