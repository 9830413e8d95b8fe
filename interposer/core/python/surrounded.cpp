#include "interposer/core/python/part.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <utility>

namespace convtrace::python {
namespace {

constexpr size_t kMostSurrounded = 24;

/// Lives as long as the process: a program may keep the function.
struct Surrounded {
  // All pointers are owned and guarded by the GIL.
  PyObject* original = nullptr;
  PyObject* owner = nullptr;
  PyObject* before = nullptr;
  PyObject* after = nullptr;
  const char* name = nullptr;  // null for none
  const char* doc = nullptr;   // null for none
  PyMethodDef definition{};
};

constinit std::array<Surrounded, kMostSurrounded> g_all{};  // guarded by the GIL

/// Calls `after` for a call that raised, whose error continues to the program.
void ended_by_error(const Ref& after, const Ref& state) {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  api.PyErr_Fetch(&type, &value, &traceback);
  if (call(after.get(), {state.get(), api._Py_NoneStruct, api._Py_TrueStruct})) {
    api.PyErr_Restore(type, value, traceback);
  } else {
    const Ref kind(type), error(value), frames(traceback);
  }
}

PyObject* run(const Surrounded& of, PyObject* args, PyObject* named) {
  const Ref original = Ref::to(of.original), before = Ref::to(of.before),
            after = Ref::to(of.after);  // which the call may change
  const Ref state = call(before.get(), {args, named != nullptr ? named : api._Py_NoneStruct});
  if (!state) return nullptr;
  Ref result(api.PyObject_Call(original.get(), args, named));
  if (is_none(state.get())) return result.release();
  if (!result) {
    ended_by_error(after, state);
    return nullptr;
  }
  return call(after.get(), {state.get(), result.get(), api._Py_FalseStruct}) ? result.release()
                                                                             : nullptr;
}

PyObject* surround(const Surrounded& of, PyObject* args, PyObject* named) {
  PyObject* const result = run(of, args, named);
  if (result == nullptr) hide_frames();
  return result;
}

/// `self` of a builtin is the original's, its module: pickle finds the function by it.
template <size_t index>
PyObject* call_function(PyObject* /*self*/, PyObject* args, PyObject* named) noexcept {
  return surround(g_all[index], args, named);
}

template <size_t index>
PyObject* call_method(PyObject* self, PyObject* args, PyObject* named) noexcept {
  const Py_ssize_t count = api.PyTuple_Size(args);
  const Ref all(api.PyTuple_New(count + 1));
  if (!all || api.PyTuple_SetItem(all.get(), 0, Ref::to(self).release()) != 0) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const one = Ref::to(api.PyTuple_GetItem(args, i)).release();
    if (api.PyTuple_SetItem(all.get(), i + 1, one) != 0) return nullptr;
  }
  return surround(g_all[index], all.get(), named);
}

using Builtin = PyObject* (*)(PyObject*, PyObject*, PyObject*);
using Builtins = std::array<Builtin, kMostSurrounded>;

template <size_t... index>
constexpr Builtins functions_of(std::index_sequence<index...> /*all*/) {
  return {call_function<index>...};
}

template <size_t... index>
constexpr Builtins methods_of(std::index_sequence<index...> /*all*/) {
  return {call_method<index>...};
}

constexpr Builtins kFunctions = functions_of(std::make_index_sequence<kMostSurrounded>());
constexpr Builtins kMethods = methods_of(std::make_index_sequence<kMostSurrounded>());

/// @return an attribute that is a text; empty where there is none.
std::string text_of(PyObject* object, const char* name) {
  const Ref key(api.PyUnicode_InternFromString(name));
  const Ref value = key ? attribute(object, key.get()) : Ref();
  const char* const text =
      value && !is_none(value.get()) ? api.PyUnicode_AsUTF8AndSize(value.get(), nullptr) : nullptr;
  if (text == nullptr) api.PyErr_Clear();
  return text != nullptr ? text : "";
}

/// @return whether it is a function of Python, or a method that has its signature.
bool has_code(PyObject* original) {
  const Ref key(api.PyUnicode_InternFromString("__code__"));
  const bool has = key && attribute(original, key.get());
  api.PyErr_Clear();
  return has;
}

/// @return false without memory.
bool define(Surrounded& of, size_t index, PyObject* original, PyObject* owner) {
  const bool is_method = !is_none(owner);
  const std::string name = text_of(original, "__name__");
  std::string doc = text_of(original, "__doc__");
  // From which inspect makes the signature of a builtin.
  std::string signature = text_of(original, "__text_signature__");
  if (has_code(original))
    signature = is_method ? "($self, /, *args, **kwargs)" : "(*args, **kwargs)";
  if (!signature.empty()) doc = name + signature + "\n--\n\n" + doc;
  of.name = strdup(name.c_str());
  of.doc = doc.empty() ? nullptr : strdup(doc.c_str());
  const Builtin function = (is_method ? kMethods : kFunctions)[index];
  of.definition = {
      of.name,
      reinterpret_cast<decltype(PyMethodDef::function)>(reinterpret_cast<void (*)()>(function)),
      kArguments | kKeywords, of.doc};
  if (of.name == nullptr) return false;
  api.Py_IncRef(original);
  api.Py_IncRef(owner);
  of.original = original;
  of.owner = owner;
  return true;
}

PyObject* make(Surrounded& of, bool of_class) {
  if (!is_none(of.owner)) {
    return of_class ? api.PyDescr_NewClassMethod(of.owner, &of.definition)
                    : api.PyDescr_NewMethod(of.owner, &of.definition);
  }
  const Ref key(api.PyUnicode_InternFromString("__module__"));
  const Ref module = key ? attribute(of.original, key.get()) : Ref();
  if (!module) return nullptr;
  const bool is_builtin = of.original->type == api.PyCFunction_Type;
  return api.PyCFunction_NewEx(
      &of.definition, is_builtin ? api.PyCFunction_GetSelf(of.original) : nullptr, module.get());
}

void replace(PyObject*& place, PyObject* value) {
  api.Py_IncRef(value);
  const Ref last(std::exchange(place, value));
}

}  // namespace

PyObject* surrounded(PyObject* /*self*/, PyObject* const* args, Py_ssize_t given) noexcept {
  if (given != 5) {
    api.PyErr_SetString(*api.PyExc_RuntimeError, "number of arguments");
    return nullptr;
  }
  PyObject *const original = args[0], *const owner = args[3];
  auto* const at = std::find_if(g_all.begin(), g_all.end(), [&](const Surrounded& one) {
    return (one.original == original && one.owner == owner) || one.original == nullptr;
  });
  if (at == g_all.end()) return none().release();
  const auto index = static_cast<size_t>(at - g_all.begin());
  try {
    if (at->original == nullptr && !define(*at, index, original, owner))
      return api.PyErr_NoMemory();
  } catch (const std::bad_alloc&) {
    return api.PyErr_NoMemory();
  }
  replace(at->before, args[1]);
  replace(at->after, args[2]);
  return make(*at, is_true(args[4]));
}

}  // namespace convtrace::python
