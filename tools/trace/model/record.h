#pragma once
/// @file record.h
/// One step of one trace as the diff uses it: values under stable keys, launches by the numbers of
/// their keys.
///
/// Place:     filled by step_stream.h, read by align.h, compare.h, lineage.h, root.h.
/// Ownership: a StepRecords owns everything its records refer to; texts are ids of the one table
///            (`names`) that all traces of a diff share, so equal texts of two traces have equal
///            ids.
/// Threads:   plain values.
/// Source:    docs/recording.md "Scopes and calls", format/model/events.h.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"
#include "tools/trace/model/slot.h"

namespace convtrace::diff {

/// The stable key of a value inside one (rank, step). Never an address, a time or a module index.
struct RecordKey {
  format::StringId scope, op, family, slot;
  uint32_t call = 0;
  uint32_t occurrence = 0;  ///< number of earlier records of the step with the same other fields
  format::Phase phase = format::Phase::kForward;
  bool operator==(const RecordKey&) const = default;
};

struct LaunchKey {
  format::StringId scope, family;
  uint32_t call = 0;
  format::Phase phase = format::Phase::kForward;
  bool operator==(const LaunchKey&) const = default;
};

struct ValueRecord;
/// @return a key of the parameter that a parameter, a gradient or a buffer record belongs to.
[[nodiscard]] uint64_t parameter_key(const ValueRecord& record);

/// @return whether the value is a parameter after an optimizer's step.
[[nodiscard]] bool is_update(const ValueRecord& record);

/// @return whether the value is a loss, or an output that is one number: an average as a rule.
[[nodiscard]] bool is_scalar_result(const ValueRecord& record);

/// @return whether the first record was made before the second, in one run.
[[nodiscard]] bool is_before(const ValueRecord& a, const ValueRecord& b);

/// @return a key of the module call, or the op inside it, that the record is an input or output of.
[[nodiscard]] RecordKey call_key(const ValueRecord& record);

struct StepRecords;
/// @return whether it is a parameter's value before the first call of its model.
[[nodiscard]] bool is_first_weight(const ValueRecord& record);
/// @return whether the step contains more than evaluation. Evaluation after the last update has a
/// step of its own.
[[nodiscard]] bool trains(const StepRecords& step);

/// @return the path of a module's parameter or buffer: "fc1.weight"; the name alone for the root.
[[nodiscard]] std::string path_in(std::string_view module, std::string_view name);

/// @return whether a module lies inside another one, by their paths.
[[nodiscard]] bool is_inside(std::string_view path, std::string_view outer);

/// Hashes the fields of RecordKey and LaunchKey.
struct KeyHash {
  size_t operator()(const RecordKey& key) const noexcept;
  size_t operator()(const LaunchKey& key) const noexcept;
};

/// The rank whose value cannot be part of the other run's, if one stands out (whole_values.cpp).
struct OddRank {
  uint32_t rank = 0;
  double by = 0;    ///< relative excess over the other run's value; infinite: certain
  double next = 0;  ///< the same for the second rank
};

struct ValueRecord {
  RecordKey key;
  Role kind = Role::kOther;
  format::StringId tensor;  ///< the slot's text after the colon: joins `grad:w` with `param:w`
  format::StringId before;  ///< for an operand after its op: the operand's slot before the op
  format::StringId kernel;  ///< the driver's name of it, or none
  uint64_t t_ns = 0;
  uint64_t seq = 0;
  uint32_t thread = 0;  ///< native id
  format::Device device;
  format::DType dtype = format::DType::kUnknown;
  format::Extent extent = format::Extent::kTensor;
  format::Capture capture = format::Capture::kStats;
  bool has_shape = false;
  bool hashed_anew = false;  ///< hashed by version 2 of the hash, comparable with such hashes only
  bool unwritten = false;    ///< an output of an op for which leaves_unwritten() holds
  /// An operand of an op for which is_fused() holds: which values these are depends on what else
  /// the compiler fused.
  bool fused = false;
  bool of_loss = false;  ///< an operand of an op for which is_loss() holds
  /// Put together from what ranks hold (whole_values.h): equal hashes mean equal bytes, unlike ones
  /// nothing.
  bool in_pieces = false;
  /// A copy of a tensor of which another rank holds an unlike one.
  bool parted = false;
  /// An update of a parameter in pieces, where one rank has not changed its own piece.
  bool held_back = false;
  OddRank odd;
  /// Norm of the change since the parameter was recorded last, estimated from the sketches of all
  /// pieces; NaN: not known.
  double moved = std::numeric_limits<double>::quiet_NaN();
  uint8_t dims_count = 0;
  uint32_t samples_bytes = 0;  ///< the size of `samples` and `leading` together
  size_t dims_at = 0;          ///< into StepRecords::dims
  size_t samples_at = 0;       ///< into StepRecords::samples
  format::ValueId value;
  uint64_t address = 0;
  uint64_t bytes = 0;
  format::Stats stats;
};

/// Values of a GPU and of other threads arrive until the trace is so many steps further than
/// theirs.
inline constexpr uint32_t kLateSteps = 2;
/// @return whether no more of a step will come. @param newest  the step that the trace has reached.
[[nodiscard]] constexpr bool is_whole(uint32_t step, uint32_t newest) {
  return newest > uint64_t{step} + kLateSteps;
}

struct StepRecords {
  uint32_t step = 0;
  std::vector<ValueRecord> values;  ///< in execution order
  /// Parameters that the program wrote itself: they are evidence, and not among `values`.
  std::vector<ValueRecord> written{};
  std::vector<uint32_t> launches;  ///< numbers of launch_keys.h
  std::vector<uint64_t> dims;
  std::vector<std::byte> samples;
  bool may_be_cut = false;  ///< the last step of a trace that was not closed

  /// Empties the step and keeps its memory for the next.
  void clear() {
    values.clear();
    written.clear();
    launches.clear();
    dims.clear();
    samples.clear();
  }
  [[nodiscard]] std::span<const uint64_t> shape_of(const ValueRecord& record) const {
    return std::span(dims).subspan(record.dims_at, record.dims_count);
  }
  [[nodiscard]] std::span<const std::byte> samples_of(const ValueRecord& record) const {
    return std::span(samples).subspan(record.samples_at, record.samples_bytes);
  }
};

}  // namespace convtrace::diff
