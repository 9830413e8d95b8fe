#pragma once
/// @file result.h
/// The result of a diff as plain values that own their texts: everything that the reports show.
///
/// Texts are as in the trace, not escaped: each report escapes for its own medium.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/model/events.h"
#include "tools/diff/align/align.h"
#include "tools/diff/births/used_weights.h"
#include "tools/diff/compare/compare.h"
#include "tools/diff/compare/elements.h"
#include "tools/diff/facts/facts.h"
#include "tools/diff/facts/preflight.h"
#include "tools/diff/model/findings.h"
#include "tools/diff/model/scope_map.h"
#include "tools/diff/model/step_offset.h"
#include "tools/diff/read/alias_patterns.h"
#include "tools/diff/shown/shown_cause.h"
#include "tools/diff/verdict/step_summary.h"
#include "tools/diff/whole/apart_value.h"
#include "tools/trace/flow/made_by.h"
#include "tools/trace/model/replicas.h"

namespace convtrace::diff {

/// kIncomplete: the compared parts agree, but some parts of the runs were not compared.
/// kCannotTell: rounding hides a fault of any size from some step on.
enum class Verdict : uint8_t {
  kSame,
  kDiverged,
  kNotComparable,
  kFindings,
  kIncomplete,
  kCannotTell
};
[[nodiscard]] std::string_view to_string(Verdict value);

/// One run's record of a value.
struct SideReport {
  format::Stats stats;
  format::DType dtype = format::DType::kUnknown;
  format::Capture capture = format::Capture::kStats;
  format::Extent extent = format::Extent::kTensor;
  format::Device device;
  bool has_shape = false;
  std::vector<uint64_t> shape;
  std::vector<double> samples;
  format::ValueId value;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t t_ns = 0;
};

/// One value of both runs.
struct RecordReport {
  uint32_t rank = 0;
  uint32_t step = 0;
  format::Phase phase = format::Phase::kForward;
  std::string scope, slot, op, kernel;  ///< op and kernel: empty for none
  uint32_t call = 0;
  std::string cand_scope, cand_slot;  ///< names in the candidate
  MatchedBy how = MatchedBy::kStableKey;
  float confidence = 1;  ///< the confidence that both records belong to one value
  Comparison comparison;
  SideReport base, cand;
  std::optional<ElementReport> elements{};  ///< set if both runs stored the value
};

/// A module, an op or an input with values that only one run has, in steps that both have.
struct OneSidedGroup {
  uint32_t rank = 0;
  bool in_cand = false;
  format::Phase phase = format::Phase::kForward;
  std::string scope, op, kernel, slot;
  uint64_t values = 0;
  uint32_t first_step = 0;
};
inline constexpr size_t kMaxOneSided = 256;

/// Values that only one run has, in steps that both have. They are never the root, but they show
/// where one run did more than the other.
struct OneSided {
  uint64_t count = 0;
  bool in_cand = false;  ///< the run of the first of them
  RecordReport first;    ///< only that run's side is filled in
};

/// Inputs with another type or shape whose calls have equal outputs: of one slot and one pair of
/// forms.
struct OtherForm {
  RecordReport first;
  uint64_t values = 1;
};
inline constexpr size_t kMaxOtherForms = 64;

/// A module in which the runs execute other sequences of ops (other_ops.h).
struct RewrittenModule {
  std::string scope;
  format::Phase phase = format::Phase::kForward;
  std::vector<std::string> base{}, cand{};  ///< the ops
};
/// Adds one, unless the module is there already, up to a limit.
void add_rewritten(std::vector<RewrittenModule>& all, RewrittenModule one);

/// Values whose difference is larger than their own rounding and no larger than their sources
/// explain (births.h): accumulated rounding, which may hide a small fault.
struct Carried {
  uint64_t count = 0;
  std::optional<RecordReport> first{};
  double largest = 0;          ///< relative difference
  double largest_forward = 0;  ///< the same in the forward pass
};

/// The largest tolerances used for differing values, relative to a tensor's size: a smaller fault
/// looks like rounding.
struct Allowance {
  double value = 0;            ///< own rounding, --noise and --tol
  double gradient = 0;         ///< for activations' gradients
  double parameter = 0;        ///< for parameters' gradients, except where terms cancel
  bool by_tolerance = false;   ///< --tol contributes to them
  uint64_t averages_only = 0;  ///< values whose distance is not known (is_known_by_averages)
  format::DType coarsest = format::DType::kUnknown;  ///< type of those values

  void add(const Allowance& other);
};

/// @return whether a relative difference that rounding has grown to explains differences as large
/// as the values that are made of it. One that is NaN, as of values that overflow, may be of any
/// size.
[[nodiscard]] bool hides_all(double difference);

/// The step from which on rounding hides a fault of any size.
struct Hidden {
  uint32_t step = 0;
  uint64_t judged = 0;  ///< common steps before it
  /// It is the first step of both runs, and its forward pass alone shows that: then values that
  /// diverge are no evidence either, if what they are made of is as far apart.
  bool from_first = false;
};

inline constexpr size_t kMaxGradients = 200;
inline constexpr size_t kMaxBirths = 8;

/// A value on the way to the root or from it.
struct FlowStep {
  RecordReport value;
  std::string as;         ///< the slot by which a call got it; "" if that is not known
  bool by_order = false;  ///< only the order of execution connects it to the root
};

/// Values that the root was made of, and values that were made of it, in the same step.
struct DataFlow {
  static constexpr size_t kMax = 6;  ///< most sources, and most consumers: a screenful
  std::vector<FlowStep> sources, consumers;
  size_t more_sources = 0, more_consumers = 0;
};

/// The updates of parameters in a step.
struct UpdateCount {
  uint64_t wrong = 0, all = 0;
};

/// The candidate over the baseline, where all calls of a place have one ratio (root.cpp), or a
/// single loss has that of all gradients.
struct ScalarFactor {
  double value = 1;
  uint64_t calls = 0;
};

/// The one rank of a run whose value makes the difference.
struct Holder {
  bool in_cand = false;
  uint32_t rank = 0;
};

/// A call in the code of a compiled region.
struct RegionCall {
  std::string scope, op;
  std::string kernel{};    ///< its name there
  bool unchanged = false;  ///< its output memory has the old contents (root_region.h)
};

/// The place of the root within a compiled region: the calls that may have made it.
struct RegionPlace {
  std::string name{};               ///< "0/1 backward"; "" if none is known
  bool border_equal = false;        ///< all values of modules before the root agree
  std::vector<RegionCall> calls{};  ///< empty: the root lies in no region
};

/// The completeness of the alignment of two runs, in the steps that both have.
struct Aligned {
  uint64_t matched = 0;         ///< values with a partner
  uint64_t base = 0, cand = 0;  ///< values of each run

  void add(const Aligned& other) {
    matched += other.matched;
    base += other.base;
    cand += other.cand;
  }
};

/// The place where the runs diverge.
struct RootReport {
  RecordReport record;
  OneSided one_sided_before;  ///< before the root, in its rank
  /// Compared values before it in its rank that were identical or within noise.
  uint64_t matched_before = 0;
  uint64_t matched_in_earlier_steps = 0;  ///< those of matched_before in steps before its own
  /// Compared values before it in its step: comparable between ranks that run one program.
  uint64_t position = 0;
  /// By format::Phase: data, outputs, losses and gradients of its step before it. kEqual: nothing
  /// differs by more than rounding explains.
  std::array<Shown, kPhaseCount> before{};
  /// The same for the parameters' gradients, as the optimizer got them.
  Shown parameter_gradients = Shown::kNotCompared;
  /// If the root is a module's output: the parameters that it was computed with, if any is recorded
  /// (written_weights.h); and modules inside whose outputs were compared before it.
  std::optional<UsedWeights> weights;
  std::vector<std::string> compared_inside;
  /// Only for changed-between, where `record` is the producer: the consumer that read other bytes,
  /// and its run.
  std::optional<RecordReport> consumer;
  bool changed_in_cand = false;
  /// For changed-between: the first values that it affected, if any were measured.
  std::optional<RecordReport> effect;
  /// Set if an input of the root had other bits already and no earlier record explains that: the
  /// input, and the last output before it that agreed. The cause lies between these two, in no
  /// module.
  std::optional<RecordReport> came_in, agreed_before;
  CodePlace caller{};  ///< then: the code of the innermost module around the root's that was called
  /// If the root is an update: how many are wrong like it, which is the first of them.
  UpdateCount updates;
  std::optional<Holder> holder;  ///< if the values show it
  std::optional<ScalarFactor> scalar_factor;
  /// If the root is an output: inputs that its call takes in one run alone, as "input:1, input:2 in
  /// the candidate". Empty: none.
  std::string taken_alone;
  /// In the optimizer: only parameters of one dimension differ.
  bool vectors_only = false;
  /// Values of the same step in execution order; `around[around_root]` is the root.
  std::vector<RecordReport> around;
  size_t around_root = 0;
  DataFlow flow;  ///< empty unless has_values()
  /// Gradients of weights in the same step that differ, sorted by the difference of their norms,
  /// the largest first; at most kMaxGradients.
  std::vector<RecordReport> gradients;
  /// The contents of the root's memory, if no module has it: "the gradient of fc1.weight".
  std::string known_as;
  bool is_other_memory = false;  ///< it is another parameter's in the candidate; known_as has both
  std::string known_in;          ///< for a gradient: the path of its parameter's module
  /// Then, for a gradient: the forward pass and the gradient of its module's output were compared
  /// and agree.
  bool made_of_equal = false;
  /// If the root is a gradient that the optimizer got, and the backward pass made it right. Either
  /// its record before clipping agrees; or its sources agree, in a module of torch, and the
  /// candidate wrote to it `more_writes` times more often than the baseline (fewer times if
  /// negative).
  bool right_unclipped = false;
  int64_t more_writes = 0;
  [[nodiscard]] bool is_after_backward() const { return right_unclipped || more_writes != 0; }
  /// Earlier values were further apart than rounding explains (Carried).
  bool rounding_enlarged = false;
  /// If the root is no value but a setting of a module or an optimizer: the setting in words;
  /// `record` has only its place.
  std::string setting;
  bool in_no_module = false;  ///< the setting is an optimizer's
  /// If only one run has the value: that run, in words.
  std::string only_in;
  /// If the root is a parameter that the program wrote itself: when, and in which run, in words.
  std::string written;
  /// Parameters differ before the first step that both runs have.
  bool weights_differ = false;
  /// If the root is an input of the root module: another input of its call has the same bits, and so
  /// the same data were drawn.
  bool other_inputs_agree = false;
  /// Then, if one run begins with the weights that the other one has later: the candidate's step
  /// numbers minus the baseline's.
  std::optional<int64_t> offset;
  /// If the root is a value of a module in the step of its first call: buffers of the module that
  /// had other bits before that.
  std::vector<std::string> buffers;
  /// Code of the root's module, if its facts were recorded.
  CodePlace code{};
  RegionPlace region{};
  /// If the root is a gradient that `record` only received: whose backward made it.
  std::optional<MadeBy> made_by{};

  /// The cause, as far as the values alone show it.
  std::optional<ShownCause> shown{};

  /// @return whether the parameters of the root's module are known to be in this relation.
  [[nodiscard]] bool weights_are(Shown bits) const { return weights && weights->bits == bits; }
  /// @return whether `record` is a value of both runs.
  [[nodiscard]] bool has_values() const { return setting.empty() && only_in.empty(); }
  /// @return whether another recording would show more of the root.
  [[nodiscard]] bool leads_on() const { return has_values() && written.empty(); }
};
/// @return whether both runs recorded a value that the root is known to be made of.
[[nodiscard]] inline bool inputs_were_compared(const RootReport& root) {
  return std::ranges::any_of(root.flow.sources,
                             [](const FlowStep& source) { return !source.by_order; });
}

/// @return the run that wrote to the gradient, and how often: "the candidate wrote to it 1 time
/// more before the optimizer got it".
[[nodiscard]] std::string more_writes_text(const RootReport& root);

struct RankReport {
  uint32_t rank = 0;
  uint64_t values = 0;
  std::optional<RootReport> root;
  bool received = false;  ///< a collective brought the root, from a rank that diverged before
};

/// The finding that probably caused the divergence.
struct FindingCause {
  bool in_cand = true;
  FindingReport finding;
  size_t index = 0;          ///< index of the finding in its run
  bool same_memory = false;  ///< the finding is about the memory of the root
};

/// The probable cause of the divergence.
struct Cause {
  std::string rule;                   ///< its name in the JSON report
  std::string text;                   ///< one line; "" for a finding
  std::vector<std::string> evidence;  ///< the connection to the root
  std::optional<FindingCause> finding{};
};

/// Values that a run had and that convtrace could not read, by reason.
struct Unread {
  format::LossReason reason = format::LossReason::kTensorKind;
  uint64_t base = 0, cand = 0;
};

/// Two runs with unlike layouts, whose values were put together from those of their ranks.
struct Wholes {
  size_t base_ranks = 0, cand_ranks = 0;
  ApartValues apart;
  uint64_t summed = 0;  ///< values that were taken for sums of the ranks' values
};

struct DiffResult {
  std::string base_path, cand_path;
  Verdict verdict = Verdict::kSame;
  std::string why_not_comparable;
  std::optional<RootReport> root;
  std::optional<Cause> cause;
  std::optional<RootReport> first_bit_difference;
  Carried carried;  ///< over all ranks
  std::optional<Hidden> hidden;
  /// Differences that began in their value, of all ranks, the earliest first.
  std::vector<RecordReport> births;
  /// Values that differ, or that only one run has, and do not matter (--ignore).
  uint64_t waived = 0;
  bool exact = false;      ///< any difference of bits counts
  std::string why_exact;   ///< why any difference of bits counts, or why not
  bool bits_known = true;  ///< false: the runs hash values by two versions (compare.h)
  /// Compared values of which nothing says whether their bits are equal.
  uint64_t bits_unknown = 0;
  std::array<uint64_t, kClassCount> counts{};
  uint64_t values = 0;                   ///< pairs of values compared
  uint64_t launches = 0;                 ///< pairs of launches aligned
  uint64_t steps = 0;                    ///< steps that both runs have, summed over ranks
  std::vector<ReplicaParting> replicas;  ///< ranks of one run that stop agreeing
  /// Ranks that were not compared with others of their run: steps of equal sums were not read.
  uint64_t by_sums = 0;
  std::vector<AliasDifference> alias_patterns;
  std::vector<StepSummary> summaries;  ///< over all ranks
  StepOffset step_offset;              ///< steps are numbered as in the run that counts further
  std::vector<PreflightEntry> preflight;
  std::vector<FactDifference> facts;     ///< configuration first
  std::vector<RenamedModule> renamed;    ///< by the baseline's name
  std::vector<OneSidedGroup> one_sided;  ///< at most kMaxOneSided, in the order of their first
  std::vector<OtherForm> other_forms;    ///< at most kMaxOtherForms, in the order of their first
  std::vector<RewrittenModule> rewritten;
  Allowance allowance;  ///< over all ranks
  Findings base_findings, cand_findings;
  std::vector<std::string> incomplete;  ///< reasons; empty if both runs were compared to their ends
  std::vector<Unread> unread;
  std::vector<RankReport> ranks;
  RunCommand base_command, cand_command;
  bool noise_given = false;
  std::optional<Wholes> wholes;  ///< nullopt: ranks were compared with ranks
};

}  // namespace convtrace::diff
