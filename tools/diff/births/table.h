#pragma once
/// @file table.h
/// The limits that tell rounding from a fault, as a table. A row lets values of some kinds differ, in
/// one measure, by its limit times what it is held against. The largest such product of all rows is
/// the limit; a measure without a row is not judged.
///
/// Place:    births.h, updates.h.
/// Threads:  constants and pure functions.
/// Source:   docs/lab/calibration.md has the measurements of each row, and
///           tests/unit/tools/diff/table_test.cpp a case that is judged otherwise without it.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "tools/diff/births/sources.h"

namespace convtrace::diff {

/// Kinds of values, and of what is said about several values; a bit each.
enum Kinds : uint16_t {
  kLosses = 1 << 0,         ///< and other results of one element
  kSums = 1 << 1,           ///< gradients of parameters: sums over rows, whose terms may cancel
  kBuffers = 1 << 2,        ///< averages of what a module was given
  kGradients = 1 << 3,      ///< of activations
  kNarrowOutputs = 1 << 4,  ///< in 16 bits and less
  kOthers = 1 << 5,
  kNormed = kNarrowOutputs | kOthers,
  kValues = kNormed | kGradients,
  /// The norm of a sum's terms by that of the sum, for a parameter that a module uses between its
  /// calls of others: what it is multiplied by has no record.
  kTerms = 1 << 6,
  kUpdateNorms = 1 << 7,    ///< the ratio of the two runs' norms of all updates of a step
  kUpdateCosines = 1 << 8,  ///< of all updates' difference with the parameters
  kUpdateGains = 1 << 9,    ///< a parameter's difference, by what explains it; of them the median
  /// A parameter's gradient: beyond it its updates are left out, in all later steps, since an
  /// optimizer keeps averages of past gradients.
  kUpdating = 1 << 10,
};

/// What a limit is a multiple of.
enum class Against : uint8_t {
  kWideSums,   ///< roundoff of a type whose sums are wider, of the value or its sources
  kOwnSums,    ///< of a type that sums are rounded to at each term
  kCasts,      ///< of a type that is only cast to
  kUnit,       ///< the largest of these roundoffs
  kBorn,       ///< largest difference that may be born
  kSources,    ///< difference of the sources
  kLoss,       ///< that by the root of the rows that are averaged; at least the roundoff of f32
  kBefore,     ///< difference of a buffer as the call before left it
  kMeanError,  ///< standard error of rounding in a mean
  kSigns,      ///< root of the share of signs that may differ
  kOneSign,    ///< root of one element's share, where one sign may differ
  kNoise,      ///< difference among repetitions of the baseline
  kNorms,      ///< ratio of the norms of all gradients
  kChance,     ///< standard deviation of an estimate
  kOne,
};

struct BirthRow {
  std::string_view name;
  uint16_t kinds;
  Field measure;
  Against against;
  double limit;
};

/// Limits of rows that further rules use.
inline constexpr double kElementGain = 4, kNoiseGain = 3, kUpdateNormLimit = 0.05;

inline constexpr BirthRow kBirthRows[] = {
    {"gain", kValues | kBuffers | kSums, Field::kRms, Against::kSources, kGain},
    {"born in 16 bits", kValues | kBuffers, Field::kRms, Against::kWideSums, 8},
    {"born in f32 and f64", kValues | kBuffers, Field::kRms, Against::kOwnSums, 256},
    {"born by a cast", kValues | kBuffers | kSums, Field::kRms, Against::kCasts, 1},
    {"gain of a norm", kNormed, Field::kNorm, Against::kSources, 1.5},
    {"norm, born", kNormed, Field::kNorm, Against::kBorn, 5.0 / 8},
    {"kinks", kGradients, Field::kRms, Against::kSigns, 5},
    {"one sign", kGradients, Field::kRms, Against::kOneSign, 2},
    {"mean", kNarrowOutputs, Field::kMean, Against::kMeanError, 10},
    {"mean of like errors", kNarrowOutputs, Field::kMean, Against::kUnit, 0.1},
    {"element", kValues, Field::kElement, Against::kBorn, kElementGain},
    {"sum in 16 bits", kSums, Field::kRms, Against::kWideSums, 32},
    {"sum in f32 and f64", kSums, Field::kRms, Against::kOwnSums, 1024},
    {"terms between calls", kTerms, Field::kUpdate, Against::kOne, 2},
    {"gain of a buffer", kBuffers, Field::kRms, Against::kBefore, kGain},
    {"loss", kLosses, Field::kRms, Against::kLoss, 16},
    {"noise", kLosses | kSums | kBuffers | kValues, Field::kRms, Against::kNoise, kNoiseGain},
    {"noise of a norm", kNormed, Field::kNorm, Against::kNoise, kNoiseGain},
    {"noise of a mean", kNarrowOutputs, Field::kMean, Against::kNoise, kNoiseGain},
    {"noise of an element", kValues, Field::kElement, Against::kNoise, kElementGain* kNoiseGain},
    {"norm of updates", kUpdateNorms, Field::kUpdate, Against::kOne, kUpdateNormLimit},
    {"norm of updates, by gradients", kUpdateNorms, Field::kUpdate, Against::kNorms, 2},
    {"chance in the norm of updates", kUpdateNorms, Field::kUpdate, Against::kChance, 5},
    {"cosine of updates", kUpdateCosines, Field::kUpdate, Against::kOne, 0.85},
    {"gain of an update", kUpdateGains, Field::kUpdate, Against::kOne, 4},
    {"unlike gradient", kUpdating, Field::kUpdate, Against::kOne, 0.5},
};

inline constexpr double kNotApplied = -1;  ///< what a row allows that does not apply
/// @param allowed  what a row of that kind and measure allows.
/// @return the largest; infinite if no row applies.
template <typename Allowed>
[[nodiscard]] double limit_of(std::span<const BirthRow> table, uint16_t kind, Field measure,
                              const Allowed& allowed) {
  double limit = kNotApplied;
  for (const BirthRow& row : table)
    if ((row.kinds & kind) != 0 && row.measure == measure) limit = std::max(limit, allowed(row));
  return limit < 0 ? std::numeric_limits<double>::infinity() : limit;
}
/// @return the limit of a kind that is held against nothing.
[[nodiscard]] inline double limit_of(std::span<const BirthRow> table, Kinds kind) {
  return limit_of(table, kind, Field::kUpdate, [](const BirthRow& row) { return row.limit; });
}

}  // namespace convtrace::diff
