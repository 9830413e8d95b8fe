#include "cupti/result_ring.h"

#include <sys/mman.h>

#include <new>

#include "cupti/stats/batch.h"
#include "cupti/stats/host_fp.h"

namespace convtrace::cupti {
namespace {

void count(format::LossReason reason, const format::TensorStats& event, format::EventSink& sink) {
  format::Loss loss;
  loss.header.step = event.header.step;
  loss.reason = reason;
  loss.count = 1;
  sink.emit(loss);
}

}  // namespace

ResultRing::~ResultRing() {
  if (slots_ != nullptr) munmap(slots_, kBytes);
}

void* ResultRing::allocate() noexcept {
  entries_.reset(new (std::nothrow) Entry[kSlots]);
  before_.reset(new (std::nothrow) Before[kSlots]);
  if (entries_ == nullptr || before_ == nullptr) return nullptr;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // A forked child must not share pages with a device that writes to them.
  madvise(memory, kBytes, MADV_DONTFORK);
  slots_ = static_cast<stats::ResultSlot*>(memory);
  return memory;
}

std::optional<uint64_t> ResultRing::claim(std::span<const DeviceRequest> batch) noexcept {
  const uint64_t first = head_.load(std::memory_order_relaxed);
  const uint64_t used = first - tail_.load(std::memory_order_acquire);
  if (batch.size() > kSlots - used) return std::nullopt;
  for (size_t i = 0; i < batch.size(); ++i) {
    Entry& entry = entries_[(first + i) % kSlots];
    entry.request = batch[i];
    entry.staged = {};
    Fate fate = Fate::kOnDevice;
    if (!stats::flatten(entry.request.view, entry.layout).ok()) {
      fate = Fate::kNoView;
    } else if (entry.layout.count == 0) {
      fate = Fate::kEmpty;
    }
    entry.fate.store(fate, std::memory_order_relaxed);
  }
  head_.store(first + batch.size(), std::memory_order_release);
  return first;
}

const stats::Layout* ResultRing::layout(uint64_t ticket) const noexcept {
  const Entry& entry = entries_[ticket % kSlots];
  return entry.fate.load(std::memory_order_relaxed) == Fate::kOnDevice ? &entry.layout : nullptr;
}

format::Capture ResultRing::capture(uint64_t ticket) const noexcept {
  return entries_[ticket % kSlots].request.event.capture;
}

void ResultRing::drop(uint64_t ticket) noexcept {
  entries_[ticket % kSlots].fate.store(Fate::kDropped, std::memory_order_release);
}

void ResultRing::collect(format::EventSink& sink, bool keep_samples, DeviceValues& values,
                         uint64_t& room) noexcept {
  const stats::DefaultFloatingPoint scope;  // at exit this is the program's thread
  uint64_t ticket = tail_.load(std::memory_order_relaxed);
  while (room > 0 && ticket != head_.load(std::memory_order_acquire) &&
         deliver(ticket, sink, keep_samples, values)) {
    --room;
    tail_.store(++ticket, std::memory_order_release);
  }
}

bool ResultRing::judge(const Look& look, format::TensorStats& event) noexcept {
  Before& before = before_[look.id % kSlots];
  if (look.before) {
    before = {look.id, event.stats.hash};
    return false;
  }
  const bool compared = before.look == look.id;
  const bool changed = compared && before.hash != event.stats.hash;
  const OutputLearner::Evidence known =
      compared ? look.learner->add(look.word, changed) : look.learner->evidence(look.word);
  event.looks = known.looks;
  event.changes = known.changes;
  return changed || known.is_output();
}

void ResultRing::emit(const Entry& entry, const stats::StatsResult& result, bool keep_samples,
                      DeviceValues& values, format::EventSink& sink) noexcept {
  format::TensorStats event = entry.request.event;
  if (event.has_shape) event.shape = stats::shape_of(entry.request.view);
  event.stats = result.stats;
  event.variant = result.variant;
  if (entry.request.look.learner != nullptr && !judge(entry.request.look, event)) {
    if (entry.staged.bytes > 0) values.give_back(entry.staged);
    return;
  }
  event.range_hashes = {result.range_hashes, result.range_count};
  if (keep_samples) event.samples = {result.samples, result.sample_bytes};
  if (entry.staged.bytes > 0) {
    values.take(event, entry.staged);
  } else if (event.capture == format::Capture::kSnapshot && event.stats.count > 0) {
    // Of a graph's replay: nothing was copied.
    if (!values.refuse()) return;
    event.capture = format::Capture::kStats;
  }
  sink.emit(event);
}

/// @return false if the device is not done with it.
bool ResultRing::deliver(uint64_t ticket, format::EventSink& sink, bool keep_samples,
                         DeviceValues& values) noexcept {
  const Entry& entry = entries_[ticket % kSlots];
  const DeviceRequest& request = entry.request;
  stats::StatsResult result;
  switch (entry.fate.load(std::memory_order_acquire)) {
    case Fate::kDropped:
      return true;
    case Fate::kNoView:
      count(format::LossReason::kTensorKind, request.event, sink);
      return true;
    case Fate::kEmpty:
      if (!stats::compute_on_cpu(request.view, request.event.capture, result).ok()) {
        count(format::LossReason::kTensorKind, request.event, sink);
        return true;
      }
      break;
    case Fate::kOnDevice: {
      stats::ResultSlot& slot = slots_[ticket % kSlots];
      const std::atomic_ref<uint64_t> word(slot.sequence);
      if (word.load(std::memory_order_acquire) != sequence(ticket)) return false;
      result =
          stats::read_slot(slot, entry.layout.count, request.view.dtype, request.event.capture);
      break;
    }
  }
  emit(entry, result, keep_samples, values, sink);
  return true;
}

}  // namespace convtrace::cupti
