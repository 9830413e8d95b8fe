#include "tools/diff/verdict/diff.h"

#include <algorithm>
#include <set>
#include <thread>
#include <tuple>

#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/facts/layouts.h"
#include "tools/diff/facts/preflight.h"
#include "tools/diff/read/equal_steps.h"
#include "tools/diff/read/repetition.h"
#include "tools/diff/read/trace_set.h"
#include "tools/diff/verdict/cause.h"
#include "tools/diff/verdict/coverage.h"
#include "tools/diff/verdict/exactness.h"
#include "tools/diff/verdict/fact_root.h"
#include "tools/diff/verdict/finding_stories.h"
#include "tools/diff/verdict/other_forms.h"
#include "tools/diff/verdict/snapshot_pairs.h"
#include "tools/diff/whole/whole_runs.h"

namespace convtrace::diff {
namespace {

using tools::MessageId;

class Diff {
 public:
  Diff(RowSink* rows, DiffResult& result) : rows_(rows), result_(result) {}

  [[nodiscard]] bool run(const DiffInputs& inputs, std::string& error) {
    noise_.resize(inputs.noise.size());
    rules_ = inputs.rules;
    allow_incomplete_ = inputs.allow_incomplete;
    on_progress_ = inputs.on_progress;
    if (!open_trace_set(inputs.base, base_, error)) return false;
    if (!open_trace_set(inputs.cand, cand_, error)) return false;
    for (size_t i = 0; i < noise_.size(); ++i) {
      if (!open_trace_set(inputs.noise[i], noise_[i], error)) return false;
    }
    result_.base_path = inputs.base;
    result_.cand_path = inputs.cand;
    result_.noise_given = !noise_.empty();
    result_.base_command = command_of(base_.files.front().meta);
    result_.cand_command = command_of(cand_.files.front().meta);
    pairs_ = pair_ranks(base_, cand_, rules_.base_rank);
    const bool whole = is_whole();
    many_ranks_ = pairs_.size() > 1 && !whole;
    for (const TraceSet* set : {&base_, &cand_}) {
      for (const TraceFile& file : set->files) total_ += file.events;
    }
    Coverage coverage(base_, cand_, pairs_, result_);
    if (!(whole ? compare_whole(coverage, error) : compare_ranks(coverage, error))) return false;
    number_stories(result_.base_findings);
    number_stories(result_.cand_findings);
    decide();
    return true;
  }

 private:
  using Stream = std::unique_ptr<StepStream>;

  /// Threads for each of the two traces; the comparing thread works on both.
  static unsigned threads() {
    constexpr unsigned kMostWorkers = 4;
    const unsigned cores = std::thread::hardware_concurrency();
    return cores < 2 ? 1 : 1 + std::min(kMostWorkers, cores) / 2;
  }

  bool open_stream(const TraceFile& file, StepShift shift, Stream& stream, std::string& error) {
    auto reader = reader::TraceReader::open(file.path, reader::OpenPolicy::kIndexOrScan, threads());
    if (!reader.ok()) {
      error = unreadable(file.path, tools::status_text(reader.status()));
      return false;
    }
    stream = std::make_unique<StepStream>(std::move(reader).value(), names_, launches_, shift);
    return true;
  }

  bool open_noise(uint32_t rank, const TraceFile& base, std::vector<Stream>& streams,
                  std::string& error) {
    const StepShift shift = result_.step_offset.of_base();
    return std::ranges::all_of(noise_files(rank), [&](const TraceFile* file) {
      if (!format::hash_alike(file->meta, base.meta)) {
        error = tools::numbered(MessageId::kTwoHashes,
                                tools::escape_text(file->path) +
                                    ": its values are hashed in another way than the baseline's: "
                                    "record both with one version of convtrace");
        return false;
      }
      return open_stream(*file, shift, streams.emplace_back(), error);
    });
  }

  /// The repetitions' traces of `rank`. A repetition with a single trace is used for every rank.
  [[nodiscard]] std::vector<const TraceFile*> noise_files(uint32_t rank) const {
    std::vector<const TraceFile*> files;
    for (const TraceSet& set : noise_) {
      for (const TraceFile& file : set.files) {
        if (set.files.size() == 1 || file.meta.rank == rank) files.push_back(&file);
      }
    }
    return files;
  }

  /// Whether the runs divide their tensors or their data among ranks in two ways, and every rank of
  /// both has a trace.
  [[nodiscard]] bool is_whole() const {
    if (rules_.layouts != LayoutChoice::kAuto) return rules_.layouts == LayoutChoice::kWhole;
    if (!rules_.base_rank.empty() || !has_all_ranks(base_) || !has_all_ranks(cand_)) return false;
    const TraceFile &base = base_.files.front(), &cand = cand_.files.front();
    if (base.meta.world_size != cand.meta.world_size) return true;
    return base.meta.world_size > 1 && placed_unlike(base.path, cand.path);
  }

  static bool has_all_ranks(const TraceSet& set) {
    std::set<uint32_t> ranks;
    for (const TraceFile& file : set.files) ranks.insert(file.meta.rank);
    return ranks.size() == set.files.size() && ranks.size() == set.files.front().meta.world_size;
  }

  /// Opens a trace of each rank: of several the one with most events.
  bool open_all(const TraceSet& set, StepShift shift, Streams& streams, std::string& error) {
    std::map<uint32_t, const TraceFile*> of_rank;
    for (const TraceFile& file : set.files) {
      const auto [known, is_new] = of_rank.try_emplace(file.meta.rank, &file);
      if (!is_new && file.events > known->second->events) known->second = &file;
    }
    return std::ranges::all_of(of_rank, [&](const auto& entry) {
      return open_stream(*entry.second, shift, streams.emplace_back(), error);
    });
  }

  /// Compares both runs as if each had every tensor on one rank.
  bool compare_whole(Coverage& coverage, std::string& error) {
    const TraceFile &base_file = base_.files.front(), &cand_file = cand_.files.front();
    if (!noise_.empty() || !rules_.base_rank.empty()) {
      error = tools::numbered(MessageId::kNotWhole,
                              std::string(noise_.empty() ? "[ranks] of --map" : "--noise") +
                                  " is about single ranks: it cannot be given for runs whose ranks "
                                  "hold unlike parts");
      return false;
    }
    for (const TraceSet* set : {&base_, &cand_}) {
      for (const TraceFile& file : set->files)
        result_.bits_known &= format::hash_alike(file.meta, base_file.meta);
    }
    const std::vector<PreflightEntry> differences = compare_meta(base_file.meta, cand_file.meta);
    for (const PreflightEntry& entry : differences) add_entry(result_.preflight, entry);
    const StepOffset& offset = result_.step_offset =
        step_offset(base_file.meta, cand_file.meta, rules_.step_offset);
    Streams base, cand;
    if (!open_all(base_, offset.of_base(), base, error) ||
        !open_all(cand_, offset.of_cand(), cand, error))
      return false;
    result_.why_exact = "the runs divide their work among ranks in two ways";
    const EqualSteps nothing_equal;
    RankDiff diff(0, names_, launches_, nothing_equal, rules_, Exactness::kInexact, rows_);
    prepare(diff, base_file, cand_file, differences);
    diff.excuse_layouts();
    WholeRuns runs(base, cand, names_, rules_);
    diff.run(runs.base(), runs.cand(), {}, [&] {
      uint64_t done = 0;
      for (const Streams* streams : {&base, &cand})
        for (const Stream& stream : *streams) done += stream->position();
      if (on_progress_) on_progress_(done, total_);
    });
    result_.wholes = {base.size(), cand.size(), runs.apart(), runs.summed()};
    coverage.add_whole(base, cand, runs, diff.outcome());
    for (const Stream& stream : base)
      add_findings(result_.base_findings, stream->findings(), stream->reader().meta().rank);
    for (const Stream& stream : cand)
      add_findings(result_.cand_findings, stream->findings(), stream->reader().meta().rank);
    compare_facts(base_file, cand_file, 0, diff.outcome());
    const auto is_cut = [](const Stream& stream) {
      return stream->reader().state() != reader::TraceState::kComplete;
    };
    add_outcome(0, std::move(diff.outcome()), std::ranges::any_of(base, is_cut),
                std::ranges::any_of(cand, is_cut));
    return true;
  }

  bool compare_ranks(Coverage& coverage, std::string& error) {
    for (const RankPair& pair : pairs_) {
      if (pair.base < 0 || pair.cand < 0) {
        coverage.add_one_sided(pair);
      } else if (!compare_rank(pair, coverage, error)) {
        return false;
      }
    }
    return true;
  }

  static void prepare(RankDiff& diff, const TraceFile& base, const TraceFile& cand,
                      const std::vector<PreflightEntry>& differences) {
    if (uses_tf32(base.meta) || uses_tf32(cand.meta)) diff.use_tf32();
    const bool other_controls = std::ranges::any_of(
        differences, [](const auto& entry) { return entry.name.starts_with("setting."); });
    if (other_controls) diff.excuse_lost_gradients();
  }

  bool compare_rank(const RankPair& pair, Coverage& coverage, std::string& error) {
    const TraceFile& base_file = base_.files[static_cast<size_t>(pair.base)];
    const TraceFile& cand_file = cand_.files[static_cast<size_t>(pair.cand)];
    const std::vector<PreflightEntry> differences = compare_meta(base_file.meta, cand_file.meta);
    for (const PreflightEntry& entry : differences) add_entry(result_.preflight, entry);
    if (!format::hash_alike(base_file.meta, cand_file.meta)) {
      result_.bits_known = false;
      result_.incomplete.push_back(tools::numbered(
          MessageId::kTwoHashes,
          "rank " + std::to_string(pair.rank) +
              ": the runs' values are hashed in two ways (versions 1 and 2): statistics, sketches "
              "and samples were compared; integers whose elements changed places may look the "
              "same"));
    }
    EqualSteps equal;  // outlives the streams
    Stream base, cand;
    std::vector<Stream> noise;
    const StepOffset& offset = result_.step_offset =
        step_offset(base_file.meta, cand_file.meta, rules_.step_offset);
    if (!open_stream(base_file, offset.of_base(), base, error) ||
        !open_stream(cand_file, offset.of_cand(), cand, error) ||
        !open_noise(pair.rank, base_file, noise, error)) {
      return false;
    }
    equal = equal_steps(*base, *cand, !noise.empty());
    base->leave_out(equal, Side::kBase);
    cand->leave_out(equal, Side::kCand);
    const ExactnessDecision exact =
        decide_exactness(rules_.exact, differences, base_file.meta, cand_file.meta,
                         all_repeat(base_file, pair.rank));
    // If any of several ranks may round, that one's reason is reported.
    if (result_.why_exact.empty() || exact.exactness == Exactness::kInexact) {
      result_.exact = exact.exactness == Exactness::kExact;
      result_.why_exact = exact.why;
    }
    RankDiff diff(pair.rank, names_, launches_, equal, rules_, exact.exactness, rows_);
    SnapshotPairs stored(base->reader(), cand->reader());
    diff.use_stored(
        [&stored](const ValueRecord& a, const ValueRecord& b) { return stored.compare(a, b); });
    prepare(diff, base_file, cand_file, differences);
    diff.run(*base, *cand, noise, [&] {
      if (on_progress_) on_progress_(done_ + base->position() + cand->position(), total_);
    });
    done_ += base_file.events + cand_file.events;
    if (auto& root = diff.outcome().root) stored.compare(*root);
    coverage.add(pair.rank, *base, *cand, diff.outcome());
    add_findings(result_.base_findings, base->findings(), pair.rank);
    add_findings(result_.cand_findings, cand->findings(), pair.rank);
    AliasPatterns::compare(base->alias_patterns(), cand->alias_patterns(), pair.rank, names_,
                           result_.alias_patterns);
    compare_facts(base_file, cand_file, pair.rank, diff.outcome());
    add_outcome(pair.rank, std::move(diff.outcome()),
                base->reader().state() != reader::TraceState::kComplete,
                cand->reader().state() != reader::TraceState::kComplete);
    return true;
  }

  /// Compares facts up to the root: later differences cannot be its cause.
  void compare_facts(const TraceFile& base, const TraceFile& cand, uint32_t rank,
                     const RankOutcome& outcome) {
    facts_.compare_code(base.meta, cand.meta);
    if (!outcome.last_base_step || !outcome.last_cand_step) return;
    uint32_t last = std::min(*outcome.last_base_step, *outcome.last_cand_step);
    if (outcome.root) last = std::min(last, outcome.root->record.step);
    if (!facts_.compare_rank(base.path, cand.path, rank, last, outcome.renamed)) {
      result_.incomplete.push_back(tools::numbered(
          MessageId::kNoFacts, "rank " + std::to_string(rank) + ": facts could not be compared"));
    }
  }

  [[nodiscard]] EqualSteps equal_steps(const StepStream& base, const StepStream& cand,
                                       bool has_noise) const {
    // With other names the steps cannot be compared by their sums.
    if (!rules_.renames.empty()) return {};
    // All values are needed for a report of every value, for the noise of later steps, and to
    // compare ranks with each other.
    const bool every_value = rows_ != nullptr || has_noise || many_ranks_;
    return {base.reader(), cand.reader(), every_value, result_.step_offset};
  }

  /// Whether the repetitions have the same bits as the baseline; one that has not decides.
  [[nodiscard]] std::optional<bool> all_repeat(const TraceFile& base, uint32_t rank) const {
    std::optional<bool> all;
    for (const TraceFile* file : noise_files(rank)) {
      const auto one = repeats(base.path, file->path);
      if (one) all = *one && all.value_or(true);
    }
    return all;
  }

  static bool uses_tf32(const format::TraceMeta& meta) {
    return meta.fact("switch.matmul_fp32_precision") == "tf32";
  }

  static void add_findings(Findings& all, const Findings& more, uint32_t rank) {
    all.count += more.count;
    all.errors += more.errors;
    for (const FindingReport& finding : more.list) {
      if (all.list.size() >= kMaxFindings) break;
      all.list.push_back(finding);
      all.list.back().rank =
          rank;  // of the pair: two single traces are compared whatever their ranks
    }
  }

  /// @param base_cut, cand_cut  the trace may contain only the beginning of its last step.
  void add_outcome(uint32_t rank, RankOutcome outcome, bool base_cut, bool cand_cut) {
    for (size_t i = 0; i < kClassCount; ++i) result_.counts[i] += outcome.counts[i];
    result_.values += outcome.values;
    result_.launches += outcome.launches;
    result_.steps += outcome.steps;
    base_values_ += outcome.base_values;
    cand_values_ += outcome.cand_values;
    const bool cut = (base_cut && outcome.uncompared_step == outcome.last_base_step) ||
                     (cand_cut && outcome.uncompared_step == outcome.last_cand_step);
    if (outcome.uncompared_step && !cut && !uncompared_step_) {
      uncompared_step_ = outcome.uncompared_step;
    }
    for (RenamedModule& module : outcome.renamed) {
      const auto known = std::ranges::find(result_.renamed, module);
      if (known == result_.renamed.end()) result_.renamed.push_back(std::move(module));
    }
    if (many_ranks_) {
      add_replicas(base_replicas_.add(rank, std::move(outcome.base_replica)), false);
      add_replicas(cand_replicas_.add(rank, std::move(outcome.cand_replica)), true);
    }
    result_.summaries.insert(result_.summaries.end(), outcome.summaries.begin(),
                             outcome.summaries.end());
    add_carried(std::move(outcome.carried));
    result_.waived += outcome.waived;
    result_.bits_unknown += outcome.bits_unknown;
    result_.allowance.add(outcome.allowance);
    for (OneSidedGroup& group : outcome.one_sided) {
      if (result_.one_sided.size() < kMaxOneSided) result_.one_sided.push_back(std::move(group));
    }
    for (OtherForm& form : outcome.other_forms) {
      add_other_form(result_.other_forms, std::move(form));
    }
    for (RecordReport& birth : outcome.births) result_.births.push_back(std::move(birth));
    result_.ranks.push_back({rank, outcome.values, outcome.root});
    keep_earlier(result_.root, std::move(outcome.root));
    keep_earlier(result_.first_bit_difference, std::move(outcome.first_bit_difference));
  }

  void add_carried(Carried carried) {
    Carried& all = result_.carried;
    all.count += carried.count;
    all.largest = std::max(all.largest, carried.largest);
    const auto step = [](const Carried& one) { return one.first->step; };
    if (carried.first && (!all.first || step(carried) < step(all))) {
      all.first = std::move(carried.first);
    }
  }

  void add_replicas(std::vector<ReplicaParting> partings, bool in_cand) {
    for (ReplicaParting& parting : partings) {
      parting.in_cand = in_cand;
      result_.replicas.push_back(parting);
    }
  }

  static bool is_received(const RootReport& root) {
    return slot_kind(root.record.slot) == SlotKind::kReceived;
  }

  /// What a collective brought began on another rank, unless all of its members agreed before.
  static void keep_earlier(std::optional<RootReport>& first, std::optional<RootReport> other) {
    const auto order = [](const RootReport& root) {
      return std::tuple(root.record.step, is_received(root), root.position, root.record.rank);
    };
    if (other && (!first || order(*other) < order(*first))) first = std::move(other);
  }

  /// Ranks whose root a collective brought, and whose births it explains.
  void mark_receivers() {
    if (!result_.root || is_received(*result_.root)) return;
    for (RankReport& rank : result_.ranks) {
      rank.received = rank.root && is_received(*rank.root);
      if (!rank.received) continue;
      std::erase_if(result_.births,
                    [&rank](const RecordReport& birth) { return birth.rank == rank.rank; });
    }
  }

  [[nodiscard]] std::string why_not_comparable() const {
    using tools::numbered;
    const auto nothing = [](std::string_view text) {
      return numbered(MessageId::kNothingInCommon, text);
    };
    if (result_.ranks.empty()) return nothing("the runs have no rank in common");
    if (result_.steps == 0) return nothing("the runs have no step in common");
    if (result_.values == 0) {
      return nothing("no value could be compared (no statistics in common)");
    }
    if (!result_.bits_known &&
        result_.counts[static_cast<size_t>(Class::kBitDifference)] == result_.values) {
      return numbered(MessageId::kTwoHashes,
                      "of all values only hashes are known, of versions 1 and 2");
    }
    const auto smaller = static_cast<double>(std::min(base_values_, cand_values_));
    if (static_cast<double>(result_.values) < kLeastAligned * smaller) {
      return numbered(MessageId::kLittleInCommon,
                      "too little is alike: only " + tools::count_text(result_.values) + " of " +
                          tools::count_text(base_values_) + " and " +
                          tools::count_text(cand_values_) + " values have a partner");
    }
    if (uncompared_step_ && !result_.root) {
      return nothing("no value could be compared in step " + std::to_string(*uncompared_step_));
    }
    return "";
  }

  [[nodiscard]] MetaOf metas_of(bool in_cand) const {
    return [this, in_cand](uint32_t rank) -> const format::TraceMeta& {
      const RankPair& pair = *std::ranges::find(pairs_, rank, &RankPair::rank);
      const TraceSet& run = in_cand ? cand_ : base_;
      return run.files[static_cast<size_t>(in_cand ? pair.cand : pair.base)].meta;
    };
  }

  void find_cause() {
    result_.cause = diff::find_cause(*result_.root, result_.base_findings, result_.cand_findings);
    if (result_.cause) name_frames(result_.cause->finding, metas_of(result_.cause->in_cand));
  }

  void decide() {
    result_.facts = facts_.differences();
    // What divides a module among ranks changes its class and its sizes.
    for (FactDifference& fact : result_.facts)
      fact.configuration &= !(result_.wholes && fact.kind == FactKind::kModule);
    if (auto setting = setting_root(result_)) result_.root = std::move(setting);
    for (std::optional<RootReport>* root : {&result_.root, &result_.first_bit_difference}) {
      if (*root && !(*root)->in_no_module) (*root)->code = facts_.place_of((*root)->record.scope);
    }
    mark_receivers();
    std::ranges::sort(result_.renamed, {}, &RenamedModule::base);
    std::ranges::stable_sort(result_.births, {}, &RecordReport::step);
    if (result_.births.size() > kMaxBirths) result_.births.resize(kMaxBirths);
    result_.why_not_comparable = why_not_comparable();
    if (!result_.why_not_comparable.empty()) {
      result_.verdict = Verdict::kNotComparable;
      result_.root.reset();
    } else if (result_.root) {
      result_.verdict = Verdict::kDiverged;
      find_cause();
    } else if (!result_.incomplete.empty() && !allow_incomplete_) {
      result_.verdict = Verdict::kIncomplete;
    } else if (result_.base_findings.errors + result_.cand_findings.errors != 0) {
      result_.verdict = Verdict::kFindings;
      name_frames(result_.base_findings, metas_of(false));
      name_frames(result_.cand_findings, metas_of(true));
    }
  }

  RowSink* rows_;
  DiffResult& result_;
  DiffRules rules_;
  std::function<void(uint64_t, uint64_t)> on_progress_;
  uint64_t done_ = 0, total_ = 0;  ///< records
  format::Definitions names_;
  LaunchKeys launches_;
  TraceSet base_, cand_;
  std::vector<TraceSet> noise_;
  std::vector<RankPair> pairs_;
  ReplicaCheck base_replicas_, cand_replicas_;
  FactDiff facts_;
  bool many_ranks_ = false;
  bool allow_incomplete_ = false;
  uint64_t base_values_ = 0, cand_values_ = 0;
  std::optional<uint32_t> uncompared_step_;
};

}  // namespace

std::string_view to_string(Verdict value) {
  switch (value) {
    case Verdict::kSame:
      return "same";
    case Verdict::kDiverged:
      return "diverged";
    case Verdict::kNotComparable:
      return "not-comparable";
    case Verdict::kFindings:
      return "findings";
    case Verdict::kIncomplete:
      return "incomplete";
  }
  return "unknown";
}

bool run_diff(const DiffInputs& inputs, RowSink* rows, DiffResult& result, std::string& error) {
  return Diff(rows, result).run(inputs, error);
}

}  // namespace convtrace::diff
