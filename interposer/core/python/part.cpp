#include "interposer/core/python/part.h"

#include <exception>
#include <memory>
#include <string_view>
#include <vector>

namespace convtrace::python {
namespace {

constexpr char kCapsule[] = "convtrace.hot_path";

using Function = Ref (HotPath::*)(const Arguments&);

/// The function that Python calls; `self` is a capsule with the HotPath.
template <Function function, Py_ssize_t count>
PyObject* entry(PyObject* self, PyObject* const* args, Py_ssize_t given) noexcept {
  auto* const path = static_cast<HotPath*>(api.PyCapsule_GetPointer(self, kCapsule));
  if (path == nullptr) return nullptr;
  try {
    if (given == count) {
      Ref result = (path->*function)({args, given});
      // A result beside an error would end the program's call.
      if (result && api.PyErr_Occurred() == nullptr) return result.release();
    } else {
      api.PyErr_SetString(*api.PyExc_RuntimeError, "number of arguments");
    }
  } catch (const std::exception&) {
    api.PyErr_NoMemory();
  }
  if (path->fail("values")) return none().release();
  hide_frames();
  return nullptr;
}

PyMethodDef functions[] = {
    {"enter", entry<&HotPath::enter, 3>, kFastCall, nullptr},
    {"leave", entry<&HotPath::leave, 3>, kFastCall, nullptr},
    {"gradient", entry<&HotPath::gradient, 2>, kFastCall, nullptr},
    {"backward", entry<&HotPath::backward, 5>, kFastCall, nullptr},
    {"parameters", entry<&HotPath::parameters, 3>, kFastCall, nullptr},
    {"memory", entry<&HotPath::memory, 1>, kFastCall, nullptr},
    {"number", entry<&HotPath::number_of_storage, 1>, kFastCall, nullptr},
    {"sweep", entry<&HotPath::sweep, 0>, kFastCall, nullptr},
    {"operands", entry<&HotPath::operands, 8>, kFastCall, nullptr},
    {"ask", entry<&HotPath::ask, 2>, kFastCall, nullptr},
    {"forget", entry<&HotPath::forget, 0>, kFastCall, nullptr},
    {"end", entry<&HotPath::end, 0>, kFastCall, nullptr},
    {"surrounded", surrounded, kFastCall, nullptr},
};

/// @return a text's characters, which live as long as it.
std::string_view characters(PyObject* text) {
  Py_ssize_t size = 0;
  const char* const first = text != nullptr ? api.PyUnicode_AsUTF8AndSize(text, &size) : nullptr;
  return {first != nullptr ? first : "", first != nullptr ? static_cast<size_t>(size) : 0};
}

/// Passes this thread's frames, as base/native.py reports them, to the engine.
void learn_frames(PyObject* config, const Port& port) {
  PyObject* const tell = api.PyDict_GetItemString(config, "frames");
  const Ref told = tell != nullptr && !is_none(tell) ? call(tell, {}) : Ref();
  std::vector<KnownFrame> known;
  const Py_ssize_t count = told ? api.PyList_Size(told.get()) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const one = api.PyList_GetItem(told.get(), i);
    const auto at = [one](Py_ssize_t index) { return word(item(one, index)); };
    known.push_back({at(0), at(1), at(2), at(3), at(4), static_cast<uint32_t>(at(5)),
                     static_cast<uint32_t>(at(6)), characters(item(one, 7)),
                     characters(item(one, 8))});
  }
  const bool sound = api.PyErr_Occurred() == nullptr;
  if (sound && !known.empty()) static_cast<void>(port.learn_frames(known));
  if (!sound) api.PyErr_Clear();
}

void destroy(PyObject* capsule) {
  delete static_cast<HotPath*>(api.PyCapsule_GetPointer(capsule, kCapsule));
}

}  // namespace

PyObject* make_part(PyObject* config, const Port& port) noexcept {
  if (!api.load()) return nullptr;
  try {
    auto path = std::make_unique<HotPath>(port);
    if (!path->configure(config)) return nullptr;
    hide_frames_by(api.PyDict_GetItemString(config, "hide"));
    learn_frames(config, port);
    const Ref capsule(api.PyCapsule_New(path.get(), kCapsule, destroy));
    if (!capsule) return nullptr;
    static_cast<void>(path.release());
    Ref all(api.PyDict_New());
    for (PyMethodDef& function : functions) {
      const Ref name(api.PyUnicode_InternFromString(function.name));
      const Ref made(api.PyCFunction_NewEx(&function, capsule.get(), nullptr));
      if (!all || !name || !made || api.PyDict_SetItem(all.get(), name.get(), made.get()) != 0)
        return nullptr;
    }
    return all.release();
  } catch (const std::exception&) {
    return api.PyErr_NoMemory();
  }
}

}  // namespace convtrace::python
