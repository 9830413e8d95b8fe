#pragma once
/// @file heat_map.h
/// The size of the difference in each module, phase and step, for the map of the HTML page, and in
/// each step as a whole, for its chart of growth.
///
/// Memory:   two bytes for each module, phase and step.
/// Threads:  not thread-safe.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tools/common/json.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// A difference in multiples of its limit; in exact comparison, which has no limit, in multiples of
/// the unit roundoff of the value's type. kNoNumber: values differ, and the difference has no size
/// (a NaN, another shape).
enum class Heat : uint8_t {
  kNothing,  ///< nothing was compared
  kEqual,
  kUnmeasured,  ///< agrees, and nothing was measured
  kTo001,
  kTo01,
  kTo1,
  kOneSided,  ///< only one run has the value
  kHashes,    ///< other hashes, of values without statistics
  kTo10,
  kTo100,
  kTo1000,
  kTo100000,
  kMore,
  kNoNumber,
};

/// @return the difference in these units; more than 1 if the values do not agree; NaN if it has no
/// size.
[[nodiscard]] double size_of(const RecordReport& record);
[[nodiscard]] Heat heat_of(const RecordReport& record);

class HeatMap {
 public:
  /// The largest heat and the gravest class of the values in one module, phase and step.
  struct Cell {
    Heat heat = Heat::kNothing;
    Class verdict = Class::kIdentical;
  };

  /// @param scope, @param step  numbers from 0 on.
  void add(uint32_t scope, uint32_t step, const RecordReport& record);

  /// @param limit  bytes of text: steps are put together, by their worst, until the lines fit.
  /// @param order  numbers of the steps, in which the cells are to stand.
  /// @return `steps_per_cell`; `lines`: for each module and phase its number, the phase, and runs
  /// of cells: a letter of the class ("a" the first one), one of the heat ("A" the first one), and
  /// the run's length, as "aB120fG3", or "-120" where nothing was compared; `growth`: for each step
  /// the largest and the median difference as shares of the values' size, and the largest in units of
  /// its limit; or null: of what differs nothing was measured.
  [[nodiscard]] tools::Json json(std::span<const uint32_t> order, size_t limit = 500'000) const;

 private:
  using Line = std::vector<Cell>;
  /// Counts differences of a step by size, four bins a decade.
  struct Sizes {
    static constexpr int kBins = 64;
    double largest = -1;      ///< -1: nothing was measured
    double over = 0;          ///< the largest, in units of its limit
    bool unmeasured = false;  ///< some differences have no size
    std::array<uint32_t, kBins> bins{};
    void add(double size);
    [[nodiscard]] double median() const;
  };

  static void halve(Line& cells);
  [[nodiscard]] tools::Json growth(std::span<const uint32_t> order) const;

  std::map<std::pair<uint32_t, format::Phase>, Line> lines_;
  std::vector<Sizes> steps_;
};

}  // namespace convtrace::diff
