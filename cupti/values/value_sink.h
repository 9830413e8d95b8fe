#pragma once
/// @file value_sink.h
/// Where the bytes of tensors go that are to be stored whole: a seam between those who read them
/// and the engine, which compresses and writes them.
///
/// Threads:  any; an IncomingValue belongs to one at a time.
/// Errors:   no room is an answer; nothing throws.

#include <cstddef>
#include <memory>
#include <span>

#include "format/model/events.h"

namespace convtrace::cupti {

/// A value for which there is room. Destroyed before it is complete, it is given up.
class IncomingValue {
 public:
  virtual ~IncomingValue() = default;

  /// @return memory for the next bytes in logical order; empty when the value is complete, or when
  /// there is no memory after all.
  [[nodiscard]] virtual std::span<std::byte> next() noexcept = 0;
  /// What next() gave is filled.
  virtual void filled() noexcept = 0;
};

class ValueSink {
 public:
  virtual ~ValueSink() = default;

  /// Whether the value of `event` (its hash and bytes) is stored or on its way there.
  [[nodiscard]] virtual bool has(const format::TensorStats& event) noexcept = 0;

  struct Begun {
    std::unique_ptr<IncomingValue> value;
    bool later = false;  ///< without a value: whether there may be room when others have gone
  };
  /// Does not wait.
  [[nodiscard]] virtual Begun begin(const format::TensorStats& event) noexcept = 0;

  /// There is no room for a value, and no waiting for it: counts it.
  /// @return whether its statistics are to be recorded all the same.
  [[nodiscard]] virtual bool refuse() noexcept = 0;
};

}  // namespace convtrace::cupti
