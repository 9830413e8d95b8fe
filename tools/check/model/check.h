#pragma once
/// @file check.h
/// The interface of a check: a class that sees the steps of one rank in ascending order and reports
/// faults.
///
/// Place:    judge.h feeds it, catalog.h lists all.
/// Threads:  one; a check belongs to one rank.
/// Rule:     without evidence in the trace a check is silent. Its file lists the cases that it
///           cannot distinguish from a fault and therefore omits.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/model/definitions.h"
#include "tools/check/model/facts.h"
#include "tools/check/model/finding.h"
#include "tools/check/model/step_values.h"

namespace convtrace::check {

/// The context of a step's values.
struct Surroundings {
  const format::Definitions& names;
  const Facts& facts;  ///< as of the end of this step
  uint32_t rank = 0;
  bool alone = true;  ///< no other rank of the run takes part in its sums
  /// A random generator may have moved in this step; also true if that is unknown.
  bool drew = true;
};

class Check {
 public:
  Check() = default;
  virtual ~Check() = default;
  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;

  virtual void see(const StepValues& step, const Surroundings& around) = 0;
  /// After the last step.
  virtual void end(const Surroundings&) {}

  [[nodiscard]] std::vector<Finding> take_findings() { return std::move(findings_); }
  /// The number of judgements of each id: without any, the absence of findings is no evidence.
  [[nodiscard]] const std::vector<std::pair<std::string_view, uint64_t>>& looks() const {
    return looks_;
  }

 protected:
  /// @return the finding, valid until the next one.
  Finding& report(Finding finding) { return findings_.emplace_back(std::move(finding)); }
  void look(std::string_view id, uint64_t times = 1) {
    for (auto& [name, count] : looks_) {
      if (name == id) return void(count += times);
    }
    looks_.emplace_back(id, times);
  }

 private:
  std::vector<Finding> findings_;
  std::vector<std::pair<std::string_view, uint64_t>> looks_;
};

using MakeCheck = std::unique_ptr<Check> (*)();

/// @return "h.0.mlp.weight"; not escaped.
[[nodiscard]] std::string parameter_name(const format::Definitions& names,
                                         const Parameter& parameter);
/// @return "module h.0.mlp" or "the root module"; not escaped.
[[nodiscard]] std::string module_name(const format::Definitions& names, format::StringId scope);

/// A finding about a value, with its place filled in.
[[nodiscard]] Finding about(std::string_view id, Severity severity, const Surroundings& around,
                            uint32_t step, const Value& value);

/// @return how far apart two records of one tensor are, relative to the first: by their sketches,
/// else by their averages. 1 if it is not known.
[[nodiscard]] double relative_distance(const Value& a, const Value& b);

/// @return "0x" and 16 digits of a value's hash, with its l2 where that is known.
[[nodiscard]] std::string numbers_of(const Value& value);

}  // namespace convtrace::check
