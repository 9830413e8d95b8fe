#pragma once
/// @file exchanged.h
/// Finds gradients that a collective between the backward pass and the optimizer has overwritten by
/// accident.
///
/// Criterion: a receive has overwritten a part of a gradient that the optimizer takes, and since the
/// backward pass no other part of it was sent or received, except by an all_reduce of the whole
/// gradient, and in front of a message (recv), or of what reaches beyond the gradient, by one, too. A
/// reduction written by hand, of gradients or of a flat buffer, is no finding: it sends or receives each
/// gradient completely. Receives before the backward pass are not considered, because the program may be
/// done with their values.
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
    bool is_reduced = false;  ///< the whole gradient was, before the receive
    bool straddles = false;   ///< what was received reaches beyond the gradient
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
