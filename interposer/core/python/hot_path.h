#pragma once
/// @file hot_path.h
/// The observer's work for each module call, gradient and parameter, without Python bytecode.
///
/// Place:    between the observer (convtrace_observer/base/native.py) and observer_abi.h. The
///           observer's own functions are the reference: they run where this part cannot load, and
///           for all cases that it leaves to them. Both work on the same objects and pack the same
///           messages into the same batch.
/// Threads:  those that hold the GIL. It is released while the engine reads large values, or enqueues
///           work on a device.
/// Errors:   an exception goes to Observer.failed, as in the Python functions; KeyboardInterrupt,
///           SystemExit and exceptions of the program's signal handlers continue to the program.

#include <cstdint>
#include <span>
#include <vector>

#include "interposer/abi/known_frame.h"
#include "interposer/core/python/slots.h"
#include "interposer/core/python/tensor_reader.h"
#include "interposer/core/python/weight_mark.h"

namespace convtrace::python {

/// Functions of observer_abi.h; tests pass their own.
struct Port {
  uint32_t (*submit)(const void* messages, uint32_t bytes);
  convtrace_thread_scope* (*scope_slot)();
  bool (*learn_frames)(std::span<const KnownFrame> known);
  void (*end_frames)();
};

/// The arguments of a call from Python.
struct Arguments {
  PyObject* const* values;
  Py_ssize_t count;
};

class HotPath {
 public:
  explicit HotPath(const Port& port);
  /// @param config  the dictionary of base/native.py. @return false with Python's error set.
  bool configure(PyObject* config);

  // The functions that Python calls; each stands for the one of the same name in the observer.

  /// (module, args, kwargs): ModuleCalls.enter
  Ref enter(const Arguments& given);
  /// (call, module, output): ModuleCalls.leave
  Ref leave(const Arguments& given);
  /// (targets, gradient): gradients.record
  Ref gradient(const Arguments& given);
  /// (thread, place of the program, whether the pass begins, the tensors that it begins from, id of
  /// "loss"): Backward.mark
  Ref backward(const Arguments& given);
  /// (thread, param_groups of an optimizer, of_gradients): Optimizers.record_parameters
  Ref parameters(const Arguments& given);
  /// (tensor): what TensorReader of values.py says of one, as a plain tuple of the fields of Memory; None
  /// where that has to say it
  Ref memory(const Arguments& given);
  /// (storage): StorageNumbers.of
  Ref number_of_storage(const Arguments& given);
  /// (): StorageNumbers.sweep
  Ref sweep(const Arguments& given);
  /// (thread, phase, capture, scope, call, slots, operands, op): the loop of compiled.Calls._record.
  /// @return whether it was done; what holds unusual types is left to Python.
  Ref operands(const Arguments& given);
  /// (root, whether weights are compared with their last records): Names.ask
  Ref ask(const Arguments& given);
  /// (): the engine's ids of texts are no longer valid
  Ref forget(const Arguments& given);
  /// (): Python is about to end
  Ref end(const Arguments& given);

  /// Hands the error that is set to Observer.failed.
  /// @return false if it is the program's: it is set again.
  bool fail(const char* site);

 private:
  class Work;
  class Unobserved;
  /// A module call under way: borrowed references.
  struct Call {
    PyObject *thread, *entry, *key, *caller, *outer, *module;
  };
  enum class Found : uint8_t { kAll, kUnusual, kFailed };
  struct Input {
    Ref tensor;
    uint32_t slot;
  };

  bool find_slots(PyObject* config);
  Ref this_thread();
  bool is_compiling(bool& is) const;
  bool is_tracing(bool& is) const;
  Ref entry_of(PyObject* thread, PyObject* module, PyObject* caller, const Arguments& given);
  bool tell(PyObject* thread, PyObject* entry, PyObject* module);
  bool is_told(PyObject* entry, PyObject* module);
  bool reset(PyObject* place, PyObject* step);
  bool number_of_call(PyObject* place, uint32_t& call);
  bool entered(const Call& call, PyObject* args, PyObject* kwargs);
  bool left(const Call& call, PyObject* output);
  void restore(const Call& call);
  [[nodiscard]] bool is_set(const Slot& slot) const { return is_true(slot.of(observer_.get())); }
  [[nodiscard]] bool is_new_step(PyObject* place) const;
  Found gather(PyObject* structure, std::vector<Ref>& found, int depth);
  Found is_leaf(PyObject* type);
  Found inputs(PyObject* args, PyObject* kwargs, std::vector<Input>& found);
  bool slot_of(std::vector<uint32_t>& known, PyObject* kind, size_t index, uint32_t& slot);
  bool slot_of_name(PyObject* name, uint32_t& slot);
  bool follow(PyObject* thread, PyObject* tensor, PyObject* key, size_t index);
  bool hook(PyObject* thread, PyObject* tensor, PyObject* node, PyObject* place, PyObject* hook);
  static bool is_usual(PyObject* groups);
  bool parameter(Work& work, PyObject* parameter, PyObject* owner, bool of_gradients);
  Ref owner_of(Work& work, PyObject* parameter, Py_ssize_t group, Py_ssize_t index);
  /// (parameter, owner)
  using Weights = std::vector<std::pair<Ref, Ref>>;
  Found see(PyObject* parameter, PyObject* entry, PyObject* name, Weights* seen);
  Ref entry_at(PyObject* module);
  Found ask_module(PyObject* module, std::vector<Ref>& children, Weights* seen);
  bool mark(PyObject* parameter, PyObject* owner, const TensorMessage& message);
  bool is_written(PyObject* parameter, PyObject* owner, bool& is);
  Ref written_of(const Weights& seen);
  bool occurrence(PyObject* place, uint32_t phase, PyObject* slot, uint32_t& call);

  Port port_;
  uint64_t number_;  ///< number of this HotPath in the process
  TensorReader reader_;
  uint32_t until_timed_ = 30;            // as in base/scopes.py
  std::vector<std::vector<char>> free_;  // buffers of finished calls
  std::vector<uint32_t> input_slots_, output_slots_, gradient_slots_;
  std::vector<const PyObject*> leaf_types_;
  Ref named_slots_;
  // From the observer.
  Ref observer_, python_entered_, python_left_, python_gradient_, python_parameter_,
      python_parameters_, python_backward_, threads_, entries_, find_, tell_, is_tracing_,
      compiler_, pack_, slot_, hooks_, follow_, registers_, ordered_dict_, record_buffers_, owner_,
      own_, python_ask_, owners_, ask_is_leaf_, has_modes_, unobserved_;
  uint8_t full_ = 0;
  bool keeps_thread_ = false;
  struct {
    Slot active, capture, follows, step, flags, walk, step_walk, epoch;
  } of_observer_;
  struct {
    Slot entry, batch, after_root, began, followed;
  } of_thread_;
  struct {
    Slot token, place, wrapper, untold, settings, buffers, pad_index;
  } of_entry_;
  struct {
    Slot id, step, calls, recomputes, inputs, parameters;
  } of_place_;
  struct {
    Slot seen, storage, place, name, parameter_slot, gradient_slot, memory, content;
  } of_owner_;
  Slot messages_;
  // Interned names.
  Ref set_flags_, submit_, failed_, requires_grad_, grad_fn_, backward_hooks_, register_hook_,
      register_hook_dict_, hook_key_, sequence_nr_, output_nr_, state_, dict_, module_buffers_,
      module_parameters_, modules_, token_, params_, grad_, kind_input_, kind_output_,
      kind_gradient_, is_cuda_, enter_, exit_, is_compiling_;
};

}  // namespace convtrace::python
