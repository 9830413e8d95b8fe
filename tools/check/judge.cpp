#include "tools/check/judge.h"

#include <algorithm>
#include <map>

#include "tools/check/catalog.h"
#include "tools/check/story/blow_up.h"
#include "tools/check/story/teller.h"
#include "tools/trace/model/hash_mix.h"
#include "tools/trace/read/open_steps.h"
#include "tools/trace/read/shared_names.h"

namespace convtrace::check {
namespace {

using format::StringId;

Severity severity_of(format::Level level) {
  switch (level) {
    case format::Level::kError: return Severity::kError;
    case format::Level::kWarning: return Severity::kWarning;
    default: return Severity::kHint;
  }
}

/// @return the usual cause of a finding that the trace contains.
const char* cause_of(format::FindingKind kind) {
  using Kind = format::FindingKind;
  switch (kind) {
    case Kind::kOutputAliasesInput:
      return "an op that returns memory of its input as a tensor of its own, and declares no alias";
    case Kind::kCrossStreamReuse:
      return "memory that another stream still used: record_stream() or a wait is missing";
    case Kind::kInputMutated:
      return "mutation: an op that writes its input in place and declares it neither by "
             "mark_dirty() nor by mutates_args";
    case Kind::kAutotuneMutation:
      return "mutation: an autotuner that tries a kernel again and again on memory that it writes "
             "in place (restore_value, reset_to_zero)";
    case Kind::kNeverWritten: return "an op that leaves a part of its output as it was allocated";
    case Kind::kUsedBeforeWait:
      return "a missing wait(): an asynchronous collective may still use the tensor";
    case Kind::kReceiveOverlaps:
      return "a buffer that is received into while somebody else still needs what lies there";
    case Kind::kOverwritten:
      return "memory that is written while somebody still needs it: a buffer that is used again "
             "too early, out=, a write through .data or a raw pointer";
    case Kind::kAliasPatternDiffers: return "memory that two tensors share in one run alone";
    default: return "memory that was given back while something still used it";
  }
}

using Wanted = std::function<bool(std::string_view)>;

class Judge {
 public:
  Judge(reader::TraceReader& trace, const Wanted& wanted)
      : trace_(trace), shared_(names_), facts_(names_), wanted_(wanted) {
    for (const CatalogRow& row : catalog())
      for (const MakeCheck make : {row.make, row.also})
        if (make != nullptr) checks_.push_back(make());
  }

  std::vector<Finding> read_on() {
    while (const format::Event* event = trace_.next()) {
      if (const auto* stats = std::get_if<format::TensorStats>(event)) {
        take(*stats);
      } else if (const auto* fact = std::get_if<format::Fact>(event)) {
        take(*fact);
      } else if (const auto* finding = std::get_if<format::Finding>(event)) {
        take(*finding);
      } else if (const auto* loss = std::get_if<format::Loss>(event)) {
        result_.losses.take(*loss);
      }
      while (open_.is_first_whole()) judge_first();
    }
    return collect();
  }

  RankResult finish() {
    while (!open_.empty()) judge_first();
    const Surroundings around = surroundings(true);
    for (const auto& check : checks_) {
      if (result_.parallel_from) break;
      check->end(around);
      for (const auto& look : check->looks())
        if (wanted_(look.first)) result_.looks.push_back(look);
    }
    (void)collect();
    result_.story = teller_.tell(around);
    if (wanted_("blow-up") && !result_.parallel_from) {
      result_.looks.emplace_back("blow-up", result_.story.steps.size());
      add_blow_ups(result_.story, result_.findings);
    }
    result_.rank = trace_.meta().rank;
    result_.start_realtime_ns = trace_.meta().start_realtime_ns;
    result_.complete = trace_.state() == reader::TraceState::kComplete;
    return std::move(result_);
  }

 private:
  /// A record made outside of any step belongs to the open step.
  StepValues& step_of(uint32_t number) {
    if (number == format::kNoStep) number = open_.empty() ? last_ : open_.last();
    last_ = std::max(number, static_cast<uint32_t>(open_.next()));
    StepValues& step = *open_.at(last_);
    step.number = last_;
    return step;
  }

  /// Ids of the trace become ids of this judge, which has names of its own beside them.
  StringId own(StringId local) { return shared_.of(trace_.definitions(), local); }

  void take(const format::TensorStats& event) {
    ++result_.values;
    if (event.header.step < open_.next()) {  // its step has been judged
      ++result_.late_values;
      return;
    }
    StepValues& step = step_of(event.header.step);
    const diff::SharedNames::Slot& slot = shared_.slot(trace_.definitions(), event.slot);
    note_thread(event, slot.role, step.number);
    Value value;
    value.role = slot.role;
    value.seq = event.header.seq;
    value.place = event.place;
    value.slot = slot.id;
    value.place.scope = own(event.place.scope);
    value.name = slot.name;
    value.op = own(event.op);
    value.kernel = event.kernel;
    value.dtype = event.dtype;
    value.capture = event.capture;
    value.bytes = event.bytes;
    for (const uint64_t extent : event.shape) value.shape = diff::mix_all({value.shape, extent});
    value.stats = event.stats;
    value.padding = event.padding;
    value.pad_count = event.pad_count;
    value.poisoned = event.poisoned;
    value.storage = event.value.storage;
    value.offset = event.value.offset;
    value.generation = event.value.generation;
    value.version = event.value.version;
    value.address = event.address;
    keep_elements(event, step, value);
    step.values.push_back(value);
  }

  /// Finds threads that train at once: two have losses in one step, or update parameters. They
  /// share one count of steps, so that a step ends amid what another thread does. The values of a
  /// device are all recorded by the thread that collects them.
  void note_thread(const format::TensorStats& event, Role role, uint32_t step) {
    const bool updates =
        role == Role::kGradient ||
        (role == Role::kParameter && event.place.phase == format::Phase::kOptimizer);
    const bool in_host = event.device.type == format::Device::Type::kCpu;
    if (!in_host || (!updates && role != Role::kLoss)) return;
    const uint32_t first = threads_.try_emplace({step, updates}, event.header.thread).first->second;
    if (first != event.header.thread && !result_.parallel_from) result_.parallel_from = step;
  }

  /// Keeps the ranges and samples that are compared element by element (stale_gradient.cpp).
  static void keep_elements(const format::TensorStats& event, StepValues& step, Value& value) {
    switch (value.role) {
      case Role::kParameter:
      case Role::kGradient:
      case Role::kUnclipped:
        value.ranges_at = step.ranges.size();
        value.range_count = static_cast<uint32_t>(event.range_hashes.size());
        step.ranges.insert(step.ranges.end(), event.range_hashes.begin(), event.range_hashes.end());
        break;
      case Role::kInput:
      case Role::kOutput:
      case Role::kGradOutput:
      case Role::kGradInput: break;
      default: return;
    }
    value.samples_at = step.samples.size();
    value.sample_bytes = static_cast<uint32_t>(event.samples.size());
    step.samples.insert(step.samples.end(), event.samples.begin(), event.samples.end());
    value.extents_at = step.extents.size();
    value.rank = static_cast<uint32_t>(event.shape.size());
    step.extents.insert(step.extents.end(), event.shape.begin(), event.shape.end());
  }

  void take(const format::Fact& event) {
    step_of(event.header.step)
        .facts.push_back({own(event.scope), own(event.name), std::string(event.value)});
  }

  void take(const format::Finding& event) {
    if (event.suppressed || event.level == format::Level::kDebug) return;
    Finding finding{.id = to_string(event.kind), .severity = severity_of(event.level)};
    if (!wanted_(finding.id)) return;
    finding.rank = trace_.meta().rank;
    if (event.header.step != format::kNoStep) finding.step = event.header.step;
    finding.phase = event.place.phase;
    const format::Definitions& names = trace_.definitions();
    if (event.place.scope) finding.scope = names.text(event.place.scope);
    finding.op = names.text(event.op);
    finding.slot = names.text(event.slot);
    finding.text = event.message;
    finding.evidence = {"record " + std::to_string(event.header.seq) + " of the trace"};
    finding.cause = cause_of(event.kind);
    finding.next = "convtrace findings TRACE shows who allocated, freed and used it";
    result_.findings.push_back(std::move(finding));
  }

  [[nodiscard]] Surroundings surroundings(bool drew) const {
    const auto& meta = trace_.meta();
    return {.names = names_,
            .facts = facts_,
            .rank = meta.rank,
            .alone = meta.world_size <= 1,
            .drew = drew};
  }
  /// @return whether a random generator moved in a step: its state differs at the begin of the next
  /// one.
  [[nodiscard]] bool draws(const StepValues& step) const {
    const StepValues* const next = open_.find(step.number + 1);
    if (next == nullptr || !facts_.knows_generators()) return true;
    return std::ranges::any_of(next->facts, [&](const FactSeen& fact) {
      return !fact.scope && names_.text(fact.name).starts_with("rng.");
    });
  }

  /// Moves the checks' new findings to the result. @return a copy of them.
  std::vector<Finding> collect() {
    for (const auto& check : checks_)
      for (Finding& finding : check->take_findings())
        if (wanted_(finding.id)) result_.findings.push_back(std::move(finding));
    const auto first = result_.findings.begin() + static_cast<ptrdiff_t>(told_);
    told_ = result_.findings.size();
    return {first, result_.findings.end()};
  }

  void judge_first() {
    StepValues step = open_.take_first().second;
    const auto order = [](const Value& value) { return value.seq; };
    if (!std::ranges::is_sorted(step.values, {}, order))
      std::ranges::stable_sort(step.values, {}, order);
    step.index();
    if (const auto& facts = trace_.meta().facts; facts.size() != meta_facts_) {
      facts_.take(facts);
      meta_facts_ = facts.size();
    }
    facts_.take(step);
    const Surroundings around = surroundings(draws(step));
    if (!result_.parallel_from)
      for (const auto& check : checks_) check->see(step, around);
    teller_.see(step, around);
    ++result_.steps_seen;
    if (result_.steps_trained == 0)
      for (const auto& [parameter, seen] : step.parameters) add_hash(result_.initial, seen.initial);
    if (step.trains) {
      ++result_.steps_trained;
      result_.steps.push_back(across_ranks(step));
    }
    threads_.erase(threads_.begin(),
                   threads_.lower_bound({static_cast<uint32_t>(open_.next()), false}));
    step.values.clear();
    step.ranges.clear();
    step.samples.clear();
    step.extents.clear();
    step.facts.clear();
    open_.reuse(std::move(step));
  }

  [[nodiscard]] uint64_t text_hash(StringId id) const {
    return std::hash<std::string_view>{}(names_.text(id));
  }

  void add_hash(uint64_t& sum, const Value* value) const {
    if (value != nullptr)
      sum +=
          diff::mix_all({text_hash(value->place.scope), text_hash(value->slot), value->stats.hash});
  }

  [[nodiscard]] RankStep across_ranks(const StepValues& step) const {
    RankStep result{.sums = {.step = step.number}};
    for (const auto& [parameter, seen] : step.parameters) {
      add_hash(result.sums.weights, seen.updates.empty() ? nullptr : seen.updates.back());
      add_hash(result.sums.gradients, seen.gradient);
    }
    for (const Value* value : step.data) {
      const bool constant = value->measured() && value->stats.min == value->stats.max;
      if (!constant && value->stats.count > 1)
        result.data +=
            diff::mix_all({text_hash(value->slot), value->place.call, value->stats.hash});
    }
    return result;
  }

  reader::TraceReader& trace_;
  format::Definitions names_;
  diff::SharedNames shared_;
  Facts facts_;
  const Wanted& wanted_;
  std::vector<std::unique_ptr<Check>> checks_;
  StoryTeller teller_;
  diff::OpenSteps<StepValues> open_;
  std::map<std::pair<uint32_t, bool>, uint32_t> threads_;  ///< (step, updates or losses) -> thread
  uint32_t last_ = 0;
  RankResult result_;
  size_t meta_facts_ = 0;  ///< facts of the trace's head that were taken
  size_t told_ = 0;        ///< findings of the result that collect() has returned
};

}  // namespace

struct TraceJudge::Impl {
  std::string path;
  std::unique_ptr<reader::TraceReader> trace;
  Judge judge;
};

TraceJudge::TraceJudge(std::string path, std::unique_ptr<reader::TraceReader> trace,
                       const Wanted& wanted) {
  trace->select([](const format::RecordHeader&) {
    return reader::kKindSet<format::TensorStats, format::Fact, format::Finding, format::Loss>;
  });
  reader::TraceReader& opened = *trace;
  impl_.reset(new Impl{std::move(path), std::move(trace), Judge(opened, wanted)});
}
TraceJudge::~TraceJudge() = default;

std::vector<Finding> TraceJudge::read_on() { return impl_->judge.read_on(); }

RankResult TraceJudge::finish() {
  RankResult result = impl_->judge.finish();
  result.path = impl_->path;
  return result;
}

reader::TraceReader& TraceJudge::trace() { return *impl_->trace; }

}  // namespace convtrace::check
