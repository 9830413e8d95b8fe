#pragma once
/// @file passed.h
/// One recorded value of a step, as far as the flow of values needs it: which call took or gave it,
/// and which value it is.
///
/// Place:    made by the diff, by `convtrace check` and by `convtrace show --nan` of their own
///           records.
/// Threads:  plain values.

#include <cstdint>

#include "format/model/definitions.h"
#include "format/model/events.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

struct Passed {
  Role kind = Role::kOther;
  format::Place place{};  ///< no scope: of no module
  format::StringId slot{}, op{};
  bool of_kernel = false;
  bool measured = false;  ///< its statistics are known, not its hash alone
  format::Stats stats{};
  format::ValueId value{};
  uint64_t bytes = 0;
  format::DType dtype = format::DType::kUnknown;

  /// @return whether a module has it and no op or kernel inside.
  [[nodiscard]] bool of_module() const { return !op && !of_kernel; }
};

[[nodiscard]] Passed passed_of(const format::TensorStats& event, const format::Definitions& names);
[[nodiscard]] Passed passed_of(const ValueRecord& record);

/// The phase of the call that a value belongs to: inputs of a root module have one of their own.
[[nodiscard]] format::Phase call_phase(const Passed& value);

}  // namespace convtrace::diff
