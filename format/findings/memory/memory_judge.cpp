#include "format/findings/memory/memory_judge.h"

#include <algorithm>
#include <utility>

#include "format/findings/common/wording.h"

namespace convtrace::judge {
namespace {

using format::Confidence;
using format::FindingKind;
using format::MemorySource;
using format::SampleOutcome;
using Taker = MemoryFinding::Taker;

bool is_pointer(const format::Operand& operand) {
  return operand.confidence <= Confidence::kPointerInterior;
}

/// @return whether memory of this kind must not be used after its free. Not so for memory that the
/// host had registered, which a device that shares the host's page tables may still read, and for
/// imported memory, which belongs to another process.
bool ends_with_its_free(MemorySource source) {
  return source == MemorySource::kDriver || source == MemorySource::kStreamOrdered ||
         source == MemorySource::kVirtual || source == MemorySource::kFramework;
}

MemorySource source_of(const Life& life) { return static_cast<MemorySource>(life.source); }

MemoryFinding finding_of(const format::Launch& event, const format::Operand& operand) {
  MemoryFinding finding;
  finding.header = event.header;
  finding.place = event.place;
  finding.kernel = event.kernel;
  finding.in_graph = event.sampled == SampleOutcome::kInGraph;
  finding.stream = event.stream;
  finding.param = operand.param;
  finding.address = operand.address;
  return finding;
}

void tell(const Life& life, uint64_t address, MemoryFinding& finding) {
  finding.block = source_of(life) == MemorySource::kFramework;
  finding.address = address;
  finding.offset = address - life.base;
  finding.bytes = life.bytes;
  finding.generation = life.generation;
  finding.freed_in_step = life.freed_in_step;
}

}  // namespace

void MemoryJudge::see(const format::Event& event, Findings& findings) {
  format::visit_event(
      [&](const auto& e) {
        if constexpr (requires { on(e, findings); }) {
          on(e, findings);
        } else if constexpr (requires { on(e); }) {
          on(e);
        }
      },
      event);
}

void MemoryJudge::on(const format::Launch& event, Findings& findings) {
  if (!calls_.empty()) begin_launch(event);
  if (event.sampled == SampleOutcome::kLaunchFailed) return;
  const bool runs = event.sampled != SampleOutcome::kCaptured;
  Use use{};
  if (runs) {
    use = order_.work(order_.slot_of(event.stream, event.header.thread));
    if (order_.epoch() != epoch_) return forget_all();
  }
  // A benchmark of an autotuner is waited for, and its times alone are used.
  if (event.place.phase == format::Phase::kTuning) return;
  for (const format::Operand& operand : event.operands) {
    if (operand.generation == 0) continue;
    Life* const life = lives_.living(operand.generation);
    // Between the blocks of a framework in driver memory: there may have been a block.
    if (life == nullptr || life->has_blocks != 0) {
      check_freed(event, operand, findings);
    } else if (!runs || !is_pointer(operand)) {
      continue;
    } else if (goes_on(*life, use)) {
      life->set_use(use);
    } else {
      this->use(
          *life, use, [&] { return finding_of(event, operand); }, findings);
    }
  }
}

void MemoryJudge::on(const format::Copy& event, Findings& findings) {
  if (event.kind == format::Copy::Kind::kDiscard) return;
  const Use use = order_.work(order_.slot_of(event.stream, event.header.thread));
  if (order_.epoch() != epoch_) return forget_all();
  copied(event.destination, event, use, Taker::kCopyDestination, findings);
  if (event.kind == format::Copy::Kind::kCopy)
    copied(event.source, event, use, Taker::kCopySource, findings);
}

void MemoryJudge::on(const format::TensorStats& event, Findings& findings) {
  const std::optional<MadeValue> made = values_.see(event);
  if (!made) return;
  MemoryFinding found;
  found.kind = FindingKind::kStaleRead;
  found.header = event.header;
  found.place = event.place;
  found.taker = Taker::kTensor;
  found.address = event.address;
  found.bytes = event.bytes;
  found.generation = event.value.generation;
  found.made = *made;
  found.hash = event.stats.hash;
  found.slot = event.slot;
  tell_stacks(made->id.generation, found);
  report(std::move(found), findings);
}

void MemoryJudge::copied(uint64_t address, const format::Copy& event, Use use, Taker taker,
                         Findings& findings) {
  Life* life = lives_.at(address, Layer::kBlock);
  if (life == nullptr) life = lives_.at(address, Layer::kDriver);
  if (life == nullptr || life->freed != 0 || life->has_blocks != 0) return;
  const auto finding = [&] {
    MemoryFinding made;
    made.header = event.header;
    made.taker = taker;
    made.stream = event.stream;
    made.address = address;
    return made;
  };
  this->use(*life, use, finding, findings);
}

/// @return whether all uses of the memory so far were in that stream: the usual case.
bool MemoryJudge::goes_on(const Life& life, Use use) {
  return life.inherited == 0 && (life.use_stream == use.stream || life.position == 0);
}

/// @param finding  makes a finding, if one is needed.
template <typename Finding>
void MemoryJudge::use(Life& life, Use use, Finding&& finding, Findings& findings) {
  if (life.inherited != 0) {
    if (const std::optional<Use> earlier = unordered_use(life, use.stream)) {
      MemoryFinding found = finding();
      found.kind = FindingKind::kCrossStreamReuse;
      tell(life, found.address, found);
      found.other_stream = order_.handle(earlier->stream);
      tell_stacks(life.generation, found);
      report(std::move(found), findings);
    }
    life.inherited = 0;
    lives_.drop_uses(life);
  } else if (life.position != 0 && life.use_stream != use.stream && !order_.done(life.use())) {
    std::vector<Use>& more = lives_.more_uses(life);
    const auto same = std::ranges::find(more, life.use().stream, &Use::stream);
    if (same == more.end()) {
      more.push_back(life.use());
    } else {
      *same = life.use();
    }
  }
  life.set_use(use);
}

/// For the first work in `slot` on memory that was allocated again: @return a former use in another
/// stream that is not ordered before it, if there is one.
std::optional<Use> MemoryJudge::unordered_use(Life& life, uint16_t slot) {
  if (!edges_) return std::nullopt;
  if (!order_.ordered(life.use(), slot)) return life.use();
  if (life.more_uses == 0) return std::nullopt;
  for (const Use earlier : lives_.more_uses(life)) {
    if (!order_.ordered(earlier, slot)) return earlier;
  }
  return std::nullopt;
}

void MemoryJudge::check_freed(const format::Launch& event, const format::Operand& operand,
                              Findings& findings) {
  Layer layer = Layer::kBlock;
  const Life* life = lives_.at(operand.address, layer);
  if (life == nullptr) life = lives_.at(operand.address, layer = Layer::kDriver);
  if (life == nullptr || life->freed == 0 || !ends_with_its_free(source_of(*life))) return;
  const Life* const segment = lives_.at(operand.address, Layer::kDriver);
  // The launch's look-up, in the allocators' own records, found this allocation or the memory
  // around it.
  if (operand.generation != life->generation &&
      (segment == nullptr || operand.generation != segment->generation)) {
    return;
  }
  if (!is_pointer(operand)) {
    ++stale_words_;
    return;
  }
  const bool in_graph = event.sampled == SampleOutcome::kInGraph;
  if (in_graph && !capture_seen_) return;
  if (layer == Layer::kDriver && graph_memory_) return;
  if (is_of_graphs(operand.address) || may_be_end(event, operand.address, layer)) return;
  MemoryFinding found = finding_of(event, operand);
  tell(*life, operand.address, found);
  tell_stacks(life->generation, found);
  report(std::move(found), findings);
}

/// @return whether `address` may be the end pointer of an array whose begin is an operand, too: the
/// address one past the end of a range is where the next range begins.
bool MemoryJudge::may_be_end(const format::Launch& event, uint64_t address, Layer layer) {
  const Life* const front = lives_.at(address - 1, layer);
  if (front == nullptr || front->freed != 0 || front->end() != address) return false;
  return std::ranges::any_of(event.operands, [&](const format::Operand& operand) {
    return front->holds(operand.address);
  });
}

/// @return whether `address` is in a segment with blocks of captured graphs: replays use such blocks
/// after the framework has reported their free.
bool MemoryJudge::is_of_graphs(uint64_t address) {
  const Life* const segment = lives_.at(address, Layer::kDriver);
  return segment != nullptr && segment->freed == 0 && segment->of_graphs != 0;
}

/// Records that a framework's block was allocated. @return whether graphs use the memory around it.
bool MemoryJudge::note_block(const Life& block) {
  bool of_graphs = captures_ != 0;
  const auto segments = [&](auto&& visit) {
    for (uint64_t at = block.base; at < block.end();) {
      Life* const segment = lives_.at(at, Layer::kDriver);
      if (segment == nullptr) return;
      visit(*segment);
      at = segment->end();
    }
  };
  segments([&](Life& segment) {
    segment.has_blocks = 1;
    of_graphs = of_graphs || segment.of_graphs != 0;
  });
  if (of_graphs) segments([](Life& segment) { segment.of_graphs = 1; });
  return of_graphs;
}

void MemoryJudge::tell_stacks(uint64_t generation, MemoryFinding& finding) const {
  const Stacks* const stacks = stacks_.find(generation);
  if (stacks == nullptr) return;
  finding.alloc_stack = stacks->alloc;
  finding.free_stack = stacks->free;
}

void MemoryJudge::on(const format::Op& event) {
  if (event.moment != format::OpMoment::kStack || !event.slot) return;
  Calls& calls = calls_[event.header.thread];
  if (event.device.type == format::Device::Type::kCuda) {
    calls.launch = event.stack;
    calls.launched = false;
  } else {
    calls.tensor = event.stack;
  }
}

/// A launch without a call stack of its own (it did not pass the gate) must not get that of the
/// last one.
void MemoryJudge::begin_launch(const format::Launch& event) {
  if (event.sampled == SampleOutcome::kInGraph) return;
  const auto found = calls_.find(event.header.thread);
  if (found == calls_.end()) return;
  Calls& calls = found->second;
  if (std::exchange(calls.launched, true)) calls.launch = {};
}

format::StackId MemoryJudge::stack_of(const MemoryFinding& finding) const {
  const auto found = calls_.find(finding.header.thread);
  if (found == calls_.end()) return {};
  if (finding.taker == Taker::kTensor) return found->second.tensor;
  return finding.taker == Taker::kKernel ? found->second.launch : format::StackId{};
}

void MemoryJudge::on(const format::Alloc& event) {
  if (event.stack) stacks_.get(event.generation).first.alloc = event.stack;
  if (event.device.type != format::Device::Type::kCuda) return;  // no launch uses such addresses
  Life* const life = lives_.begin(event, before_);
  if (life == nullptr) return;
  const bool reused = event.source == MemorySource::kStreamOrdered ||
                      (event.source == MemorySource::kFramework && !note_block(*life));
  if (reused) inherit(*life);
  for (Life& old : before_) lives_.drop_uses(old);
}

/// A new allocation keeps unfinished uses of its memory until its own first use. For memory that
/// the driver returns other than from a pool, none is unfinished.
void MemoryJudge::inherit(Life& life) {
  const auto take = [&](const Life& old, Use earlier) {
    if (order_.done(earlier)) return;
    if (life.inherited != 0) {
      lives_.more_uses(life).push_back(earlier);
      return;
    }
    life.inherited = 1;
    life.freed_in_step = old.freed_in_step;
    if (const Stacks* const stacks = stacks_.find(old.generation); stacks != nullptr) {
      const format::StackId free = stacks->free;
      stacks_.get(life.generation).first.free = free;
    }
    life.set_use(earlier);
  };
  for (Life& old : before_) {
    take(old, old.use());
    if (old.more_uses == 0) continue;
    for (const Use earlier : lives_.more_uses(old)) take(old, earlier);
  }
}

void MemoryJudge::on(const format::Free& event) {
  if (event.stack) stacks_.get(event.generation).first.free = event.stack;
  Life* const life = lives_.end(event);
  if (life == nullptr) return;
  switch (source_of(*life)) {
    case MemorySource::kFramework: break;
    case MemorySource::kStreamOrdered:
      keep_unordered_uses(*life,
                          order_.work(order_.slot_of(event.stream, event.header.thread)).stream);
      break;
    default:  // the driver waits, or the program must
      life->position = 0;
      lives_.drop_uses(*life);
  }
}

/// The next owner of the memory is ordered behind the free, which the driver guarantees.
void MemoryJudge::keep_unordered_uses(Life& life, uint16_t freeing) {
  std::vector<Use> left;
  const auto look = [&](Use use) {
    if (!order_.ordered(use, freeing)) left.push_back(use);
  };
  look(life.use());
  if (life.more_uses != 0) std::ranges::for_each(lives_.more_uses(life), look);
  lives_.drop_uses(life);
  life.set_use(left.empty() ? Use{} : left.front());
  if (left.size() > 1) lives_.more_uses(life).assign(left.begin() + 1, left.end());
}

void MemoryJudge::on(const format::Sync& event) {
  if (event.kind == format::SyncKind::kCaptureBegin) {
    ++captures_;
    capture_seen_ = true;
  } else if (event.kind == format::SyncKind::kCaptureEnd && captures_ != 0) {
    --captures_;
  }
  order_.sync(event);
  if (order_.epoch() != epoch_) forget_all();
}

void MemoryJudge::on(const format::Loss& event) {
  if (event.reason == format::LossReason::kGraphMemory) graph_memory_ = true;
  // The lost event may have been an allocation, or may have ordered streams.
  if (event.reason == format::LossReason::kQueueFull) forget_all();
}

void MemoryJudge::on(const format::Diagnostic& event) {
  if (event.site == "cupti") edges_ = false;
  if (event.site == format::kCpuMemorySite) forget_all();
}

void MemoryJudge::forget_all() {
  lives_.clear();
  order_.forget();
  epoch_ = order_.epoch();
}

void MemoryJudge::report(MemoryFinding finding, Findings& findings) {
  if (!calls_.empty()) finding.launch_stack = stack_of(finding);
  const uint32_t taken = finding.taker == Taker::kTensor
                             ? finding.slot.value
                             : finding.param | static_cast<uint32_t>(finding.taker) << 16;
  finding.occurrence = ++occurrences_[{finding.kind, finding.kernel, finding.place.scope, taken}];
  if (worth_saying(finding.occurrence)) findings.push_back(std::move(finding));
}

}  // namespace convtrace::judge
