#pragma once
/// @file step_values.h
/// One step of one rank as checks read it: its values in the order in which they were recorded, by
/// parameter and by module call.
///
/// Ownership: a StepValues owns its values. Names are ids of the trace's definitions.
/// Threads:   plain values.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"
#include "tools/trace/model/slot.h"

namespace convtrace::check {

using diff::Role;

struct Value {
  Role role = Role::kOther;
  uint64_t seq = 0;
  format::Place place;
  format::StringId slot, name, op;  ///< `name`: the slot's text after the colon
  format::KernelId kernel;
  format::DType dtype = format::DType::kUnknown;
  format::Capture capture = format::Capture::kHash;
  uint64_t bytes = 0;
  uint64_t shape = 0;  ///< a hash of the extents
  format::Stats stats;
  size_t ranges_at = 0;  ///< into StepValues::ranges
  uint32_t range_count = 0;
  size_t samples_at = 0;  ///< into StepValues::samples
  uint32_t sample_bytes = 0;
  size_t extents_at = 0;  ///< into StepValues::extents
  uint32_t rank = 0;
  uint64_t storage = 0;  ///< 0: not known
  uint64_t offset = 0;   ///< in the storage
  uint64_t generation = 0;
  uint32_t version = 0;
  uint64_t address = 0;
  format::Padding padding = format::Padding::kNone;
  uint64_t pad_count = 0;
  uint64_t poisoned = 0;  ///< elements that hold the pattern of CONVTRACE_POISON

  [[nodiscard]] bool measured() const { return capture != format::Capture::kHash; }
  /// @return whether every element is 0; false if only a hash is known.
  [[nodiscard]] bool zero() const {
    return measured() && stats.pos_zero + stats.neg_zero == stats.count;
  }
  [[nodiscard]] bool finite() const { return measured() && stats.finite == stats.count; }
  /// @return whether all elements are one number. Meant for floats.
  [[nodiscard]] bool constant() const {
    return measured() && stats.min.as_f64() == stats.max.as_f64();
  }
  /// Root of the mean square.
  [[nodiscard]] double rms() const;
};

/// A parameter by the module that owns it and its name there.
struct Parameter {
  format::StringId scope, name;
  auto operator<=>(const Parameter&) const = default;
};

/// The records of a parameter in a step; null: not recorded.
struct ParameterStep {
  const Value* gradient = nullptr;   ///< the first one that the optimizer took
  const Value* unclipped = nullptr;  ///< the one before clipping, if it was clipped
  const Value* initial = nullptr;    ///< before the first forward pass
  std::vector<const Value*> updates{};

  [[nodiscard]] const Value* of_backward() const {
    return unclipped != nullptr ? unclipped : gradient;
  }
};

/// A call of a module, or of an op inside it.
struct CallKey {
  format::StringId scope, op;
  format::Phase phase = format::Phase::kForward;  ///< kForward, not kData, for inputs of a root
  uint32_t call = 0;
  auto operator<=>(const CallKey&) const = default;
};
struct CallStep {
  std::vector<const Value*> inputs{}, outputs{};
};

struct FactSeen {
  format::StringId scope, name;  ///< no scope: of the program
  std::string value;
};

struct StepValues {
  uint32_t number = 0;
  std::vector<Value> values;
  std::vector<uint64_t> ranges;    ///< hashes of byte ranges of parameters and their gradients
  std::vector<std::byte> samples;  ///< samples of these, and of modules' values and gradients
  std::vector<uint64_t> extents;   ///< extents of the same values
  std::vector<FactSeen> facts;     ///< new at the begin of this step or within it

  // Made by index().
  std::map<Parameter, ParameterStep> parameters;
  std::map<CallKey, CallStep> calls;
  std::map<format::StringId, std::vector<const Value*>> grad_outputs;  ///< by module
  std::vector<const Value*> data;    ///< inputs of root modules in training
  std::vector<const Value*> losses;  ///< the losses of all backward passes
  bool trains = false;               ///< it has an update or a gradient

  void index();
  [[nodiscard]] std::span<const uint64_t> ranges_of(const Value& value) const {
    return std::span(ranges).subspan(value.ranges_at, value.range_count);
  }
  [[nodiscard]] std::span<const std::byte> samples_of(const Value& value) const {
    return std::span(samples).subspan(value.samples_at, value.sample_bytes);
  }
  [[nodiscard]] std::span<const uint64_t> extents_of(const Value& value) const {
    return std::span(extents).subspan(value.extents_at, value.rank);
  }
};

/// @return a sum over the hashes of values and their places, which does not depend on their order.
[[nodiscard]] uint64_t signature(std::span<const Value* const> values);

}  // namespace convtrace::check
