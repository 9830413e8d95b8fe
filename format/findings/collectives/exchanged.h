#pragma once
/// @file exchanged.h
/// Whether what ranks exchange between a backward pass and the optimizer lies over gradients by
/// accident.
///
/// A gradient that the optimizer takes was overwritten in a part by something that was received, and
/// nothing else of it was sent or received since the backward pass, but by an all_reduce of all of it
/// behind that. A reduction made by hand, of gradients or of a flat buffer, sends or receives all of
/// each gradient; what was received before the backward pass may have been used up.
///
/// Place:    flight_judge.h.
/// Threads:  one.

#include <optional>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

class Exchanged {
 public:
  static constexpr size_t kMost = 4096;

  struct Overwritten {
    format::TensorStats by{};  ///< without its arrays
    uint64_t address = 0, bytes = 0;
  };

  /// @param definitions  of the trace; outlive this.
  explicit Exchanged(const format::Definitions& definitions) : definitions_(definitions) {}

  /// A tensor of a collective.
  void see(const format::TensorStats& event);
  [[nodiscard]] std::optional<Overwritten> look(const format::TensorStats& gradient) const;
  /// A backward pass begins or ends, or an optimizer has taken the gradients.
  void forget() { all_.clear(); }

 private:
  [[nodiscard]] bool is_reduced_whole(const format::TensorStats& one,
                                      const format::TensorStats& gradient) const;

  struct Part {
    format::TensorStats tensor;
    bool replacing = false;  ///< received by a call that does not reduce
  };

  const format::Definitions& definitions_;
  std::vector<Part> all_;  ///< in their order
};

}  // namespace convtrace::judge
