#include "cupti/result_ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "cupti/poisoned_samples.h"
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
  if (memory_ != nullptr) munmap(memory_, bytes());
}

std::span<std::byte> ResultRing::allocate(uint32_t samples, stats::Variant variant) noexcept {
  constexpr size_t kLargest = 16;  // bytes of an element
  if (samples > stats::kSampleCount) slot_bytes_ += samples * kLargest;
  while (bytes() > kMostBytes) slots_ /= 2;
  samples_ = samples;
  variant_ = variant;
  entries_.reset(new (std::nothrow) Entry[slots_]);
  before_.reset(new (std::nothrow) Before[slots_]);
  if (entries_ == nullptr || before_ == nullptr) return {};
  void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  // A forked child must not share pages with a device that writes to them.
  madvise(memory, bytes(), MADV_DONTFORK);
  memory_ = static_cast<std::byte*>(memory);
  return {memory_, bytes()};
}

uint32_t ResultRing::leading_count(const Entry& entry) const noexcept {
  const DeviceRequest& request = entry.request;
  // A rule that came since may ask for more than there is memory for.
  const uint64_t wanted = std::min(request.samples, samples_);
  if (wanted <= stats::kSampleCount || request.event.capture == format::Capture::kHash) return 0;
  const uint64_t parts =
      format::element_bytes(request.view.dtype) / format::element_bytes(entry.layout.dtype);
  return static_cast<uint32_t>(std::min(wanted * parts, entry.layout.count));
}

std::optional<uint64_t> ResultRing::claim(std::span<const DeviceRequest> batch) noexcept {
  const uint64_t first = head_.load(std::memory_order_relaxed);
  const uint64_t used = first - tail_.load(std::memory_order_acquire);
  if (batch.size() > slots_ - used) return std::nullopt;
  for (size_t i = 0; i < batch.size(); ++i) {
    Entry& entry = entries_[place(first + i)];
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
  const Entry& entry = entries_[place(ticket)];
  return entry.fate.load(std::memory_order_relaxed) == Fate::kOnDevice ? &entry.layout : nullptr;
}

format::Capture ResultRing::capture(uint64_t ticket) const noexcept {
  return entries_[place(ticket)].request.event.capture;
}

bool ResultRing::add_to(stats::BatchBuilder& builder, uint64_t ticket) const noexcept {
  const Entry& entry = entries_[place(ticket)];
  return builder.add(entry.layout, entry.request.event.capture,
                     device_address_ + place(ticket) * slot_bytes_, sequence(ticket),
                     leading_count(entry));
}

void ResultRing::drop(uint64_t ticket) noexcept {
  entries_[place(ticket)].fate.store(Fate::kDropped, std::memory_order_release);
}

void ResultRing::collect(format::EventSink& sink, DeviceValues& values, uint64_t& room) noexcept {
  const stats::DefaultFloatingPoint scope;  // at exit this is the program's thread
  uint64_t ticket = tail_.load(std::memory_order_relaxed);
  while (room > 0 && ticket != head_.load(std::memory_order_acquire) &&
         deliver(ticket, sink, values)) {
    --room;
    tail_.store(++ticket, std::memory_order_release);
  }
}

bool ResultRing::judge(const Look& look, format::TensorStats& event) noexcept {
  Before& before = before_[place(look.id)];
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

void ResultRing::emit(const Entry& entry, const stats::StatsResult& result,
                      const stats::ResultSlot* slot, DeviceValues& values,
                      format::EventSink& sink) noexcept {
  format::TensorStats event = entry.request.event;
  if (event.has_shape) event.shape = stats::shape_of(entry.request.view);
  event.stats = result.stats;
  event.variant = result.variant;
  if (entry.request.look.learner != nullptr && !judge(entry.request.look, event)) {
    if (entry.staged.bytes > 0) values.give_back(entry.staged);
    return;
  }
  event.range_hashes = {result.range_hashes, result.range_count};
  if (entry.request.samples != 0) event.samples = {result.samples, result.sample_bytes};
  if (event.op) event.poisoned = count_poisoned(event.samples, event.dtype);
  if (slot != nullptr) {
    event.leading = {reinterpret_cast<const std::byte*>(slot + 1),
                     leading_count(entry) * size_t{format::element_bytes(entry.layout.dtype)}};
  }
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
bool ResultRing::deliver(uint64_t ticket, format::EventSink& sink, DeviceValues& values) noexcept {
  const Entry& entry = entries_[place(ticket)];
  const DeviceRequest& request = entry.request;
  stats::StatsResult result;
  stats::ResultSlot* slot = nullptr;
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
      slot = reinterpret_cast<stats::ResultSlot*>(memory_ + place(ticket) * slot_bytes_);
      const std::atomic_ref<uint64_t> word(slot->sequence);
      if (word.load(std::memory_order_acquire) != sequence(ticket)) return false;
      result = stats::read_slot(*slot, entry.layout.count, request.view.dtype,
                                request.event.capture, variant_);
      break;
    }
  }
  emit(entry, result, slot, values, sink);
  return true;
}

}  // namespace convtrace::cupti
