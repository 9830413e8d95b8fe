#include "interposer/core/python/tracebacks.h"

#include <utility>

namespace convtrace::python {
namespace {

constinit PyObject* g_hide = nullptr;  // owned; guarded by the GIL

}  // namespace

void hide_frames_by(PyObject* function) {
  if (function != nullptr) api.Py_IncRef(function);
  const Ref last(std::exchange(g_hide, function));
}

void hide_frames() {
  if (g_hide == nullptr || api.PyErr_Occurred() == nullptr) return;
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  api.PyErr_Fetch(&type, &value, &traceback);
  api.PyErr_NormalizeException(&type, &value, &traceback);
  if (value != nullptr && traceback != nullptr &&
      api.PyException_SetTraceback(value, traceback) == 0) {
    Ref left = call(g_hide, {value});
    if (left) {
      const Ref before(std::exchange(traceback, is_none(left.get()) ? nullptr : left.release()));
    }
  }
  api.PyErr_Clear();
  api.PyErr_Restore(type, value, traceback);
}

}  // namespace convtrace::python
