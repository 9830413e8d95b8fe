#pragma once
/// @file job.h
/// A small data-parallel training of several ranks, changed where a test plants a fault, written as
/// one trace a rank and read by `convtrace origin`:
///
///     Job job = trained({.ranks = 4, .steps = 6, .change = [](Moment& at) {
///       if (at.is(2, 3, "fc1 output")) at.values[0] = kNan;
///     }});
///     const OriginResult result = origins_of(job);
///
/// The values are computed, so what a change causes follows from it: a NaN in an output is in the
/// gradients, in their sums on all ranks, and in the weights.
///
/// Errors:   std::runtime_error where a test names what the job has not.

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_builder.h"
#include "tools/origin/model/result.h"

namespace convtrace::test {

using format::Phase;
using origin::Kind;
using origin::Origin;
using origin::OriginResult;
using List = std::vector<std::string>;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A value that is just made, before anything is made of it.
struct Moment {
  uint32_t rank = 0, step = 0;
  std::string name;  ///< "input", "fc1 output", "fc1 local" (gradient), "fc1 received", "fc1 param"
  std::vector<float>& values;

  [[nodiscard]] bool is(uint32_t at_rank, uint32_t at_step, std::string_view what) const {
    return rank == at_rank && step == at_step && name == what;
  }
};

using Change = std::function<void(Moment&)>;

struct Training {
  uint32_t ranks = 4, steps = 5;
  Change change = {};
  std::string reduction = "avg";
  size_t elements = 64;
  bool scaled = false;     ///< a GradScaler
  bool replicated = true;  ///< false: every rank has weights of its own
  bool sharded = false;    ///< gradients are reduced by reduce_scatter, results gathered
};

/// A record of a rank.
struct Event {
  uint32_t step = 0;
  std::optional<StatsSpec> value = {};
  std::optional<CollectiveSpec> call = {};
  std::optional<FindingSpec> finding = {};
};
struct RankEvents {
  uint32_t rank = 0, world_size = 1;
  std::vector<Event> events = {};
  bool closed = true;

  /// The n-th call of an op in a step.
  CollectiveSpec& call(uint32_t step, std::string_view op, size_t n = 0);
  StatsSpec& value(uint32_t step, std::string_view slot, std::string_view scope);
  void erase_call(uint32_t step, std::string_view op, size_t n = 0);
  /// Takes away all from the n-th call of an op in a step on.
  void end_before(uint32_t step, std::string_view op, size_t n = 0);
  RankEvents& add(uint32_t step, StatsSpec value);
  RankEvents& add(uint32_t step, CollectiveSpec call);
};
using Job = std::vector<RankEvents>;

[[nodiscard]] Job trained(const Training& training);
/// `ranks` ranks without records, of one group "g" each call of which `collective_of` makes.
[[nodiscard]] Job empty_job(uint32_t ranks);
/// A call of a rank in a group of all ranks of a job.
[[nodiscard]] CollectiveSpec call_of(const Job& job, uint32_t rank, std::string op, uint64_t number,
                                     std::vector<float> sent, std::vector<float> received,
                                     std::string reduction = {});
/// The same op on all ranks of a job, each sending what `sent` gives and receiving what `received`
/// gives.
void add_to_all(Job& job, uint32_t step, const std::string& op, uint64_t number,
                const std::function<std::vector<float>(uint32_t)>& sent,
                const std::function<std::vector<float>(uint32_t)>& received,
                const std::string& reduction = {});

void write(const RankEvents& rank, const std::string& path);
/// @param most_events  of a window.
[[nodiscard]] OriginResult origins_of(const Job& job, uint64_t most_events = 1'000'000);
/// @return the origins of the job that a training with this change makes.
inline OriginResult of(Training training, Change change) {
  training.change = std::move(change);
  return origins_of(trained(training));
}

/// `count` numbers in [-1, 1) that look random; the same for the same seed.
[[nodiscard]] std::vector<float> noise(uint64_t seed, size_t count);
[[nodiscard]] std::vector<float> sum_of(const std::vector<std::vector<float>>& all);

/// "nan 2@3 fc1 output:0": kind, rank or "?", step, scope or "-", slot.
[[nodiscard]] std::vector<std::string> told(const OriginResult& result);
[[nodiscard]] inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
[[nodiscard]] bool has_line(const std::vector<std::string>& lines, std::string_view part);

}  // namespace convtrace::test
