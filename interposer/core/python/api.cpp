#include "interposer/core/python/api.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace convtrace::python {

Api api;

bool Api::load() {
  bool complete = true;
  const auto look = [](auto& pointer, const char* symbol) {
    pointer =
        reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(dlsym(RTLD_DEFAULT, symbol));
    return pointer != nullptr;
  };
#define CALL(result, name, parameters) complete = look(name, #name) && complete;
#define NEWER(result, name, parameters) look(name, #name);
#define OBJECT(name) complete = look(name, #name) && complete;
#define POINTER(name) OBJECT(name)
#include "interposer/core/python/api.def"
#undef CALL
#undef NEWER
#undef OBJECT
#undef POINTER
  return complete;
}

namespace {

constexpr size_t kMostArguments = 8;

constinit PyObject* g_hide = nullptr;  // takes frames off a traceback; owned; guarded by the GIL

/// @return whether making an argument has failed: Python's error is set.
bool lacks_one(std::initializer_list<PyObject*> arguments) {
  return std::find(arguments.begin(), arguments.end(), nullptr) != arguments.end();
}

/// Hides the observer's calls from a debugger, profiler or coverage tool of the program.
class Untraced {
 public:
  Untraced() {
    if (api.PyThreadState_EnterTracing == nullptr || api.PyThreadState_LeaveTracing == nullptr)
      return;
    state_ = api.PyThreadState_Get();
    api.PyThreadState_EnterTracing(state_);
  }
  ~Untraced() {
    if (state_ != nullptr) api.PyThreadState_LeaveTracing(state_);
  }
  Untraced(const Untraced&) = delete;
  Untraced& operator=(const Untraced&) = delete;

 private:
  void* state_ = nullptr;
};

Ref call_with_tuple(PyObject* function, std::initializer_list<PyObject*> arguments) {
  const Ref all = tuple(arguments);
  return all ? Ref(api.PyObject_CallObject(function, all.get())) : Ref();
}

}  // namespace

Ref tuple(std::initializer_list<PyObject*> items) {
  if (lacks_one(items)) return {};
  Ref made(api.PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  if (!made) return {};
  Py_ssize_t index = 0;
  for (PyObject* one : items) {
    api.Py_IncRef(one);
    if (api.PyTuple_SetItem(made.get(), index++, one) != 0) return {};
  }
  return made;
}

Ref call(PyObject* function, std::initializer_list<PyObject*> arguments) {
  if (lacks_one(arguments)) return {};
  const Untraced untraced;
  if (api.PyObject_Vectorcall == nullptr) return call_with_tuple(function, arguments);
  return Ref(api.PyObject_Vectorcall(function, arguments.begin(), arguments.size(), nullptr));
}

Ref value_at(PyObject* object, PyObject* key) {
  const Untraced untraced;
  return Ref(api.PyObject_GetItem(object, key));
}

Ref method(PyObject* object, PyObject* name, std::initializer_list<PyObject*> arguments) {
  if (lacks_one(arguments)) return {};
  const Untraced untraced;
  if (api.PyObject_VectorcallMethod == nullptr || arguments.size() >= kMostArguments) {
    const Ref bound = attribute(object, name);
    return bound ? call_with_tuple(bound.get(), arguments) : Ref();
  }
  std::array<PyObject*, kMostArguments> all{object};
  std::copy(arguments.begin(), arguments.end(), all.begin() + 1);
  return Ref(api.PyObject_VectorcallMethod(name, all.data(), arguments.size() + 1, nullptr));
}

Ref CMethod::operator()(PyObject* object) {
  if (object == nullptr) return {};
  if (function_ != nullptr) return Ref(function_(object, nullptr));
  const Ref bound = attribute(object, name_.get());
  if (!bound) return {};
  if (bound.get()->type == api.PyCFunction_Type && api.PyCFunction_GetSelf(bound.get()) == object &&
      api.PyCFunction_GetFlags(bound.get()) == kNoArguments) {
    function_ = reinterpret_cast<Function>(api.PyCFunction_GetFunction(bound.get()));
  }
  return call(bound.get(), {});
}

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
