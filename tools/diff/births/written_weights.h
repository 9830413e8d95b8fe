#pragma once
/// @file written_weights.h
/// Parameters that the program wrote outside of an optimizer's step: by a merge, an average, a
/// swap, clipping or loading. The observer records them again before their next use. No other rule
/// judges these records, and only one run may have them.
///
/// A module whose inputs agree and whose output differs is not at fault if the program wrote one of
/// its parameters, which agreed before that and now differs by as much as the output.
///
/// Place:    rank_diff.h, at its root.
/// Threads:  not thread-safe.
/// Source:   docs/recording.md "What is recorded, and how it is named".

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "format/model/definitions.h"
#include "tools/diff/births/last_weights.h"
#include "tools/diff/births/used_weights.h"
#include "tools/diff/compare/compare.h"

namespace convtrace::diff {

/// A parameter at the time when the root was computed, in both runs.
struct WrittenWeight {
  StepRecords base, cand;  ///< one value each
  Comparison comparison;
  std::string when;  ///< "written by the program between ...": in which run, and since when
};

class WrittenWeights {
 public:
  /// @param names  texts of the records' ids. @param last  the parameters before the step.
  WrittenWeights(format::Definitions& names, const LastWeights& last)
      : names_(names), last_(last) {}

  /// @param base, cand  the step. @param output  an output of a module in it whose inputs agree.
  /// @return the parameter that explains the difference of the output best, if one does.
  [[nodiscard]] std::optional<WrittenWeight> behind(const StepRecords& base,
                                                    const StepRecords& cand,
                                                    const ValueRecord& base_output,
                                                    const ValueRecord& cand_output,
                                                    double difference) const;
  /// Compares the parameters that an output was computed with. They agree only if both runs recorded
  /// them for this use: torch counts no writes through .data or a view of NumPy, and the observer
  /// inspects a few elements of each parameter.
  /// @return nullopt if neither run has a record of one.
  [[nodiscard]] std::optional<UsedWeights> shown(const StepRecords& base, const StepRecords& cand,
                                                 const ValueRecord& base_output,
                                                 const ValueRecord& cand_output) const;

 private:
  /// A record of a parameter, and its step.
  struct State {
    ValueView value;
    uint32_t step = 0;
  };
  /// One run's step.
  struct Side {
    Side(const StepRecords& step, bool is_base, const ValueRecord& used_by,
         const LastWeights& last_weights);

    /// @return how often a parameter is recorded in the step before the output.
    [[nodiscard]] size_t count(uint64_t parameter) const;
    /// @return the parameter after the first `records` of these; nullopt if it has no record.
    [[nodiscard]] std::optional<State> behind(uint64_t parameter, size_t records) const;
    /// @return whether the parameter was recorded for the output's own call.
    [[nodiscard]] bool is_of_use(const State& state) const;

    const StepRecords& records;
    const bool in_base;
    const ValueRecord& output;
    const LastWeights& last;
    /// Records of parameters before the output, by parameter_key(), in execution order.
    std::unordered_map<uint64_t, std::vector<const ValueRecord*>> weights;
    std::unordered_set<format::StringId> called;  ///< modules with recorded outputs
  };
  /// A parameter of one run when an output was computed, and before it was written.
  struct Used {
    State now, before;
    bool written = false;
  };

  [[nodiscard]] bool is_used_by(const Side& side, format::StringId scope) const;
  [[nodiscard]] std::optional<Used> used(const Side& side, const Side& other,
                                         uint64_t parameter) const;
  [[nodiscard]] std::optional<WrittenWeight> compared(uint32_t step, const Used& base,
                                                      const Used& cand, double difference) const;

  format::Definitions& names_;
  const LastWeights& last_;
};

}  // namespace convtrace::diff
