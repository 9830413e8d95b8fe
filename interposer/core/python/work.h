#pragma once
/// @file work.h
/// One call from Python: its messages, its time if it is one of those that are timed, and what keeps
/// the program's modes from seeing it.
///
/// Place:    inside the functions of hot_path.h.
/// Threads:  the calling one, holding the GIL.

#include <time.h>

#include <functional>
#include <numeric>

#include "interposer/core/python/hot_path.h"

namespace convtrace::python {

inline constexpr uint32_t kEvery = 61;  // as in base/spent.py
/// The engine reads less than this in the time that releasing the GIL takes.
inline constexpr uint64_t kSmallValues = 64 << 10;

inline uint64_t thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

inline convtrace_message header(convtrace_message_kind kind, size_t bytes) {
  return {static_cast<uint16_t>(kind), 0, static_cast<uint32_t>(bytes)};
}

struct Position {
  uint32_t phase, capture, scope, call, slot, op = 0;
};

/// Packs the messages of one call into a buffer of its own: any function of Python may run code of
/// the program on this thread (a finalizer, a handler of a signal), which may call a module, whose
/// messages are another Work's. Messages of Python code are in the thread's Batch (base/engine.py);
/// those of this call are appended to it before Python code packs more.
class HotPath::Work {
 public:
  /// @param times  false where Python times the whole call.
  Work(HotPath& path, PyObject* thread, bool times = true)
      : path_(path), thread_(thread), batch_(Ref::to(path.of_thread_.batch.of(thread))) {
    if (!path.free_.empty()) {
      bytes_ = std::move(path.free_.back());
      path.free_.pop_back();
    }
    if (times && path.until_timed_-- == 0) {
      path.until_timed_ = kEvery - 1;
      begin_ = thread_time();
    }
  }
  ~Work() {
    bytes_.clear();
    if (path_.free_.size() < kBuffers) path_.free_.push_back(std::move(bytes_));
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  /// @return false with Python's error set.
  explicit operator bool() const { return static_cast<bool>(batch_); }

  [[nodiscard]] PyObject* thread() const { return thread_; }

  void scope(uint32_t phase, bool enter, uint32_t scope, uint32_t call) {
    convtrace_scope message{};
    message.message = header(CONVTRACE_MSG_SCOPE, sizeof message);
    message.phase = static_cast<uint8_t>(phase);
    message.enter = enter ? 1 : 0;
    message.scope = scope;
    message.call = call;
    append(&message, sizeof message);
  }

  TensorReader::Outcome read(PyObject* tensor) {
    using Outcome = TensorReader::Outcome;
    return path_.reader_.is_plain(tensor) ? path_.reader_.read(tensor, message_) : Outcome::kLeft;
  }

  /// The number of the storage of the tensor that was read last.
  [[nodiscard]] uint64_t storage() const { return message_.fixed.storage; }

  [[nodiscard]] const TensorMessage& last() const { return message_; }

  /// Packs the tensor that was read last; more than once for more than one place.
  void put(const Position& at) {
    convtrace_tensor& fixed = message_.fixed;
    fixed.message = header(CONVTRACE_MSG_TENSOR, message_.bytes());
    fixed.phase = static_cast<uint8_t>(at.phase);
    fixed.capture = static_cast<uint8_t>(at.capture);
    fixed.scope = at.scope;
    fixed.call = at.call;
    fixed.slot = at.slot;
    fixed.op = at.op;
    append(&fixed, sizeof fixed);
    append(message_.dims, message_.bytes() - sizeof fixed);
    const uint64_t elements = std::accumulate(message_.dims, message_.dims + fixed.rank,
                                              uint64_t{1}, std::multiplies<uint64_t>());
    value_bytes_ += elements * format::element_bytes(static_cast<format::DType>(fixed.dtype));
    on_device_ = on_device_ || fixed.device_type != 0;
  }

  /// Lets Python code append to the thread's batch, after the messages packed here.
  template <typename Python>
  Ref leave(Python&& python) {
    left_ = true;
    return append_to_batch() ? python(batch_.get()) : Ref();
  }

  /// Reads and packs. @return false with Python's error set; `packed`: whether it is in the batch.
  bool record(PyObject* tensor, const Position& at, bool& packed) {
    switch (read(tensor)) {
      case TensorReader::Outcome::kRead: put(at); return packed = true;
      case TensorReader::Outcome::kFailed: return false;
      case TensorReader::Outcome::kLeft: break;
    }
    const Ref result = leave([&](PyObject* batch) {
      return call(path_.pack_.get(),
                  {batch, number(at.phase).get(), number(at.capture).get(), number(at.scope).get(),
                   number(at.call).get(), number(at.slot).get(), tensor, number(at.op).get()});
    });
    packed = is_true(result.get());
    return static_cast<bool>(result);
  }

  /// As Observer.submit, which is called where Python has something to add.
  bool submit() {
    const uint64_t began = word(path_.of_thread_.began.of(thread_));
    PyObject* const messages = path_.messages_.of(batch_.get());
    const Py_ssize_t waiting = messages != nullptr ? api.PyList_Size(messages) : -1;
    if (failed(began) || waiting < 0) return false;
    if (begin_ != 0 && began == 0) {  // else it is part of a call that Python times
      convtrace_spent message{};
      message.message = header(CONVTRACE_MSG_SPENT, sizeof message);
      message.ns = kEvery * (thread_time() - begin_);
      append(&message, sizeof message);
    }
    if (left_ || began != 0 || waiting != 0)
      return append_to_batch() && method(path_.observer_.get(), path_.submit_.get(), {thread_});
    const uint64_t flags = send() & ~uint32_t{CONVTRACE_SUBMIT_WATCH};
    const uint64_t known = word(path_.of_observer_.flags.of(path_.observer_.get()));
    if (failed(known)) return false;
    return flags == known ||
           method(path_.observer_.get(), path_.set_flags_.get(), {number(flags).get()});
  }

 private:
  /// More calls than this are not under way at once.
  static constexpr size_t kBuffers = 8;

  void append(const void* message, size_t bytes) {
    const auto* const at = static_cast<const char*>(message);
    bytes_.insert(bytes_.end(), at, at + bytes);
  }

  bool append_to_batch() {
    if (bytes_.empty()) return true;
    const Ref messages = Ref::to(path_.messages_.of(batch_.get()));
    const Ref packed(
        api.PyBytes_FromStringAndSize(bytes_.data(), static_cast<Py_ssize_t>(bytes_.size())));
    bytes_.clear();
    return messages && packed && api.PyList_Append(messages.get(), packed.get()) == 0;
  }

  uint32_t send() {
    const auto size = static_cast<uint32_t>(bytes_.size());
    if (value_bytes_ < kSmallValues && !on_device_) return path_.port_.submit(bytes_.data(), size);
    void* const state = api.PyEval_SaveThread();
    const uint32_t flags = path_.port_.submit(bytes_.data(), size);
    api.PyEval_RestoreThread(state);
    return flags;
  }

  HotPath& path_;
  PyObject* thread_;
  Ref batch_;
  std::vector<char> bytes_;
  TensorMessage message_;
  uint64_t begin_ = 0;
  uint64_t value_bytes_ = 0;
  bool on_device_ = false;
  bool left_ = false;
};

/// Keeps a mode of the program from seeing each access of an attribute of a tensor, where there is
/// one (a default device is one).
class HotPath::Unobserved {
 public:
  explicit Unobserved(const HotPath& path) : path_(path) {
    const Ref modes = call(path.has_modes_.get(), {});
    ready_ = static_cast<bool>(modes);
    if (!modes || !is_true(modes.get())) return;
    guard_ = call(path.unobserved_.get(), {});
    ready_ = guard_ && method(guard_.get(), path.enter_.get());
  }
  ~Unobserved() {
    if (!guard_) return;
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    api.PyErr_Fetch(&type, &value, &traceback);
    PyObject* const nothing = api._Py_NoneStruct;
    static_cast<void>(method(guard_.get(), path_.exit_.get(), {nothing, nothing, nothing}));
    api.PyErr_Restore(type, value, traceback);
  }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;
  explicit operator bool() const { return ready_; }

 private:
  const HotPath& path_;
  Ref guard_;
  bool ready_ = false;
};

}  // namespace convtrace::python
