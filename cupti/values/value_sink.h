#pragma once
/// @file value_sink.h
/// The interface between the code that reads whole tensors and the engine, which compresses and
/// writes them.
///
/// Threads:  any; an IncomingValue is used by one thread at a time.
/// Errors:   no room is a return value; nothing throws.

#include <cstddef>
#include <memory>
#include <span>

#include "format/model/events.h"

namespace convtrace::cupti {

/// A value that has room in the store. If it is destroyed before it is complete, the value is
/// dropped.
class IncomingValue {
 public:
  virtual ~IncomingValue() = default;

  /// @return memory for the next bytes in logical order; empty when the value is complete, or when
  /// no memory is left.
  [[nodiscard]] virtual std::span<std::byte> next() noexcept = 0;
  /// The memory of next() has been filled.
  virtual void filled() noexcept = 0;
};

class ValueSink {
 public:
  virtual ~ValueSink() = default;

  /// @return whether this value (by hash and size) is stored, or on its way to the store.
  [[nodiscard]] virtual bool has(const format::TensorStats& event) noexcept = 0;

  struct Begun {
    std::unique_ptr<IncomingValue> value;
    bool later = false;  ///< if there is no value: whether there may be room later
  };
  /// Does not wait.
  [[nodiscard]] virtual Begun begin(const format::TensorStats& event) noexcept = 0;

  /// Counts a value that has no room and cannot wait.
  /// @return whether its statistics should be recorded nevertheless.
  [[nodiscard]] virtual bool refuse() noexcept = 0;
};

}  // namespace convtrace::cupti
