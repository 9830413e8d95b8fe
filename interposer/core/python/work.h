#pragma once
/// @file work.h
/// One call from Python: its batch, its time if it is one of those that are timed, and what keeps
/// the program's modes from seeing it.
///
/// Place:    inside the functions of hot_path.h.
/// Threads:  the calling one, holding the GIL.

#include <time.h>

#include <cstring>

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

inline Ref none() { return Ref::to(api._Py_NoneStruct); }

struct Position {
  uint32_t phase, capture, scope, call, slot;
};

/// One call of Python: its batch, and its time if it is one of those that are timed.
class HotPath::Work {
 public:
  Work(HotPath& path, PyObject* thread)
      : path_(path),
        thread_(thread),
        batch_(path.batch_names_, attribute(thread, path.batch_.get())) {
    if (path.until_timed_-- == 0) {
      path.until_timed_ = kEvery - 1;
      begin_ = thread_time();
    }
  }

  [[nodiscard]] PyObject* thread() const { return thread_; }

  bool scope(uint32_t phase, bool enter, uint32_t scope, uint32_t call) {
    convtrace_scope message{};
    message.message = header(CONVTRACE_MSG_SCOPE, sizeof message);
    message.phase = static_cast<uint8_t>(phase);
    message.enter = enter ? 1 : 0;
    message.scope = scope;
    message.call = call;
    return batch_.append(message);
  }

  TensorReader::Outcome read(PyObject* tensor) {
    using Outcome = TensorReader::Outcome;
    return path_.reader_.is_plain(tensor) ? path_.reader_.read(tensor, message_) : Outcome::kLeft;
  }

  /// Packs the tensor that was read last; more than once for more than one place.
  bool put(const Position& at) {
    convtrace_tensor& fixed = message_.fixed;
    fixed.message = header(CONVTRACE_MSG_TENSOR, message_.bytes());
    fixed.phase = static_cast<uint8_t>(at.phase);
    fixed.capture = static_cast<uint8_t>(at.capture);
    fixed.scope = at.scope;
    fixed.call = at.call;
    fixed.slot = at.slot;
    char* const to = batch_.claim(message_.bytes());
    if (to == nullptr) return false;
    std::memcpy(to, &message_, sizeof fixed);
    std::memcpy(to + sizeof fixed, message_.dims, message_.bytes() - sizeof fixed);
    if (fixed.device_type == 0) host_bytes_ += fixed.storage_bytes;
    return true;
  }

  /// Lets Python code pack into this batch.
  template <typename Python>
  Ref leave(Python&& python) {
    if (!batch_.store()) return {};
    left_ = true;
    Ref result = python(batch_.object());
    return result && batch_.reload() ? std::move(result) : Ref();
  }

  /// Reads and packs. @return false with Python's error set; `packed`: whether it is in the batch.
  bool record(PyObject* tensor, const Position& at, bool& packed) {
    switch (read(tensor)) {
      case TensorReader::Outcome::kRead:
        packed = true;
        return put(at);
      case TensorReader::Outcome::kFailed:
        return false;
      case TensorReader::Outcome::kLeft:
        break;
    }
    const Ref result = leave([&](PyObject* batch) {
      return call(path_.pack_.get(),
                  {batch, number(at.phase).get(), number(at.capture).get(), number(at.scope).get(),
                   number(at.call).get(), number(at.slot).get(), tensor});
    });
    packed = is_true(result.get());
    return static_cast<bool>(result);
  }

  /// As Observer.submit, which is called where Python may have to add something.
  bool submit() {
    const uint64_t began = word(attribute(thread_, path_.began_.get()));
    if (failed(began)) return false;
    if (left_ || began != 0) {
      return batch_.store() && method(path_.observer_.get(), path_.submit_.get(), {thread_}) &&
             batch_.reload();
    }
    if (begin_ != 0) {
      convtrace_spent message{};
      message.message = header(CONVTRACE_MSG_SPENT, sizeof message);
      message.ns = kEvery * (thread_time() - begin_);
      if (!batch_.append(message)) return false;
    }
    const uint64_t flags = send() & ~uint32_t{CONVTRACE_SUBMIT_WATCH};
    if (!batch_.clear()) return false;
    const uint64_t known = word(attribute(path_.observer_.get(), path_.flags_.get()));
    if (failed(known)) return false;
    return flags == known ||
           method(path_.observer_.get(), path_.set_flags_.get(), {number(flags).get()});
  }

 private:
  uint32_t send() {
    const auto size = static_cast<uint32_t>(batch_.size());
    if (host_bytes_ < kSmallValues) return path_.port_.submit(batch_.data(), size);
    void* const state = api.PyEval_SaveThread();
    const uint32_t flags = path_.port_.submit(batch_.data(), size);
    api.PyEval_RestoreThread(state);
    return flags;
  }

  HotPath& path_;
  PyObject* thread_;
  Batch batch_;
  TensorMessage message_;
  uint64_t begin_ = 0;
  uint64_t host_bytes_ = 0;
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
