#include "tools/diff/ranks/diff.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/facts/preflight.h"
#include "tools/diff/ranks/joined.h"
#include "tools/diff/read/equal_steps.h"
#include "tools/diff/verdict/coverage.h"
#include "tools/diff/verdict/exactness.h"
#include "tools/diff/verdict/first_weights.h"
#include "tools/diff/verdict/snapshot_pairs.h"
#include "tools/diff/whole/whole_runs.h"

namespace convtrace::diff {
namespace {

using tools::MessageId;

void begin_result(const TraceSet& base, const TraceSet& cand, const DiffInputs& inputs,
                  DiffResult& result) {
  result.base_path = inputs.base;
  result.cand_path = inputs.cand;
  result.noise_given = !inputs.noise.empty();
  result.base_command = command_of(base.files.front().meta);
  result.cand_command = command_of(cand.files.front().meta);
}

/// Compares facts up to the root: later differences cannot be its cause.
void compare_facts(const TraceFile& base, const TraceFile& cand, RankPart& part) {
  FactDiff facts;
  facts.compare_code(base.meta, cand.meta);
  if (part.last_base_step && part.last_cand_step) {
    const std::optional<RootReport>& root = part.result.root;
    uint32_t last = std::min(*part.last_base_step, *part.last_cand_step);
    if (root) last = std::min(last, root->record.step);
    if (!facts.compare_rank(base.path, cand.path, part.rank, part.result.step_offset, last,
                            root.has_value(), part.result.renamed)) {
      part.result.incomplete.push_back(
          tools::numbered(MessageId::kNoFacts,
                          "rank " + std::to_string(part.rank) + ": facts could not be compared"));
    }
  }
  part.facts = facts.take();
}

/// Ends a rank's comparison. @param base_cut, cand_cut  whether a trace may end within its last step
void end_part(bool base_cut, bool cand_cut, RankPart& part) {
  DiffResult& result = part.result;
  if (result.steps > 1 && part.ends_in_evaluation) --result.steps;
  result.ranks = {{part.rank, result.values, result.root}};
  const bool cut = (base_cut && part.uncompared_step == part.last_base_step) ||
                   (cand_cut && part.uncompared_step == part.last_cand_step);
  if (cut) part.uncompared_step.reset();
}

bool has_all_ranks(const TraceSet& set) {
  std::set<uint32_t> ranks;
  for (const TraceFile& file : set.files) ranks.insert(file.meta.rank);
  return ranks.size() == set.files.size() && ranks.size() == set.files.front().meta.world_size;
}

class Diff {
 public:
  Diff(const DiffInputs& inputs, RowSink* rows, Runs& runs)
      : inputs_(inputs), rows_(rows), base_(runs.base), cand_(runs.cand) {}

  [[nodiscard]] bool run(DiffResult& result, std::string& error) {
    if (!open(error)) return false;
    const std::vector<RankPair> pairs = pair_ranks(base_, cand_, inputs_.rules.base_rank);
    const bool whole = are_wholes();
    many_ranks_ = pairs.size() > 1;
    begin_result(base_, cand_, inputs_, result);
    Coverage coverage(base_, cand_, pairs, result);
    Joined joined(base_, cand_, pairs, result);
    if (!(whole ? compare_whole(joined, error) : compare_ranks(pairs, coverage, joined, error)))
      return false;
    joined.decide(inputs_.allow_incomplete);
    return true;
  }

 private:
  using Stream = std::unique_ptr<StepStream>;

  [[nodiscard]] bool open(std::string& error) {
    noise_.resize(inputs_.noise.size());
    if (!open_trace_set(inputs_.base, base_, error)) return false;
    if (!open_trace_set(inputs_.cand, cand_, error)) return false;
    for (size_t i = 0; i < noise_.size(); ++i) {
      if (!open_trace_set(inputs_.noise[i], noise_[i], error)) return false;
    }
    for (const TraceSet* set : {&base_, &cand_}) {
      for (const TraceFile& file : set->files) total_ += file.events;
    }
    return true;
  }

  /// @return whether the runs are compared as wholes, not rank by rank: they divide their tensors or
  /// their data among ranks differently, and every rank of both has a trace.
  [[nodiscard]] bool are_wholes() const {
    const DiffRules& rules = inputs_.rules;
    if (rules.layouts != LayoutChoice::kAuto) return rules.layouts == LayoutChoice::kWhole;
    if (!rules.base_rank.empty() || !has_all_ranks(base_) || !has_all_ranks(cand_)) return false;
    const TraceFile &base = base_.files.front(), &cand = cand_.files.front();
    if (base.meta.world_size != cand.meta.world_size) return true;
    return base.meta.world_size > 1 && placed_unlike(base.path, cand.path);
  }

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
    stream->move_parameters(inputs_.rules.moved);
    return true;
  }

  bool open_noise(uint32_t rank, const TraceFile& base, StepShift shift,
                  std::vector<Stream>& streams, std::string& error) {
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
  bool compare_whole(Joined& joined, std::string& error) {
    const TraceFile &base_file = base_.files.front(), &cand_file = cand_.files.front();
    if (!noise_.empty() || !inputs_.rules.base_rank.empty()) {
      error = tools::numbered(MessageId::kNotWhole,
                              std::string(noise_.empty() ? "[ranks] of --map" : "--noise") +
                                  " is about single ranks: it cannot be given for runs whose ranks "
                                  "hold unlike parts");
      return false;
    }
    RankPart part{.rank = 0, .result = {}};
    DiffResult& result = part.result;
    for (const TraceSet* set : {&base_, &cand_}) {
      for (const TraceFile& file : set->files)
        result.bits_known &= format::hash_alike(file.meta, base_file.meta);
    }
    const std::vector<PreflightEntry> differences = compare_meta(base_file.meta, cand_file.meta);
    for (const PreflightEntry& entry : differences) add_entry(result.preflight, entry);
    const StepOffset& offset = result.step_offset =
        step_offset(base_file.meta, cand_file.meta, inputs_.rules.step_offset);
    Streams base, cand;
    if (!open_all(base_, offset.of_base(), base, error) ||
        !open_all(cand_, offset.of_cand(), cand, error))
      return false;
    result.why_exact = "the runs divide their work among ranks in two ways";
    const EqualSteps nothing_equal;
    RankDiff diff(names_, launches_, nothing_equal, inputs_.rules, Exactness::kInexact,
                  inputs_.table, rows_, part);
    prepare(diff, base_file, cand_file, differences);
    diff.excuse_layouts();
    WholeRuns runs(base, cand, names_, inputs_.rules);
    diff.run(runs.base(), runs.cand(), {}, [&] {
      uint64_t done = 0;
      for (const Streams* streams : {&base, &cand})
        for (const Stream& stream : *streams) done += stream->position();
      if (inputs_.on_progress) inputs_.on_progress(done, total_);
    });
    result.wholes = {base.size(), cand.size(), runs.apart(), runs.summed()};
    add_gaps_of_wholes(base_, cand_, base, cand, runs, part);
    for (const Stream& stream : base)
      add_findings(result.base_findings, stream->findings(), stream->reader().meta().rank);
    for (const Stream& stream : cand)
      add_findings(result.cand_findings, stream->findings(), stream->reader().meta().rank);
    compare_facts(base_file, cand_file, part);
    end_part(std::ranges::any_of(base, is_cut), std::ranges::any_of(cand, is_cut), part);
    joined.add(std::move(part));
    return true;
  }

  bool compare_ranks(const std::vector<RankPair>& pairs, Coverage& coverage, Joined& joined,
                     std::string& error) {
    for (const RankPair& pair : pairs) {
      if (pair.base < 0 || pair.cand < 0) {
        coverage.add_one_sided(pair);
        continue;
      }
      RankPart part{.rank = pair.rank, .result = {}};
      if (!compare_rank(base_.files[static_cast<size_t>(pair.base)],
                        cand_.files[static_cast<size_t>(pair.cand)], part, error))
        return false;
      if (many_ranks_ && !is_with_others(pair.rank)) {
        part.base_replica.clear();
        part.cand_replica.clear();
        part.result.by_sums = 1;
      }
      joined.add(std::move(part));
    }
    return true;
  }

  /// @return whether a rank is compared with other ranks of its run, too.
  [[nodiscard]] bool is_with_others(uint32_t rank) const {
    return many_ranks_ && inputs_.ranks.contains(rank);
  }

  /// @return whether a trace may end within its last step.
  static bool is_cut(const Stream& stream) {
    return stream->reader().state() != reader::TraceState::kComplete;
  }

  static void prepare(RankDiff& diff, const TraceFile& base, const TraceFile& cand,
                      const std::vector<PreflightEntry>& differences) {
    if (uses_tf32(base.meta) || uses_tf32(cand.meta)) diff.use_tf32();
    const bool other_controls = std::ranges::any_of(
        differences, [](const auto& entry) { return entry.name.starts_with("setting."); });
    if (other_controls) diff.excuse_lost_gradients();
  }

  /// Compares steps by their numbers. If one run begins with the weights that the other one has
  /// after a later step, compares them again at that offset, unless the user gave one.
  bool compare_rank(const TraceFile& base, const TraceFile& cand, RankPart& part,
                    std::string& error) {
    const auto& asked = inputs_.rules.step_offset;
    StepOffset offset = step_offset(base.meta, cand.meta, asked);
    if (const auto none = overruled_by_weights(base.meta, cand.meta);
        !asked && offset.counted && none && begin_alike(base, cand, {}, true).value_or(false))
      offset = *none;
    const uint64_t done = done_;
    // Rows cannot be taken back.
    const bool is_settled =
        rows_ == nullptr || asked || begin_alike(base, cand, offset).value_or(true);
    RankPart first = part;
    first.result.step_offset = offset;
    if (!compare_steps(base, cand, is_settled ? rows_ : nullptr, first, error)) return false;
    const auto& root = first.result.root;
    const bool is_shifted = !asked && root && root->offset;
    if (!is_shifted && is_settled) {
      part = std::move(first);
      return true;
    }
    done_ = done;
    part.result.step_offset = is_shifted ? by_weights(offset, *root->offset) : offset;
    return compare_steps(base, cand, rows_, part, error);
  }

  /// @param also_data  the first data have to be equal, too.
  std::optional<bool> begin_alike(const TraceFile& base_file, const TraceFile& cand_file,
                                  const StepOffset& offset, bool also_data = false) {
    Stream base, cand;
    std::string error;  // told by the comparison
    if (!open_stream(base_file, offset.of_base(), base, error) ||
        !open_stream(cand_file, offset.of_cand(), cand, error))
      return std::nullopt;
    const StepRecords *a = base->peek(), *b = cand->peek();
    if (also_data && !FirstWeights::take_same_data(a, b)) return false;
    return FirstWeights::begin_alike(a, b);
  }

  /// @param part  has the offset of the steps.
  bool compare_steps(const TraceFile& base_file, const TraceFile& cand_file, RowSink* rows,
                     RankPart& part, std::string& error) {
    DiffResult& result = part.result;
    const std::vector<PreflightEntry> differences = compare_meta(base_file.meta, cand_file.meta);
    for (const PreflightEntry& entry : differences) add_entry(result.preflight, entry);
    if (!format::hash_alike(base_file.meta, cand_file.meta)) {
      result.bits_known = false;
      result.incomplete.push_back(tools::numbered(
          MessageId::kTwoHashes,
          "rank " + std::to_string(part.rank) +
              ": the runs' values are hashed in two ways (versions 1 and 2): statistics, sketches "
              "and samples were compared; integers whose elements changed places may look the "
              "same"));
    }
    EqualSteps equal;  // outlives the streams
    Stream base, cand;
    std::vector<Stream> noise;
    const StepOffset& offset = result.step_offset;
    if (!open_stream(base_file, offset.of_base(), base, error) ||
        !open_stream(cand_file, offset.of_cand(), cand, error) ||
        !open_noise(part.rank, base_file, offset.of_base(), noise, error)) {
      return false;
    }
    equal = equal_steps(*base, *cand,
                        !noise.empty() || rows != nullptr || is_with_others(part.rank), offset);
    base->leave_out(equal, Side::kBase);
    cand->leave_out(equal, Side::kCand);
    const ExactnessDecision exact =
        decide_exactness(inputs_.rules.exact, differences, base_file.meta, cand_file.meta,
                         all_repeat(base_file, part.rank));
    result.exact = exact.exactness == Exactness::kExact;
    result.why_exact = exact.why;
    RankDiff diff(names_, launches_, equal, inputs_.rules, exact.exactness, inputs_.table, rows,
                  part);
    SnapshotPairs stored(base->reader(), cand->reader());
    diff.use_stored(
        [&stored](const ValueRecord& a, const ValueRecord& b) { return stored.compare(a, b); });
    prepare(diff, base_file, cand_file, differences);
    diff.run(*base, *cand, noise, [&] {
      if (inputs_.on_progress)
        inputs_.on_progress(done_ + base->position() + cand->position(), total_);
    });
    done_ += base_file.events + cand_file.events;
    if (result.root) stored.compare(*result.root);
    add_gaps(many_ranks_, *base, *cand, part);
    add_findings(result.base_findings, base->findings(), part.rank);
    add_findings(result.cand_findings, cand->findings(), part.rank);
    AliasPatterns::compare(base->alias_patterns(), cand->alias_patterns(), part.rank, names_,
                           result.alias_patterns);
    compare_facts(base_file, cand_file, part);
    end_part(is_cut(base), is_cut(cand), part);
    return true;
  }

  /// @param every_value  for a report of every value, for the noise of later steps, or to compare
  /// ranks with each other.
  [[nodiscard]] EqualSteps equal_steps(const StepStream& base, const StepStream& cand,
                                       bool every_value, const StepOffset& offset) const {
    // With other names the steps cannot be compared by their sums.
    if (!inputs_.rules.renames.empty() || !inputs_.rules.moved.empty()) return {};
    return {base.reader(), cand.reader(), every_value, offset};
  }

  /// @return whether all repetitions have the same bits as the baseline; nullopt: unknown.
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

  const DiffInputs& inputs_;
  RowSink* rows_;
  uint64_t done_ = 0, total_ = 0;  ///< records
  format::Definitions names_;
  LaunchKeys launches_;
  TraceSet &base_, &cand_;
  std::vector<TraceSet> noise_;
  bool many_ranks_ = false;
};

}  // namespace

bool run_diff(const DiffInputs& inputs, RowSink* rows, DiffResult& result, std::string& error,
              Runs* runs) {
  Runs own;
  return Diff(inputs, rows, runs != nullptr ? *runs : own).run(result, error);
}

}  // namespace convtrace::diff
