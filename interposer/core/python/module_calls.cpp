// HotPath: module calls.

#include "interposer/core/python/work.h"

namespace convtrace::python {

HotPath::Found HotPath::inputs(PyObject* args, PyObject* kwargs, std::vector<Input>& found) {
  std::vector<Ref> tensors;
  if (const Found all = gather(args, tensors, 0); all != Found::kAll) return all;
  for (size_t i = 0; i < tensors.size(); ++i) {
    found.push_back({std::move(tensors[i]), 0});
    if (!slot_of(input_slots_, kind_input_.get(), i, found.back().slot)) return Found::kFailed;
  }
  Py_ssize_t position = 0;
  PyObject *name = nullptr, *value = nullptr;
  while (api.PyDict_Next(kwargs, &position, &name, &value) != 0) {
    const Ref held_name = Ref::to(name), held_value = Ref::to(value);
    if (reader_.is_plain(value)) {
      found.push_back({Ref::to(value), 0});
      if (!slot_of_name(name, found.back().slot)) return Found::kFailed;
    } else {
      std::vector<Ref> nested;
      if (const Found all = gather(value, nested, 0); all != Found::kAll) return all;
      if (!nested.empty()) return Found::kUnusual;  // names with numbers
    }
  }
  return Found::kAll;
}

bool HotPath::entered(const Call& call, PyObject* args, PyObject* kwargs) {
  Work work(*this, call.thread);
  PyObject* const place = of_entry_.place.of(call.entry);
  const Unobserved unobserved(*this);
  if (!work || place == nullptr || !unobserved) return false;
  const bool top = is_none(call.caller);
  const auto in_python = [&] {
    const Ref number_of = number(word(call.key) >> 32);
    return static_cast<bool>(python::call(
        python_entered_.get(), {call.thread, call.entry, call.module, number_of.get(),
                                top ? api._Py_TrueStruct : api._Py_FalseStruct, args, kwargs}));
  };
  if (is_none(of_entry_.buffers.of(call.entry)) || !is_none(of_entry_.pad_index.of(call.entry)))
    return in_python();
  std::vector<Input> found;
  switch (inputs(args, kwargs, found)) {
    case Found::kFailed: return false;
    case Found::kUnusual: return in_python();
    case Found::kAll: break;
  }
  const uint32_t phase = port_.scope_slot()->phase;
  const uint64_t key = word(call.key);
  Position at{.phase = phase,
              .capture = static_cast<uint32_t>(format::Capture::kHash),
              .scope = static_cast<uint32_t>(key),
              .call = static_cast<uint32_t>(key >> 32),
              .slot = 0};
  if (failed(key)) return false;
  work.scope(phase, true, at.scope, at.call);
  if (top && phase == static_cast<uint32_t>(format::Phase::kEvaluation)) {
    at.capture = full_;
  } else if (top && phase == static_cast<uint32_t>(format::Phase::kForward)) {
    const uint64_t before = word(of_place_.inputs.of(place));
    if (failed(before) || !of_place_.inputs.set(place, number(before + 1))) return false;
    at.capture = full_;
    at.phase = static_cast<uint32_t>(format::Phase::kData);
    at.call = static_cast<uint32_t>(before);
  }
  for (const Input& input : found) {
    at.slot = input.slot;
    bool packed = false;
    if (!work.record(input.tensor.get(), at, packed)) return false;
  }
  return work.submit();
}

/// Also called if only the scopes of the backward pass are wanted, as ModuleCalls._left.
bool HotPath::left(const Call& call, PyObject* output) {
  const bool captures = is_set(of_observer_.capture);
  Work work(*this, call.thread);
  const Unobserved unobserved(*this);
  if (!work || !unobserved) return false;
  std::vector<Ref> found;
  const Found all = gather(output, found, 0);
  if (all == Found::kFailed) return false;
  if (all == Found::kUnusual) {
    return static_cast<bool>(
        python::call(python_left_.get(), {call.thread, call.entry, call.key, call.module, output}));
  }
  const uint64_t key = word(call.key);
  if (failed(key)) return false;
  Position at{.phase = port_.scope_slot()->phase,
              .capture = full_,
              .scope = static_cast<uint32_t>(key),
              .call = static_cast<uint32_t>(key >> 32),
              .slot = 0};
  for (size_t i = 0; i < found.size(); ++i) {
    PyObject* const tensor = found[i].get();
    bool follows = false;
    if (captures && (!slot_of(output_slots_, kind_output_.get(), i, at.slot) ||
                     !work.record(tensor, at, follows))) {
      return false;
    }
    if (!follows) {
      const Ref on_cuda = own_attribute(tensor, is_cuda_.get());
      if (!on_cuda) return false;
      follows = is_true(on_cuda.get());
    }
    if (follows && !follow(call.thread, tensor, call.key, i)) return false;
  }
  if (!captures) return true;
  if (!is_none(call.module)) {
    const Ref buffers = own_attribute(call.module, module_buffers_.get());
    if (!buffers) api.PyErr_Clear();
    // Buffers that are no dictionary, as a ScriptModule's, are left to Python.
    const bool is_empty =
        buffers && buffers.get()->type == api.PyDict_Type && api.PyDict_Size(buffers.get()) == 0;
    if (!is_empty && !work.leave([&](PyObject*) {
          return python::call(record_buffers_.get(),
                              {call.thread, call.entry, call.module, number(at.scope).get(),
                               number(at.call).get()});
        })) {
      return false;
    }
  }
  work.scope(at.phase, false, at.scope, at.call);
  return work.submit();
}

/// As Names.entry. @return null, with Python's error set or without one where there is none.
Ref HotPath::entry_at(PyObject* module) {
  const Ref key(api.PyLong_FromVoidPtr(module));
  Ref entry = key ? Ref::to(api.PyDict_GetItemWithError(entries_.get(), key.get())) : Ref();
  if (!entry) return entry;
  const Ref token = own_attribute(module, token_.get());
  if (!token) {
    api.PyErr_Clear();
    return {};
  }
  return of_entry_.token.of(entry.get()) == token.get() ? std::move(entry) : Ref();
}

/// @return the module's entry; None if its call is not recorded; null with Python's error set.
Ref HotPath::entry_of(PyObject* thread, PyObject* module, PyObject* caller,
                      const Arguments& given) {
  Ref entry = entry_at(module);
  if (!entry && api.PyErr_Occurred() != nullptr) return {};
  if (!entry || is_none(caller)) {
    return call(find_.get(), {thread, module, entry ? entry.get() : api._Py_NoneStruct,
                              given.values[1], given.values[2]});
  }
  return of_entry_.wrapper.of(entry.get()) == caller ? none() : std::move(entry);
}

/// As ModuleFacts._is_told. @return whether the module's attributes are the objects that were recorded.
bool HotPath::is_told(PyObject* entry, PyObject* module) {
  const Ref now = own_attribute(module, dict_.get());
  PyObject* const settings = of_entry_.settings.of(entry);
  if (!now || settings == nullptr || settings->type != api.PyTuple_Type) return false;
  for (Py_ssize_t i = 0; i < api.PyTuple_Size(settings); ++i) {
    PyObject* const setting = item(settings, i);
    PyObject* const name = item(setting, 0);
    if (name == nullptr) return false;
    PyObject* const value = api.PyDict_GetItemWithError(now.get(), name);
    if (value == nullptr || value != item(setting, 1)) return false;
  }
  return true;
}

/// Records the module's facts where they are unknown or may have changed.
bool HotPath::tell(PyObject* thread, PyObject* entry, PyObject* module) {
  const bool evaluates =
      port_.scope_slot()->phase == static_cast<uint32_t>(format::Phase::kEvaluation);
  if (!is_true(of_entry_.untold.of(entry)) && !evaluates && is_told(entry, module)) return true;
  api.PyErr_Clear();
  return static_cast<bool>(call(tell_.get(), {thread, entry, module}));
}

bool HotPath::number_of_call(PyObject* place, uint32_t& call) {
  if (is_new_step(place) && !reset(place, of_observer_.step.of(observer_.get()))) return false;
  const uint32_t phase = port_.scope_slot()->phase;
  if (phase == static_cast<uint32_t>(format::Phase::kEvaluation))
    return occurrence(place, phase, api._Py_NoneStruct, call);
  const Slot& counter = phase == static_cast<uint32_t>(format::Phase::kRecompute)
                            ? of_place_.recomputes
                            : of_place_.calls;
  const uint64_t count = word(counter.of(place));
  call = static_cast<uint32_t>(count);
  return !failed(count) && counter.set(place, number(count + 1));
}

/// @return what leave() takes: (thread, entry, slot word of the call, entry and slot word before);
/// None if the call is not recorded.
Ref HotPath::enter(const Arguments& given) {
  PyObject *const module = given.values[0], *const args = given.values[1];
  bool compiling = false, tracing = false;
  if (!is_compiling(compiling)) return {};
  const Ref thread = this_thread();
  const Ref caller = thread ? Ref::to(of_thread_.entry.of(thread.get())) : Ref();
  if (!caller) return {};
  // Below a root, tensors are read only where values are wanted.
  if ((is_set(of_observer_.capture) || is_none(caller.get())) && !is_tracing(tracing)) return {};
  if (compiling || tracing) return none();
  convtrace_thread_scope& slot = *port_.scope_slot();
  const Ref outer = number(slot.scope | uint64_t{slot.call} << 32);
  Ref entry = entry_of(thread.get(), module, caller.get(), given);
  if (!entry || is_none(entry.get())) return entry;
  const Ref place = Ref::to(of_entry_.place.of(entry.get()));
  uint32_t count = 0;
  if (!place || !number_of_call(place.get(), count)) return {};
  if ((count == 0 || is_true(of_entry_.untold.of(entry.get()))) &&
      !tell(thread.get(), entry.get(), module)) {
    return {};
  }
  const uint64_t id = word(of_place_.id.of(place.get()));
  if (failed(id)) return {};
  const Ref key = number(id | uint64_t{count} << 32);
  Ref result = tuple({thread.get(), entry.get(), key.get(), caller.get(), outer.get()});
  if (!result) return {};
  const Call now{thread.get(), entry.get(), key.get(), caller.get(), outer.get(), module};
  if (!of_thread_.entry.set(thread.get(), entry)) return {};
  slot.scope = static_cast<uint32_t>(id);
  slot.call = count;
  const bool sound =
      !is_set(of_observer_.capture) || entered(now, args, given.values[2]) || fail("module inputs");
  // A signal handler runs now, because leave() is not called if one raises after this call.
  if (!sound || api.PyErr_CheckSignals() != 0) {
    restore(now);
    return {};
  }
  return result;
}

/// `module`: None if the call raised.
Ref HotPath::leave(const Arguments& given) {
  const auto part = [&](Py_ssize_t i) { return item(given.values[0], i); };
  const Call call{part(0), part(1), part(2), part(3), part(4), given.values[1]};
  if (call.outer == nullptr) return {};
  const bool wanted = is_set(is_none(call.module) ? of_observer_.capture : of_observer_.follows);
  const bool sound = !wanted || left(call, given.values[2]) || fail("module outputs");
  restore(call);
  return sound ? none() : Ref();
}

/// The thread is again where it was before the call.
void HotPath::restore(const Call& call) {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  api.PyErr_Fetch(&type, &value, &traceback);
  convtrace_thread_scope& slot = *port_.scope_slot();
  const uint64_t outer = word(call.outer);
  slot.scope = static_cast<uint32_t>(outer);
  slot.call = static_cast<uint32_t>(outer >> 32);
  if (is_none(call.caller)) {
    slot.phase = static_cast<uint32_t>(word(of_thread_.after_root.of(call.thread)));
    PyObject* const followed = of_thread_.followed.of(call.thread);
    if (followed != nullptr && api.PyDict_Size(followed) != 0) api.PyDict_Clear(followed);
  }
  static_cast<void>(of_thread_.entry.set(call.thread, call.caller));
  api.PyErr_Restore(type, value, traceback);
}

}  // namespace convtrace::python
