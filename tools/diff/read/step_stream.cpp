#include "tools/diff/read/step_stream.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "format/model/op_names.h"
#include "tools/common/text.h"

namespace convtrace::diff {
namespace {

using format::StringId;

const EqualSteps kNothingEqual;

/// Counts repeated keys in the execution order of each thread, the threads in order of appearance,
/// because the interleaving of threads differs between runs.
void count_occurrences(std::vector<ValueRecord>& values) {
  std::unordered_map<uint32_t, size_t> threads;
  std::vector<ValueRecord*> order;
  order.reserve(values.size());
  for (ValueRecord& record : values) {
    threads.emplace(record.thread, threads.size());
    order.push_back(&record);
  }
  std::ranges::stable_sort(order, {}, [&](const ValueRecord* r) { return threads[r->thread]; });
  std::unordered_map<RecordKey, uint32_t, KeyHash> seen;
  seen.reserve(values.size());
  for (ValueRecord* record : order) record->key.occurrence = seen[record->key]++;
}

using format::Phase;
using Call = std::pair<uint32_t, uint32_t>;  // scope, number

Call call_of(const ValueRecord& record) { return {record.key.scope.value, record.key.call}; }

bool is_below(std::string_view scope, std::string_view other) {
  return scope != other &&
         (other.empty() || (scope.starts_with(other) && scope[other.size()] == '.'));
}

/// The calls in evaluation that got a gradient, of modules that the forward phase does not have as
/// well.
std::set<Call> graded_calls(const StepRecords& step) {
  std::set<Call> evaluated, graded;
  for (const ValueRecord& record : step.values) {
    if (record.key.phase == Phase::kEvaluation && !record.key.op) evaluated.insert(call_of(record));
  }
  if (evaluated.empty()) return {};
  for (const ValueRecord& record : step.values) {
    if (record.key.phase == Phase::kBackward && record.kind == Role::kGradOutput &&
        evaluated.contains(call_of(record)))
      graded.insert(call_of(record));
  }
  for (const ValueRecord& record : step.values) {
    if (record.key.phase != Phase::kForward || record.kind != Role::kOutput) continue;
    std::erase_if(graded, [&](const Call& call) { return call.first == record.key.scope.value; });
  }
  return graded;
}

/// Numbers calls of each module as if those in evaluation were not in between: by the old numbers.
std::map<Call, uint32_t> renumbered(const std::set<Call>& trained) {
  std::map<Call, uint32_t> numbers;
  uint32_t scope = 0, next = 0;
  for (const Call& call : trained) {
    next = call.first == scope && !numbers.empty() ? next + 1 : 0;
    scope = call.first;
    numbers.emplace(call, next);
  }
  return numbers;
}

bool is_gradient(const ValueRecord& record) {
  return record.key.phase == Phase::kBackward &&
         (record.kind == Role::kGradOutput || record.kind == Role::kGradInput);
}

/// Gives calls in evaluation mode the phase of training if the step's backward pass reached them. The
/// observer finds out that a program trains in evaluation mode from the second such step on; in the
/// first one the calls have the phase evaluation.
/// @param[in,out] step  in order of execution; keys without occurrences. Calls of modules that the
/// step also has in the forward phase are not changed.
void retrain_graded_calls(StepRecords& step, const format::Definitions& names) {
  const std::set<Call> graded = graded_calls(step);
  if (graded.empty()) return;
  std::set<uint32_t> scopes;
  for (const Call& call : graded) scopes.insert(call.first);
  std::set<uint32_t> outermost;
  std::ranges::copy_if(scopes, std::inserter(outermost, outermost.end()), [&](uint32_t scope) {
    return std::ranges::none_of(
        scopes, [&](uint32_t other) { return is_below(names.text({scope}), names.text({other})); });
  });
  // Values between a call's first and last one, in the same thread, belong to the call.
  struct Span {
    size_t first, last;
  };
  std::map<Call, Span> spans;
  for (size_t i = 0; i < step.values.size(); ++i) {
    const ValueRecord& record = step.values[i];
    if (record.key.phase != Phase::kEvaluation || !graded.contains(call_of(record))) continue;
    spans.try_emplace(call_of(record), Span{i, i}).first->second.last = i;
  }
  std::set<Call> trained;
  for (const auto& [call, span] : spans) {
    const uint32_t thread = step.values[span.first].thread;
    for (size_t i = span.first; i <= span.last; ++i) {
      RecordKey& key = step.values[i].key;
      if (step.values[i].thread != thread || key.phase != Phase::kEvaluation) continue;
      const bool is_data = outermost.contains(call.first) && call_of(step.values[i]) == call &&
                           !key.op && step.values[i].kind == Role::kInput;
      key.phase = is_data ? Phase::kData : Phase::kForward;
      if (!key.op) trained.insert(call_of(step.values[i]));
    }
  }
  const std::map<Call, uint32_t> numbers = renumbered(trained);
  for (ValueRecord& record : step.values) {
    const bool computes = record.key.phase == Phase::kData || record.key.phase == Phase::kForward;
    if (!computes && !is_gradient(record)) continue;
    const auto number = numbers.find(call_of(record));
    if (number != numbers.end()) record.key.call = number->second;
  }
}

}  // namespace

StepStream::StepStream(std::unique_ptr<reader::TraceReader> reader, format::Definitions& names,
                       LaunchKeys& launches, StepShift shift)
    : reader_(std::move(reader)),
      names_(names),
      launches_(launches),
      shift_(shift),
      moved_(names),
      shared_(names) {
  leave_out(kNothingEqual, Side::kBase);
}

const StepRecords* StepStream::peek() {
  while (!ready_) {
    const bool more = !at_end_ && read_one();
    at_end_ = !more;
    if (open_.empty()) {
      if (at_end_) return nullptr;
      continue;
    }
    if (!at_end_ && !open_.is_first_whole()) continue;
    ready_ = open_.take_first().second;
    put_in_order(*ready_);
    const bool last = at_end_ && (open_.empty() || open_.first() == format::kNoStep);
    ready_->may_be_cut = last && reader_->state() == reader::TraceState::kUnclosed;
  }
  return &*ready_;
}

/// Sorts into execution order, and counts repeated keys.
void StepStream::put_in_order(StepRecords& step) {
  moved_.apply(step);
  if (!std::ranges::is_sorted(step.values, is_before))
    std::ranges::stable_sort(step.values, is_before);
  retrain_graded_calls(step, names_);
  // Programs repeat their steps: a step with the same keys as the step before has the same
  // occurrences.
  const auto as_before = [](const ValueRecord& record, const Counted& before) {
    RecordKey key = record.key;
    key.occurrence = before.key.occurrence;
    return record.thread == before.thread && key == before.key;
  };
  if (std::ranges::equal(step.values, counted_, as_before)) {
    for (size_t i = 0; i < counted_.size(); ++i) step.values[i].key = counted_[i].key;
    return;
  }
  count_occurrences(step.values);
  counted_.clear();
  for (const ValueRecord& record : step.values) counted_.push_back({record.key, record.thread});
}

void StepStream::pop() {
  if (!ready_) return;
  ready_->clear();
  open_.reuse(*std::exchange(ready_, std::nullopt));
}

bool StepStream::read_one() {
  const format::Event* event = reader_->next();
  if (event == nullptr) return false;
  position_ = format::header_of(*event).seq;
  if (const auto* stats = std::get_if<format::TensorStats>(event)) {
    take(*stats);
  } else if (const auto* launch = std::get_if<format::Launch>(event)) {
    take(*launch);
  } else if (const auto* finding = std::get_if<format::Finding>(event)) {
    take(*finding);
  } else if (const auto* op = std::get_if<format::Op>(event)) {
    take(*op);
  } else if (const auto* loss = std::get_if<format::Loss>(event)) {
    losses_.take(*loss);
  }
  return true;
}

void StepStream::leave_out(const EqualSteps& equal, Side side) {
  equal_ = &equal;
  side_ = side;
  const auto wanted = [&equal, side, shift = shift_](format::RecordHeader chunk) {
    chunk.step_begin = shift.of(chunk.step_begin);
    chunk.step_end = shift.of(chunk.step_end);
    return equal.wanted(chunk, side);
  };
  reader_->select(wanted, reader::Unwanted::kCheck);
}

/// @return whether events of this kind are taken from the step.
template <typename Kind>
bool StepStream::takes(uint32_t step) {
  if (step != step_) {
    step_ = step;
    taken_ = equal_->taken(step, side_);
  }
  return (taken_ & reader::kKindSet<Kind>) != 0;
}

StepRecords* StepStream::open_step(uint32_t step) {
  StepRecords* const records = open_.at(step);
  if (records != nullptr) records->step = step;
  return records;
}

void StepStream::take(const format::TensorStats& event) {
  const uint32_t number = shift_.of(event.header.step);
  if (!takes<format::TensorStats>(number)) return;
  StepRecords* step = open_step(number);
  if (step == nullptr) {
    ++late_values_;
    return;
  }
  const SharedNames::Slot& slot = shared_.slot(reader_->definitions(), event.slot);
  ValueRecord record;
  record.key = {.scope = shared(event.place.scope),
                .op = shared(event.op),
                .family = shared_family(event.kernel),
                .slot = slot.id,
                .call = event.place.call,
                .phase = event.place.phase};
  record.kind = slot.role;
  record.tensor = slot.name;
  record.before = operand_before(event.slot);
  const Op& of = op(event.op);
  record.unwritten = slot.role == Role::kOutput && of.leaves_unwritten;
  record.fused = of.is_fused;
  record.of_loss = of.is_loss;
  record.kernel = shared(reader_->definitions().kernel(event.kernel).name);
  record.t_ns = event.header.t_ns;
  record.seq = event.header.seq;
  record.thread = event.header.thread;
  record.device = event.device;
  record.dtype = event.dtype;
  record.extent = event.extent;
  record.capture = event.capture;
  record.value = event.value;
  record.address = event.address;
  record.bytes = event.bytes;
  record.stats = event.stats;
  record.has_shape = event.has_shape;
  record.hashed_anew = hashes_anew(reader_->meta());
  record.dims_count = static_cast<uint8_t>(std::min(event.shape.size(), format::kMaxDims));
  record.dims_at = step->dims.size();
  step->dims.insert(step->dims.end(), event.shape.begin(), event.shape.begin() + record.dims_count);
  record.samples_at = step->samples.size();
  step->samples.insert(step->samples.end(), event.samples.begin(), event.samples.end());
  step->samples.insert(step->samples.end(), event.leading.begin(), event.leading.end());
  record.samples_bytes = static_cast<uint32_t>(step->samples.size() - record.samples_at);
  (slot.role == Role::kWritten ? step->written : step->values).push_back(record);
}

void StepStream::take(const format::Launch& event) {
  const uint32_t number = shift_.of(event.header.step);
  if (!takes<format::Launch>(number)) return;
  StepRecords* step = open_step(number);
  if (step == nullptr) return;
  if (last_launch_ >= followed_.size()) followed_.resize(last_launch_ + size_t{1});
  Followed& next = followed_[last_launch_];
  const format::Place &place = event.place, &expected = next.place;
  const bool as_expected = next.kernel == event.kernel && expected.scope == place.scope &&
                           expected.call == place.call && expected.phase == place.phase;
  if (!as_expected || !event.kernel) {
    const LaunchKey key{.scope = shared(place.scope),
                        .family = shared_family(event.kernel),
                        .call = place.call,
                        .phase = place.phase};
    next = {event.kernel, place, launches_.number(key)};
  }
  if (!as_expected || AliasPatterns::overlaps(event))
    patterns_.take(event, {shared(place.scope), shared_family(event.kernel), place.phase, true});
  last_launch_ = next.launch;
  step->launches.push_back(last_launch_);
}

void StepStream::take(const format::Finding& event) {
  ++findings_.count;
  if (event.level == format::Level::kError && !event.suppressed) ++findings_.errors;
  if (findings_.list.size() >= kMaxFindings) return;
  const format::Definitions& texts = reader_->definitions();
  const auto text = [&](StringId id) { return std::string(texts.text(id)); };
  findings_.list.push_back({.rank = reader_->meta().rank,
                            .step = shift_.of(event.header.step),
                            .t_ns = event.header.t_ns,
                            .kind = event.kind,
                            .level = event.level,
                            .suppressed = event.suppressed,
                            .phase = event.place.phase,
                            .scope = text(event.place.scope),
                            .op = text(event.op),
                            .kernel = text(texts.kernel(event.kernel).name),
                            .slot = text(event.slot),
                            .other = text(event.other),
                            .message = std::string(event.message),
                            .call = event.place.call,
                            .address = event.address,
                            .bytes = event.bytes,
                            .storage = event.value.storage,
                            .generation = event.value.generation,
                            .alloc_stack = tools::stack_texts(texts, event.alloc_stack),
                            .launch_stack = tools::stack_texts(texts, event.launch_stack),
                            .free_stack = tools::stack_texts(texts, event.free_stack)});
}

void StepStream::take(const format::Op& event) {
  const uint32_t step = shift_.of(event.header.step);
  // Patterns of a step that only one run has read prove nothing.
  if (!takes<format::Op>(step) || equal_->is_read_once(step)) return;
  const format::Place& place = event.place;
  patterns_.take(event, {shared(place.scope), shared(event.op), place.phase, false},
                 shared(event.slot));
}

StringId StepStream::shared(StringId local) { return shared_.of(reader_->definitions(), local); }

StringId StepStream::shared_family(format::KernelId local) {
  if (!local) return {};
  const format::KernelDef kernel = reader_->definitions().kernel(local);
  return shared(kernel.family ? kernel.family : kernel.name);
}

StringId StepStream::operand_before(StringId slot) {
  if (slot.value >= before_.size()) before_.resize(slot.value + size_t{1});
  std::optional<StringId>& known = before_[slot.value];
  if (!known) {
    const std::string before = format::operand_before(reader_->definitions().text(slot));
    // A gradient that a backward was given goes to others, too: made_by.h tells it by them.
    const bool is_told = before.empty() || before.starts_with("grad_output:");
    known = is_told ? StringId{} : names_.intern(before);
  }
  return *known;
}

const StepStream::Op& StepStream::op(StringId local) {
  if (local.value >= ops_.size()) ops_.resize(local.value + size_t{1});
  std::optional<Op>& known = ops_[local.value];
  if (!known) {
    const std::string_view name = local ? reader_->definitions().text(local) : std::string_view();
    known = Op{leaves_unwritten(name), is_fused(name), is_loss(name)};
  }
  return *known;
}

}  // namespace convtrace::diff
