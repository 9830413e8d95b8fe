// HotPath: gradients and parameters, and the operands of calls in compiled regions.

#include <algorithm>
#include <unordered_set>

#include "interposer/core/python/work.h"

namespace convtrace::python {

/// Hooks a module's output, as gradients.follow.
bool HotPath::follow(PyObject* thread, PyObject* tensor, PyObject* key, size_t index) {
  uint32_t slot = 0;
  if (!reader_.is_plain(tensor)) {  // its class may have attributes of its own under these names
    if (!slot_of(gradient_slots_, kind_gradient_.get(), index, slot)) return false;
    const Ref of = tuple({key, number(slot).get()});
    return of && call(follow_.get(), {hooks_.get(), thread, tensor, of.get()});
  }
  const Ref requires_grad = attribute(tensor, requires_grad_.get());
  if (!requires_grad) return false;
  if (!is_true(requires_grad.get())) return true;
  const Ref node = attribute(tensor, grad_fn_.get());
  if (!node) return false;
  if (is_none(node.get())) return true;
  if (!slot_of(gradient_slots_, kind_gradient_.get(), index, slot)) return false;
  const Ref target = tuple({key, number(slot).get()});
  if (!target) return false;
  Ref place;
  if (is_true(registers_.get())) {
    place = tuple({node.get()->type, method(node.get(), sequence_nr_.get()).get(),
                   attribute(tensor, output_nr_.get()).get()});
    PyObject* const followed = of_thread_.followed.of(thread);
    if (!place || followed == nullptr) return false;
    if (api.PyDict_GetItemWithError(followed, place.get()) != nullptr)
      return static_cast<bool>(call(follow_.get(), {hooks_.get(), thread, tensor, target.get()}));
    if (api.PyErr_Occurred() != nullptr) return false;
  }
  const Ref targets = tuple({target.get()});
  if (!targets) return false;
  Ref known = Ref::to(api.PyDict_GetItemWithError(hooks_.get(), targets.get()));
  if (!known && api.PyErr_Occurred() == nullptr) known = value_at(hooks_.get(), targets.get());
  return known && hook(thread, tensor, node.get(), place.get(), known.get());
}

/// The first hook of a tensor, as in gradients.follow: without the handle by which it is removed, which
/// takes longer than the rest. @param place  its key among those that the thread follows; null where
/// gradients.registers_as_known() says that torch registers otherwise.
bool HotPath::hook(PyObject* thread, PyObject* tensor, PyObject* node, PyObject* place,
                   PyObject* hook) {
  if (place == nullptr) return static_cast<bool>(method(tensor, register_hook_.get(), {hook}));
  const Ref programs = attribute(tensor, backward_hooks_.get());
  const Ref ours = programs ? call(ordered_dict_.get(), {}) : Ref();
  return ours && api.PyObject_SetAttr(tensor, backward_hooks_.get(), ours.get()) == 0 &&
         method(node, register_hook_dict_.get(), {tensor}) &&
         api.PyObject_SetAttr(tensor, backward_hooks_.get(), programs.get()) == 0 &&
         api.PyObject_SetItem(ours.get(), hook_key_.get(), hook) == 0 &&
         api.PyDict_SetItem(of_thread_.followed.of(thread), place, ours.get()) == 0;
}

/// As Place.reset.
bool HotPath::reset(PyObject* place, PyObject* step) {
  const Ref zero = number(0);
  PyObject* const counts = of_place_.parameters.of(place);
  if (counts == nullptr) return false;
  api.PyDict_Clear(counts);
  return of_place_.step.set(place, step) && of_place_.calls.set(place, zero) &&
         of_place_.recomputes.set(place, zero) && of_place_.inputs.set(place, zero);
}

/// @return whether the counts of a place are of another step. Mostly both steps are the same object.
bool HotPath::is_new_step(PyObject* place) const {
  PyObject* const now = of_observer_.step.of(observer_.get());
  PyObject* const then = of_place_.step.of(place);
  return now != then && word(now) != word(then);
}

/// As Observer.occurrence.
bool HotPath::occurrence(PyObject* place, uint32_t phase, PyObject* slot, uint32_t& call) {
  if (is_new_step(place) && !reset(place, of_observer_.step.of(observer_.get()))) return false;
  const Ref counts = Ref::to(of_place_.parameters.of(place));
  const Ref key = tuple({number(phase).get(), slot});
  if (!counts || !key) return false;
  PyObject* const count = api.PyDict_GetItemWithError(counts.get(), key.get());
  if (count == nullptr && api.PyErr_Occurred() != nullptr) return false;
  call = count != nullptr ? static_cast<uint32_t>(word(count)) : 0;
  const Ref next = number(call + 1);
  return next && api.PyDict_SetItem(counts.get(), key.get(), next.get()) == 0;
}

Ref HotPath::gradient(const Arguments& given) {
  PyObject *const targets = given.values[0], *const gradient = given.values[1];
  bool compiling = false, tracing = false;
  if (!is_compiling(compiling) || !is_tracing(tracing)) return {};
  if (compiling || tracing || !is_set(of_observer_.active)) return none();
  const bool captures = is_set(of_observer_.capture);
  const Ref thread = this_thread();
  const uint64_t innermost = word(item(item(targets, 0), 0));
  if (!thread || failed(innermost)) return {};
  convtrace_thread_scope& at = *port_.scope_slot();
  at.scope = static_cast<uint32_t>(innermost);
  at.call = static_cast<uint32_t>(innermost >> 32);
  at.phase = static_cast<uint32_t>(format::Phase::kBackward);
  if (!captures || is_none(gradient)) return none();
  Work work(*this, thread.get());
  const Unobserved unobserved(*this);
  if (!work || !unobserved) return {};
  switch (work.read(gradient)) {
    case TensorReader::Outcome::kFailed: return {};
    case TensorReader::Outcome::kLeft:
      return call(python_gradient_.get(), {thread.get(), targets, gradient});
    case TensorReader::Outcome::kRead: break;
  }
  const Py_ssize_t count = api.PyTuple_Size(targets);
  if (count < 0) return {};
  for (Py_ssize_t i = count; i-- > 0;) {
    PyObject* const target = item(targets, i);
    const uint64_t key = word(item(target, 0)), slot = word(item(target, 1));
    if (failed(key) || failed(slot)) return {};
    work.put({.phase = static_cast<uint32_t>(format::Phase::kBackward),
              .capture = full_,
              .scope = static_cast<uint32_t>(key),
              .call = static_cast<uint32_t>(key >> 32),
              .slot = static_cast<uint32_t>(slot)});
  }
  return work.submit() ? none() : Ref();
}

/// One plain loss is the rule; whatever else a pass begins from is left to Python.
Ref HotPath::backward(const Arguments& given) {
  PyObject *const thread = given.values[0], *const place = given.values[1],
                  *const enter = given.values[2], *const losses = given.values[3],
                  *const slot = given.values[4];
  const auto in_python = [&] {
    return call(python_backward_.get(), {thread, place, enter, losses, slot});
  };
  const Py_ssize_t count = losses->type == api.PyTuple_Type ? api.PyTuple_Size(losses) : 2;
  PyObject* const loss = count == 1 ? item(losses, 0) : nullptr;
  if (count > 1 || (loss != nullptr && !reader_.is_plain(loss))) return in_python();
  const uint64_t scope = word(of_place_.id.of(place)), of_loss = word(slot);
  if (failed(scope) || failed(of_loss)) return {};
  Work work(*this, thread);
  if (!work) return {};
  uint32_t times = 0;
  if (loss != nullptr) {
    const Unobserved unobserved(*this);
    if (!unobserved) return {};
    const auto outcome = work.read(loss);
    if (outcome == TensorReader::Outcome::kLeft) return in_python();
    const auto phase = static_cast<uint32_t>(format::Phase::kLoss);
    if (outcome == TensorReader::Outcome::kFailed || !occurrence(place, phase, slot, times))
      return {};
    work.put({.phase = phase,
              .capture = full_,
              .scope = static_cast<uint32_t>(scope),
              .call = times,
              .slot = static_cast<uint32_t>(of_loss)});
  }
  const auto phase = static_cast<uint32_t>(format::Phase::kBackward);
  if (!occurrence(place, phase, enter, times)) return {};
  work.scope(phase, is_true(enter), static_cast<uint32_t>(scope), times);
  return work.submit() ? none() : Ref();
}

bool HotPath::parameter(Work& work, PyObject* parameter, PyObject* owner, bool of_gradients) {
  const auto phase =
      static_cast<uint32_t>(of_gradients ? format::Phase::kBackward : format::Phase::kOptimizer);
  const bool plain = reader_.is_plain(parameter);
  const Ref tensor = !plain         ? none()
                     : of_gradients ? attribute(parameter, grad_.get())
                                    : Ref::to(parameter);
  if (!tensor) return false;
  if (plain && is_none(tensor.get())) return true;  // no gradient
  using Outcome = TensorReader::Outcome;
  const Outcome outcome = plain ? work.read(tensor.get()) : Outcome::kLeft;
  if (outcome == Outcome::kLeft) {
    return static_cast<bool>(work.leave([&](PyObject*) {
      return call(python_parameter_.get(),
                  {work.thread(), parameter, owner, number(of_gradients ? 1 : 0).get()});
    }));
  }
  PyObject* const place = of_owner_.place.of(owner);
  PyObject* const slot =
      (of_gradients ? of_owner_.gradient_slot : of_owner_.parameter_slot).of(owner);
  if (outcome == Outcome::kFailed || place == nullptr || slot == nullptr) return false;
  uint32_t call = 0;
  const uint64_t scope = word(of_place_.id.of(place)), number_of_slot = word(slot);
  if (failed(scope) || failed(number_of_slot) || !occurrence(place, phase, slot, call))
    return false;
  work.put({.phase = phase,
            .capture = full_,
            .scope = static_cast<uint32_t>(scope),
            .call = call,
            .slot = static_cast<uint32_t>(number_of_slot)});
  return of_gradients || mark(parameter, owner, work.last());
}

/// As Owner.mark.
bool HotPath::mark(PyObject* parameter, PyObject* owner, const TensorMessage& message) {
  const uint64_t epoch = word(of_observer_.epoch.of(observer_.get()));
  if (failed(epoch)) return false;
  const WeightMark now = mark_of(message, epoch, reader_.is_torchs(parameter, message));
  return of_owner_.memory.set(owner, number(now.memory)) &&
         of_owner_.content.set(owner, number(now.content));
}

/// As Owner.is_written.
bool HotPath::is_written(PyObject* parameter, PyObject* owner, bool& is) {
  is = false;
  const uint64_t epoch = word(of_observer_.epoch.of(observer_.get()));
  const WeightMark before{word(of_owner_.memory.of(owner)), word(of_owner_.content.of(owner))};
  if (failed(epoch) || failed(before.memory) || failed(before.content)) return false;
  if (!is_of_epoch(before, epoch) || !reader_.is_plain(parameter)) return true;
  TensorMessage message;
  switch (reader_.read(parameter, message)) {
    case TensorReader::Outcome::kFailed: return false;
    case TensorReader::Outcome::kLeft: return true;
    case TensorReader::Outcome::kRead: break;
  }
  const WeightMark now = mark_of(message, epoch, reader_.is_torchs(parameter, message));
  is = python::is_written(before, now);
  return true;
}

/// As Names.owner.
Ref HotPath::owner_of(Work& work, PyObject* parameter, Py_ssize_t group, Py_ssize_t index) {
  const Ref key(api.PyLong_FromVoidPtr(parameter));
  if (!key) return {};
  Ref owner = Ref::to(api.PyDict_GetItemWithError(owners_.get(), key.get()));
  const uint64_t began = word(of_observer_.step_walk.of(observer_.get()));
  if (owner && word(of_owner_.seen.of(owner.get())) >= began) return owner;
  if (owner && reader_.is_plain(parameter) &&
      work.read(parameter) == TensorReader::Outcome::kRead &&
      work.storage() == word(of_owner_.storage.of(owner.get()))) {
    PyObject* const now = of_observer_.walk.of(observer_.get());
    return of_owner_.seen.set(owner.get(), now) ? std::move(owner) : Ref();
  }
  if (api.PyErr_Occurred() != nullptr) return {};
  return call(owner_.get(), {parameter, number(static_cast<uint64_t>(group)).get(),
                             number(static_cast<uint64_t>(index)).get()});
}

/// The part of ask() for one module. @return kUnusual for a module that has no plain dictionaries.
HotPath::Found HotPath::ask_module(PyObject* module, std::vector<Ref>& children, Weights* weights) {
  const Ref below = own_attribute(module, modules_.get()),
            own = below ? own_attribute(module, module_parameters_.get()) : Ref();
  if (!own) {
    api.PyErr_Clear();
    return Found::kUnusual;  // a module of TorchScript, or one that was not set up
  }
  const auto is_usual = [this](const Ref& all) {
    return all.get()->type == api.PyDict_Type || all.get()->type == ordered_dict_.get();
  };
  if (!is_usual(below) || !is_usual(own)) return Found::kUnusual;
  Py_ssize_t position = 0;
  PyObject *name = nullptr, *value = nullptr;
  while (api.PyDict_Next(below.get(), &position, &name, &value) != 0) {
    if (!is_none(value)) children.push_back(Ref::to(value));
  }
  const Ref entry = entry_at(module);
  if (!entry) return api.PyErr_Occurred() != nullptr ? Found::kFailed : Found::kAll;
  std::vector<std::pair<Ref, Ref>> unseen;  // noted after the walk: noting may run Python code
  for (position = 0; api.PyDict_Next(own.get(), &position, &name, &value) != 0;) {
    const Found seen = is_none(value) ? Found::kAll : see(value, entry.get(), name, weights);
    if (seen == Found::kFailed) return seen;
    if (seen == Found::kUnusual) unseen.emplace_back(Ref::to(name), Ref::to(value));
  }
  for (const auto& [key, parameter] : unseen) {
    if (!call(own_.get(), {parameter.get(), entry.get(), key.get()})) return Found::kFailed;
  }
  return Found::kAll;
}

/// Notes that a module still has a parameter. @param weights  null, or gets it unless its walk has met
/// it before. @return kUnusual where it may be another one.
HotPath::Found HotPath::see(PyObject* parameter, PyObject* entry, PyObject* name,
                            Weights* weights) {
  const Ref key(api.PyLong_FromVoidPtr(parameter));
  PyObject* const owner = key ? api.PyDict_GetItemWithError(owners_.get(), key.get()) : nullptr;
  if (api.PyErr_Occurred() != nullptr) return Found::kFailed;
  if (owner == nullptr) return Found::kUnusual;
  PyObject* const now = of_observer_.walk.of(observer_.get());
  if (of_owner_.place.of(owner) != of_entry_.place.of(entry) || of_owner_.name.of(owner) != name) {
    const bool tied = word(of_owner_.seen.of(owner)) == word(now);
    return tied ? Found::kAll : Found::kUnusual;
  }
  if (weights != nullptr) weights->emplace_back(Ref::to(parameter), Ref::to(owner));
  return of_owner_.seen.set(owner, now) ? Found::kAll : Found::kFailed;
}

/// @return None, or a list of those (parameter, owner) that were written since their last record.
Ref HotPath::written_of(const Weights& weights) {
  if (weights.empty()) return none();
  const Unobserved unobserved(*this);
  if (!unobserved) return {};
  Ref written;
  for (const auto& [parameter, owner] : weights) {
    bool is = false;
    if (!is_written(parameter.get(), owner.get(), is)) return {};
    if (!is) continue;
    if (!written) written = Ref(api.PyList_New(0));
    const Ref both = tuple({parameter.get(), owner.get()});
    if (!written || !both || api.PyList_Append(written.get(), both.get()) != 0) return {};
  }
  return written ? std::move(written) : none();
}

Ref HotPath::ask(const Arguments& given) {
  const uint64_t walk = word(of_observer_.walk.of(observer_.get()));
  if (failed(walk) || !of_observer_.walk.set(observer_.get(), number(walk + 1))) return {};
  std::vector<Ref> pending;
  Weights weights;
  const bool compares = is_true(given.values[1]);
  std::unordered_set<const PyObject*> met;
  pending.push_back(Ref::to(given.values[0]));
  while (!pending.empty()) {
    const Ref module = std::move(pending.back());
    pending.pop_back();
    if (!met.insert(module.get()).second) continue;
    const auto below = static_cast<Py_ssize_t>(pending.size());
    const Found found = ask_module(module.get(), pending, compares ? &weights : nullptr);
    std::reverse(pending.begin() + below, pending.end());  // in order, as Names.modules
    switch (found) {
      case Found::kFailed: return {};
      case Found::kUnusual: return call(python_ask_.get(), {given.values[0], given.values[1]});
      case Found::kAll: break;
    }
  }
  return written_of(weights);
}

/// @return whether groups and their parameters have the types that torch.optim.Optimizer makes.
bool HotPath::is_usual(PyObject* groups) {
  if (groups->type != api.PyList_Type) return false;
  for (Py_ssize_t g = 0; g < api.PyList_Size(groups); ++g) {
    PyObject* const group = api.PyList_GetItem(groups, g);
    if (group == nullptr || group->type != api.PyDict_Type) return false;
    PyObject* const all = api.PyDict_GetItemString(group, "params");
    if (all == nullptr || all->type != api.PyList_Type) return false;
  }
  return true;
}

Ref HotPath::parameters(const Arguments& given) {
  PyObject *const thread = given.values[0], *const groups = given.values[1];
  const bool of_gradients = is_true(given.values[2]);
  if (!is_usual(groups)) return call(python_parameters_.get(), {thread, groups, given.values[2]});
  Work work(*this, thread);
  const Unobserved unobserved(*this);
  if (!work || !unobserved) return {};
  for (Py_ssize_t g = 0; g < api.PyList_Size(groups); ++g) {
    const Ref group = Ref::to(api.PyList_GetItem(groups, g));
    const Ref all =
        group ? Ref::to(api.PyDict_GetItemWithError(group.get(), params_.get())) : Ref();
    if (!all) return {};
    for (Py_ssize_t i = 0; i < api.PyList_Size(all.get()); ++i) {
      const Ref one = Ref::to(api.PyList_GetItem(all.get(), i));
      const Ref owner = one ? owner_of(work, one.get(), g, i) : Ref();
      if (!owner || !parameter(work, one.get(), owner.get(), of_gradients)) return {};
    }
  }
  return work.submit() ? none() : Ref();
}

Ref HotPath::operands(const Arguments& given) {
  Position at{};
  const std::pair<int, uint32_t&> numbers[] = {
      {1, at.phase}, {2, at.capture}, {3, at.scope}, {4, at.call}, {7, at.op}};
  for (const auto& [index, field] : numbers) {
    const uint64_t value = word(given.values[index]);
    if (failed(value)) return {};
    field = static_cast<uint32_t>(value);
  }
  PyObject *const slots = given.values[5], *const all = given.values[6];
  const Py_ssize_t count = std::min(api.PyTuple_Size(slots), api.PyTuple_Size(all));
  if (count < 0) return {};
  std::vector<Input> found;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const uint64_t slot = word(api.PyTuple_GetItem(slots, i));
    std::vector<Ref> tensors;
    const Found gathered = gather(api.PyTuple_GetItem(all, i), tensors, 0);
    if (failed(slot) || gathered == Found::kFailed) return {};
    if (gathered == Found::kUnusual) return number(0);
    for (Ref& tensor : tensors) found.push_back({std::move(tensor), static_cast<uint32_t>(slot)});
  }
  if (found.empty()) return number(1);
  Work work(*this, given.values[0], false);
  const Unobserved unobserved(*this);
  if (!work || !unobserved) return {};
  bool packed = false;
  for (const Input& one : found) {
    at.slot = one.slot;
    if (!work.record(one.tensor.get(), at, packed)) return {};
  }
  return work.submit() ? number(1) : Ref();
}

}  // namespace convtrace::python
