#include "cupti/values/result_ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "cupti/driver/mutation.h"
#include "cupti/kernels/output_learner.h"
#include "cupti/memory/quarantine.h"
#include "cupti/stats/cpu/host_fp.h"
#include "cupti/values/stream_uses.h"

namespace convtrace::cupti {
namespace {

void count(format::LossReason reason, const format::TensorStats& event, format::EventSink& sink) {
  format::Loss loss;
  loss.header.step = event.header.step;
  loss.reason = reason;
  loss.count = 1;
  sink.emit(loss);
}

bool is_same(const stats::Layout& a, const stats::Layout& b) {
  return a.data == b.data && a.dtype == b.dtype && a.count == b.count && a.rank == b.rank &&
         std::equal(a.shape, a.shape + a.rank, b.shape) &&
         std::equal(a.strides, a.strides + a.rank, b.strides);
}

/// @param samples  raw elements. @return how many still hold the pattern of CONVTRACE_POISON, which no
/// kernel counts. Only floats count: the pattern is a NaN that no computation produces, while an
/// integer may have it by chance.
uint64_t count_poisoned(std::span<const std::byte> samples, format::DType dtype) noexcept {
  using format::DType;
  constexpr uint64_t kPattern = uint64_t{kFreshPattern} << 32 | kFreshPattern;
  const bool halves = dtype == DType::kF16 || dtype == DType::kBF16;
  if (!halves && dtype != DType::kF32 && dtype != DType::kF64) return 0;
  uint64_t found = 0;
  const size_t bytes = format::element_bytes(dtype);
  for (; samples.size() >= bytes; samples = samples.subspan(bytes)) {
    const auto is = [&](const void* pattern) {
      return std::memcmp(samples.data(), pattern, bytes) == 0;
    };
    found += is(&kPattern) || (halves && is(reinterpret_cast<const std::byte*>(&kPattern) + bytes));
  }
  return found;
}

}  // namespace

ResultRing::~ResultRing() {
  if (memory_ != nullptr && !borrowed_) munmap(memory_, bytes());
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
  try {
    free_.allocate(slots_);
    for (SlotQueue& lane : lanes_) lane.allocate(slots_);
  } catch (...) {
    return {};
  }
  for (uint32_t slot = 0; slot < slots_; ++slot) free_.push(slot);
  void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  // A device writes to these pages, so a forked child must not share them.
  madvise(memory, bytes(), MADV_DONTFORK);
  memory_ = static_cast<std::byte*>(memory);
  return {memory_, bytes()};
}

void ResultRing::borrow(void* memory) noexcept {
  munmap(memory_, bytes());
  memory_ = static_cast<std::byte*>(memory);
  borrowed_ = true;
  std::memset(memory_, 0, bytes());
}

uint64_t ResultRing::under_way() const noexcept {
  uint64_t sum = 0;
  for (const SlotQueue& lane : lanes_) sum += memory_ == nullptr ? 0 : lane.size();
  return sum;
}

uint64_t ResultRing::close() noexcept {
  const uint64_t lost = under_way();
  memory_ = nullptr;
  return lost;
}

uint32_t ResultRing::leading_count(const Entry& entry) const noexcept {
  const DeviceRequest& request = entry.request;
  // A rule that was added later may ask for more than the memory has room for.
  const uint64_t wanted = std::min(request.samples, samples_);
  if (wanted <= stats::kSampleCount || request.event.capture == format::Capture::kHash) return 0;
  const uint64_t values = wanted * format::values_in_element(request.view.dtype);
  return static_cast<uint32_t>(std::min(values, entry.layout.values()));
}

void ResultRing::find_result(Ticket ticket) noexcept {
  Entry& wanted = entry(ticket);
  if (!is_kept(wanted)) return;
  const format::Capture capture = wanted.request.event.capture;
  const auto has_it = [&](const Read& read) {
    if (read.moment != wanted.request.moment || ticket.position - read.position > kKept)
      return false;
    const Entry& known = entries_[read.slot];
    // A batch of another thread that is not launched yet may come behind work that the clock will
    // show. A value of this batch that is to be copied may be dropped with its statistics.
    if (known.fate.load(std::memory_order_acquire) != Fate::kOnDevice &&
        (known.sequence != wanted.sequence ||
         known.request.event.capture == format::Capture::kSnapshot))
      return false;
    const bool has_statistics = known.request.event.capture != format::Capture::kHash;
    return (has_statistics || capture == format::Capture::kHash) &&
           leading_count(wanted) <= leading_count(known) && is_same(known.layout, wanted.layout);
  };
  auto& reads = reads_[ticket.lane];
  const auto found = std::ranges::find_if(reads, has_it);
  if (capture != format::Capture::kSnapshot && found != reads.end()) {
    wanted.slot = found->slot;
    wanted.plan = Fate::kSame;
  } else {
    reads[ticket.position % kKept] = {wanted.request.moment, ticket.position, wanted.slot};
  }
}

std::optional<ResultRing::Claim> ResultRing::claim(std::span<const DeviceRequest> batch,
                                                   uint32_t lane) noexcept {
  const uint64_t room = free_.size();
  (void)launches_under_way();  // looks at what came out before its slots are used again
  if (batch.size() > room) return std::nullopt;
  SlotQueue& queue = lanes_[lane];
  const Ticket first{lane, queue.end()};
  const uint64_t sequence = claims_ + 1;
  for (const DeviceRequest& request : batch) {
    const uint32_t slot = free_.at(free_.begin());
    free_.pop();
    Entry& entry = entries_[slot];
    entry.request = request;
    entry.staged = {};
    entry.number = claims_++;
    entry.sequence = sequence;
    entry.slot = slot;
    entry.launches = 0;
    entry.plan = Fate::kOnDevice;
    if (!stats::flatten(entry.request.view, entry.layout).ok()) {
      entry.plan = Fate::kNoView;
    } else if (entry.layout.count == 0) {
      entry.plan = Fate::kEmpty;
    }
    entry.fate.store(Fate::kPending, std::memory_order_relaxed);
    queue.push(slot);
    if (entry.plan == Fate::kOnDevice) find_result({lane, queue.end() - 1});
  }
  return Claim{first, sequence};
}

const stats::Layout* ResultRing::layout(Ticket ticket) const noexcept {
  const Entry& known = entry(ticket);
  return known.plan == Fate::kOnDevice ? &known.layout : nullptr;
}

format::Capture ResultRing::capture(Ticket ticket) const noexcept {
  return entry(ticket).request.event.capture;
}

bool ResultRing::add_to(stats::BatchBuilder& builder, Ticket ticket) const noexcept {
  const Entry& known = entry(ticket);
  const uint64_t slot = lanes_[ticket.lane].at(ticket.position);
  return builder.add(known.layout, known.request.event.capture,
                     static_cast<uint32_t>(slot * slot_bytes_), known.sequence,
                     leading_count(known));
}

void ResultRing::drop(Ticket ticket) noexcept { entry(ticket).plan = Fate::kDropped; }

bool ResultRing::is_complete(uint32_t slot) const noexcept {
  auto& result = *reinterpret_cast<stats::ResultSlot*>(memory_ + slot * slot_bytes_);
  return MUTATION(slot_read_early) ||
         std::atomic_ref<uint64_t>(result.sequence).load(std::memory_order_acquire) ==
             entries_[slot].sequence;
}

void ResultRing::launched(Ticket first, size_t count, uint32_t launches) noexcept {
  entry(first + (count - 1)).launches = launches;
  launches_[first.lane].under_way += launches;
  for (size_t i = 0; i < count; ++i) {
    Entry& known = entry(first + i);
    known.fate.store(known.plan, std::memory_order_release);
  }
}

void ResultRing::lose(Ticket first) noexcept {
  for (; first.position < lanes_[first.lane].end(); ++first) {
    if (first.position < lanes_[first.lane].begin()) continue;  // out: nothing to wait for
    std::atomic<Fate>& fate = entry(first).fate;
    for (Fate expected : {Fate::kOnDevice, Fate::kSame})
      fate.compare_exchange_strong(expected, Fate::kLost);
  }
}

void ResultRing::launches_more(uint32_t lane, uint32_t launches) noexcept {
  entry({lane, lanes_[lane].end() - 1}).launches += launches;
  launches_[lane].under_way += launches;
}

uint32_t ResultRing::launches_under_way() noexcept {
  uint32_t sum = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    Launches& known = launches_[lane];
    const SlotQueue& queue = lanes_[lane];
    for (; known.seen < queue.end(); ++known.seen) {
      const uint32_t slot = queue.at(known.seen);
      const bool out = known.seen < queue.begin();
      const Fate fate = entries_[slot].fate.load(std::memory_order_relaxed);
      const bool done = fate == Fate::kOnDevice ? is_complete(slot) : fate != Fate::kPending;
      if (!out && !done) break;
      known.under_way -= entries_[slot].launches;
    }
    sum += known.under_way;
  }
  return sum;
}

/// @return the lane with the oldest claim that is not out; null if there is none.
SlotQueue* ResultRing::oldest(const bool (&stalls)[kLanes]) noexcept {
  SlotQueue* found = nullptr;
  const auto number = [&](const SlotQueue& lane) { return entries_[lane.at(lane.begin())].number; };
  for (uint32_t i = 0; i < kLanes; ++i) {
    SlotQueue& lane = lanes_[i];
    if (stalls[i] || lane.size() == 0) continue;
    if (found == nullptr || number(lane) < number(*found)) found = &lane;
  }
  return found;
}

void ResultRing::collect(format::EventSink& sink, DeviceValues& values, uint64_t& room) noexcept {
  const stats::DefaultFloatingPoint scope;  // at exit this runs on a thread of the program
  bool stalls[kLanes] = {};
  while (room > 0 && memory_ != nullptr) {
    SlotQueue* const lane = oldest(stalls);
    if (lane == nullptr) return;
    const uint32_t slot = lane->at(lane->begin());
    if (!deliver(slot, sink, values)) {
      if (free_.size() >= slots_ / 2 && !MUTATION(results_as_they_come)) return;
      stalls[lane - lanes_] = true;
      continue;
    }
    --room;
    std::optional<uint32_t> unused = slot;
    if (is_kept(entries_[slot])) std::swap(unused, kept_[lane - lanes_][lane->begin() % kKept]);
    lane->pop();
    if (unused) free_.push(*unused);
  }
}

bool ResultRing::judge(const Probe& probe, format::TensorStats& event) noexcept {
  Before& before = before_[probe.id % slots_];
  if (probe.before) {
    before = {probe.id, event.stats.hash};
    return false;
  }
  const bool compared = before.probe == probe.id;
  const bool changed = compared && before.hash != event.stats.hash;
  const OutputLearner::Evidence known =
      compared ? probe.learner->add(probe.word, changed) : probe.learner->evidence(probe.word);
  event.looks = known.probes;
  event.changes = known.changes;
  return changed || known.is_output();
}

void ResultRing::emit(const Entry& entry, const stats::StatsResult& result,
                      const stats::ResultSlot* slot, DeviceValues& values,
                      format::EventSink& sink) noexcept {
  format::TensorStats event = entry.request.event;
  if (event.has_shape) event.shape = stats::shape_of(entry.request.view);
  stats::describe(event, result, entry.request.samples != 0);
  const OwnRead& read = entry.request.read;
  const bool spoilt = read.uses != nullptr && !read.uses->end_read(read);
  if (spoilt) count(format::LossReason::kStreamUnsafe, event, sink);
  if (spoilt || (entry.request.probe.learner != nullptr && !judge(entry.request.probe, event))) {
    if (entry.staged.bytes > 0) values.give_back(entry.staged);
    return;
  }
  if (event.op) event.poisoned = count_poisoned(event.samples, event.dtype);
  if (slot != nullptr) {
    event.leading = {reinterpret_cast<const std::byte*>(slot + 1),
                     leading_count(entry) * size_t{format::element_bytes(entry.layout.dtype)}};
  }
  if (entry.staged.bytes > 0) values.take(event, entry.staged);
  sink.emit(event);
}

/// @return false if the device has not finished it.
bool ResultRing::deliver(uint32_t index, format::EventSink& sink, DeviceValues& values) noexcept {
  const Entry& entry = entries_[index];
  const DeviceRequest& request = entry.request;
  stats::StatsResult result;
  stats::ResultSlot* slot = nullptr;
  switch (entry.fate.load(std::memory_order_acquire)) {
    case Fate::kPending: return false;
    case Fate::kDropped: return true;
    case Fate::kLost: count(format::LossReason::kGpuWorkOff, request.event, sink); return true;
    case Fate::kNoView: count(format::LossReason::kTensorKind, request.event, sink); return true;
    case Fate::kEmpty:
      if (!stats::compute_on_cpu(request.view, request.event.capture, result).ok()) {
        count(format::LossReason::kTensorKind, request.event, sink);
        return true;
      }
      break;
    case Fate::kOnDevice:
      if (!is_complete(index)) return false;
      [[fallthrough]];
    case Fate::kSame:  // the other ticket is out by now
      slot = reinterpret_cast<stats::ResultSlot*>(memory_ + entry.slot * slot_bytes_);
      result = stats::read_slot(*slot, entry.layout.count, request.view.dtype,
                                request.event.capture, variant_);
      break;
  }
  emit(entry, result, slot, values, sink);
  return true;
}

}  // namespace convtrace::cupti
