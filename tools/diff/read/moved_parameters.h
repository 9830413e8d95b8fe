#pragma once
/// @file moved_parameters.h
/// Parameters that the two programs keep in different modules, as the weight of a norm that one
/// program computes inside the next layer.
///
/// The parameter and its gradient get the name that the user says (`[parameters]` of `--map`). The
/// module that they go to does not compute what it is named for: its outputs and their gradients
/// are taken out of the step, also where the modules that hold the parameter take them as inputs.
///
/// Place:    step_stream.h, one of each trace.
/// Threads:  not thread-safe.
/// Memory:   a name of each parameter.

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "format/model/definitions.h"
#include "tools/trace/model/record.h"
#include "tools/trace/names/renames.h"

namespace convtrace::diff {

class MovedParameters {
 public:
  /// @param names  of the steps' records; must outlive this.
  explicit MovedParameters(format::Definitions& names) : names_(names) {}

  /// @param rules  names of parameters with their modules' paths: `cand` is compared as `base`.
  void use(std::vector<ScopeRename> rules) { rules_ = std::move(rules); }

  void apply(StepRecords& step);

 private:
  struct Name {
    format::StringId scope, tensor;
  };
  const std::optional<Name>& of(const ValueRecord& record);
  void find_holders(std::string_view path, std::string_view goes_to);

  format::Definitions& names_;
  std::vector<ScopeRename> rules_;
  std::unordered_map<uint64_t, std::optional<Name>> known_;  ///< by parameter_key()
  std::unordered_set<uint32_t> hollow_;                      ///< modules that compute nothing
  /// The modules that a parameter is moved out of, up to those around the one that it goes to.
  std::unordered_set<uint32_t> holders_;
};

}  // namespace convtrace::diff
