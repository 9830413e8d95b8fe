#include "interposer/core/python/hot_path.h"

#include <algorithm>

#include "interposer/core/python/work.h"

namespace convtrace::python {
namespace {

constexpr size_t kMostTensors = 256;  // as in base/values.py
constexpr int kMostDepth = 8;
constexpr unsigned long kHeapType = 1UL << 9;  // Py_TPFLAGS_HEAPTYPE

}  // namespace

HotPath::HotPath(const Port& port) : port_(port) {
  static uint64_t last = 0;  // guarded by the GIL
  number_ = ++last;
}

bool HotPath::configure(PyObject* config) {
  const struct {
    Ref& object;
    const char* key;
  } entries[] = {{observer_, "observer"},
                 {python_entered_, "entered"},
                 {python_left_, "left"},
                 {python_gradient_, "record_gradient"},
                 {threads_, "threads"},
                 {entries_, "entries"},
                 {find_, "find"},
                 {tell_, "tell"},
                 {is_tracing_, "is_tracing"},
                 {compiler_, "compiler"},
                 {python_parameter_, "record_parameter"},
                 {python_parameters_, "parameters"},
                 {python_backward_, "backward"},
                 {pack_, "pack"},
                 {slot_, "slot"},
                 {hooks_, "hooks"},
                 {registers_, "registers"},
                 {ordered_dict_, "ordered_dict"},
                 {follow_, "follow"},
                 {record_buffers_, "record_buffers"},
                 {owner_, "owner"},
                 {own_, "own"},
                 {python_ask_, "ask"},
                 {owners_, "owners"},
                 {ask_is_leaf_, "is_leaf"},
                 {has_modes_, "has_modes"},
                 {unobserved_, "unobserved"}};
  for (const auto& [object, key] : entries) {
    object = Ref::to(api.PyDict_GetItemString(config, key));
    if (!object) {
      api.PyErr_SetString(*api.PyExc_RuntimeError, key);
      return false;
    }
  }
  full_ = static_cast<uint8_t>(word(api.PyDict_GetItemString(config, "full")));
  keeps_thread_ = is_true(api.PyDict_GetItemString(config, "keeps_thread")) &&
                  api.PyThreadState_Get != nullptr && api.PyThreadState_GetID != nullptr;
  const struct {
    Ref& object;
    const char* text;
  } names[] = {{set_flags_, "_set_flags"},
               {submit_, "submit"},
               {failed_, "failed"},
               {requires_grad_, "requires_grad"},
               {grad_fn_, "grad_fn"},
               {backward_hooks_, "_backward_hooks"},
               {register_hook_, "register_hook"},
               {register_hook_dict_, "_register_hook_dict"},
               {hook_key_, "convtrace"},
               {sequence_nr_, "_sequence_nr"},
               {output_nr_, "output_nr"},
               {state_, "state"},
               {dict_, "__dict__"},
               {module_buffers_, "_buffers"},
               {module_parameters_, "_parameters"},
               {modules_, "_modules"},
               {token_, "_non_persistent_buffers_set"},
               {params_, "params"},
               {grad_, "grad"},
               {kind_input_, "input"},
               {kind_output_, "output"},
               {kind_gradient_, "grad_output"},
               {is_cuda_, "is_cuda"},
               {enter_, "__enter__"},
               {exit_, "__exit__"},
               {is_compiling_, "_is_compiling_flag"}};
  for (const auto& [object, text] : names) {
    object = Ref(api.PyUnicode_InternFromString(text));
    if (!object) return false;
  }
  named_slots_ = Ref(api.PyDict_New());
  return named_slots_ && find_slots(config) && reader_.configure(config);
}

bool HotPath::find_slots(PyObject* config) {
  const auto find = [&](const char* key, std::initializer_list<std::pair<Slot&, const char*>> of) {
    PyObject* const kind = api.PyDict_GetItemString(config, key);
    if (kind == nullptr) api.PyErr_SetString(*api.PyExc_RuntimeError, key);
    return kind != nullptr && python::find_slots(kind, of);
  };
  return find("Observer", {{of_observer_.active, "active"},
                           {of_observer_.capture, "capture"},
                           {of_observer_.follows, "follows"},
                           {of_observer_.step, "step"},
                           {of_observer_.flags, "flags"},
                           {of_observer_.walk, "walk"},
                           {of_observer_.step_walk, "step_walk"},
                           {of_observer_.epoch, "epoch"}}) &&
         find("Thread", {{of_thread_.entry, "entry"},
                         {of_thread_.batch, "batch"},
                         {of_thread_.after_root, "after_root"},
                         {of_thread_.began, "began"},
                         {of_thread_.followed, "followed"}}) &&
         find("Entry", {{of_entry_.token, "token"},
                        {of_entry_.place, "place"},
                        {of_entry_.wrapper, "wrapper"},
                        {of_entry_.untold, "untold"},
                        {of_entry_.settings, "settings"},
                        {of_entry_.buffers, "buffers"},
                        {of_entry_.pad_index, "pad_index"}}) &&
         find("Place", {{of_place_.id, "id"},
                        {of_place_.step, "step"},
                        {of_place_.calls, "calls"},
                        {of_place_.recomputes, "recomputes"},
                        {of_place_.inputs, "inputs"},
                        {of_place_.parameters, "parameters"}}) &&
         find("Owner", {{of_owner_.seen, "seen"},
                        {of_owner_.storage, "storage"},
                        {of_owner_.place, "place"},
                        {of_owner_.name, "name"},
                        {of_owner_.parameter_slot, "parameter_slot"},
                        {of_owner_.gradient_slot, "gradient_slot"},
                        {of_owner_.memory, "memory"},
                        {of_owner_.content, "content"}}) &&
         find("Batch", {{messages_, "messages"}});
}

/// @return Threads.state; null with Python's error set. A look-up takes 40 ns. Where it belongs to the
/// thread's state in Python (Threads.are_pythons), of which each has a number of its own, it lives as
/// long.
Ref HotPath::this_thread() {
  struct Known {
    uint64_t part = 0, state = 0;
    PyObject* thread = nullptr;
  };
  thread_local Known known;
  if (!keeps_thread_) return attribute(threads_.get(), state_.get());
  const uint64_t state = api.PyThreadState_GetID(api.PyThreadState_Get());
  if (known.part == number_ && known.state == state) return Ref::to(known.thread);
  Ref found = attribute(threads_.get(), state_.get());
  known = {found ? number_ : 0, state, found.get()};
  return found;
}

/// As Observer.compiles. @param[out] is  whether torch is compiling or exporting. @return false if
/// Python raised.
bool HotPath::is_compiling(bool& is) const {
  PyObject* const flag = api.PyDict_GetItemWithError(compiler_.get(), is_compiling_.get());
  is = is_true(flag);
  return flag != nullptr || api.PyErr_Occurred() == nullptr;
}

/// @param[out] is  whether torch.jit.trace records this thread. @return false if Python raised.
bool HotPath::is_tracing(bool& is) const {
  const Ref state = call(is_tracing_.get(), {});
  is = state && !is_none(state.get());
  return static_cast<bool>(state);
}

/// @return kAll if values of a type contain no tensor, else kUnusual. The answer is kept for types that
/// live as long as the process.
HotPath::Found HotPath::is_leaf(PyObject* type) {
  if (std::find(leaf_types_.begin(), leaf_types_.end(), type) != leaf_types_.end())
    return Found::kAll;
  const Ref answer = call(ask_is_leaf_.get(), {type});
  if (!answer) return Found::kFailed;
  if (!is_true(answer.get())) return Found::kUnusual;
  if ((api.PyType_GetFlags(type) & kHeapType) == 0) leaf_types_.push_back(type);
  return Found::kAll;
}

/// As TensorReader.tensors of values.py, for the types that are usual.
HotPath::Found HotPath::gather(PyObject* structure, std::vector<Ref>& found, int depth) {
  if (reader_.is_plain(structure)) {
    if (found.size() < kMostTensors) found.push_back(Ref::to(structure));
    return Found::kAll;
  }
  PyObject* const type = structure->type;
  const bool is_tuple = type == api.PyTuple_Type, is_list = type == api.PyList_Type;
  if (!is_tuple && !is_list && type != api.PyDict_Type) return is_leaf(type);
  if (depth == kMostDepth) return Found::kAll;
  if (type == api.PyDict_Type) {
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *value = nullptr;
    while (api.PyDict_Next(structure, &position, &key, &value) != 0) {
      const Ref held = Ref::to(value);
      if (const Found one = gather(value, found, depth + 1); one != Found::kAll) return one;
    }
    return Found::kAll;
  }
  const auto size = is_tuple ? api.PyTuple_Size : api.PyList_Size;
  const auto item_of = is_tuple ? api.PyTuple_GetItem : api.PyList_GetItem;
  for (Py_ssize_t i = 0; i < size(structure); ++i) {
    const Ref one = Ref::to(item_of(structure, i));
    if (!one) return Found::kFailed;
    if (const Found all = gather(one.get(), found, depth + 1); all != Found::kAll) return all;
  }
  return Found::kAll;
}

/// Id of "KIND:index".
bool HotPath::slot_of(std::vector<uint32_t>& known, PyObject* kind, size_t index, uint32_t& slot) {
  while (known.size() <= index) {
    const size_t next = known.size();
    const uint64_t id = word(call(slot_.get(), {kind, number(next).get()}));
    if (failed(id)) return false;
    // Another thread may have asked meanwhile.
    if (known.size() == next) known.push_back(static_cast<uint32_t>(id));
  }
  slot = known[index];
  return true;
}

/// Id of "input:name".
bool HotPath::slot_of_name(PyObject* name, uint32_t& slot) {
  PyObject* known = api.PyDict_GetItemWithError(named_slots_.get(), name);
  Ref asked;
  if (known == nullptr) {
    if (api.PyErr_Occurred() != nullptr) return false;
    asked = call(slot_.get(), {kind_input_.get(), name});
    if (!asked || api.PyDict_SetItem(named_slots_.get(), name, asked.get()) != 0) return false;
    known = asked.get();
  }
  slot = static_cast<uint32_t>(word(known));
  return true;
}

Ref HotPath::memory(const Arguments& given) {
  PyObject* const tensor = given.values[0];
  TensorMessage message;
  const bool plain = reader_.is_plain(tensor);
  const auto outcome = plain ? reader_.read(tensor, message) : TensorReader::Outcome::kLeft;
  if (outcome == TensorReader::Outcome::kFailed) return {};
  if (outcome != TensorReader::Outcome::kRead) return none();
  const convtrace_tensor& fixed = message.fixed;
  const Ref dims(api.PyTuple_New(2 * Py_ssize_t{fixed.rank}));
  if (!dims) return {};
  for (Py_ssize_t i = 0; i < 2 * Py_ssize_t{fixed.rank}; ++i) {
    Ref extent = number(static_cast<uint64_t>(message.dims[i]));
    if (!extent || api.PyTuple_SetItem(dims.get(), i, extent.release()) != 0) return {};
  }
  return tuple({number(fixed.device_type).get(), number(fixed.device_index).get(),
                number(fixed.dtype).get(), number(fixed.rank).get(), number(fixed.version).get(),
                number(fixed.data).get(), number(fixed.storage).get(),
                number(fixed.storage_base).get(), number(fixed.storage_bytes).get(),
                number(fixed.stream).get(), dims.get()});
}

Ref HotPath::number_of_storage(const Arguments& given) {
  const uint64_t found = reader_.numbers().of(given.values[0]);
  return found != 0 ? number(found) : Ref();
}

Ref HotPath::sweep(const Arguments&) {
  reader_.numbers().sweep();
  return none();
}

Ref HotPath::forget(const Arguments&) {
  input_slots_.clear();
  output_slots_.clear();
  gradient_slots_.clear();
  named_slots_ = Ref(api.PyDict_New());
  return named_slots_ ? none() : Ref();
}

Ref HotPath::end(const Arguments&) {
  port_.end_frames();
  return none();
}

bool HotPath::fail(const char* site) {
  if (api.PyErr_Occurred() == nullptr) return true;
  if (api.PyErr_ExceptionMatches(*api.PyExc_Exception) == 0) return false;
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  api.PyErr_Fetch(&type, &value, &traceback);
  api.PyErr_NormalizeException(&type, &value, &traceback);
  const Ref kind(type), error(value), frames(traceback);
  if (frames) api.PyException_SetTraceback(error.get(), frames.get());
  const Ref text(api.PyUnicode_InternFromString(site));
  return error && text && method(observer_.get(), failed_.get(), {text.get(), error.get()});
}

}  // namespace convtrace::python
