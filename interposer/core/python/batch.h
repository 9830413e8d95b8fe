#pragma once
/// @file batch.h
/// The bytes of a thread's batch of messages, as base/engine.py's Batch keeps them: C++ appends to
/// what Python has packed, and the other way round.
///
/// Threads:  the one whose batch it is, holding the GIL.
/// Errors:   claim() returns null with Python's error set.

#include <cstring>

#include "interposer/core/python/api.h"

namespace convtrace::python {

/// Names of the attributes and the method of Batch, interned.
struct BatchNames {
  Ref bytes, size, claim;
};

class Batch {
 public:
  Batch(const BatchNames& names, Ref object) : names_(names), object_(std::move(object)) {
    reload();
  }

  [[nodiscard]] PyObject* object() const { return object_.get(); }
  [[nodiscard]] const char* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

  /// Makes room for `bytes` more. The pointer is valid until the next claim.
  char* claim(size_t bytes) {
    if (data_ == nullptr) return nullptr;
    if (size_ + bytes > capacity_) {
      if (!store() || !method(object_.get(), names_.claim.get(), {number(bytes).get()})) {
        return nullptr;
      }
      const size_t before = size_;
      if (!reload()) return nullptr;
      size_ = before;
    }
    return data_ + std::exchange(size_, size_ + bytes);
  }

  template <typename Message>
  bool append(const Message& message) {
    char* const at = claim(sizeof message);
    if (at != nullptr) std::memcpy(at, &message, sizeof message);
    return at != nullptr;
  }

  /// Tells Python what is packed: before Python code packs more, or sends it.
  bool store() { return store(size_); }
  /// Everything was sent.
  bool clear() {
    size_ = 0;
    return stored_ == 0 || store(0);
  }
  /// Takes over what Python code has packed meanwhile.
  bool reload() {
    if (!object_) return false;
    bytes_ = attribute(object_.get(), names_.bytes.get());
    size_ = stored_ = word(attribute(object_.get(), names_.size.get()));
    data_ = bytes_ && !failed(size_) ? api.PyByteArray_AsString(bytes_.get()) : nullptr;
    capacity_ = bytes_ ? static_cast<size_t>(api.PyByteArray_Size(bytes_.get())) : 0;
    return data_ != nullptr;
  }

 private:
  bool store(size_t size) {
    stored_ = size;
    return api.PyObject_SetAttr(object_.get(), names_.size.get(), number(size).get()) == 0;
  }

  const BatchNames& names_;
  Ref object_, bytes_;
  char* data_ = nullptr;
  size_t size_ = 0, stored_ = 0, capacity_ = 0;
};

}  // namespace convtrace::python
