#include "cupti/values/stream_uses.h"

#include <cuda.h>

#include <algorithm>
#include <bit>

#include "cupti/driver/mutation.h"

namespace convtrace::cupti {
namespace {

// The macros cast to pointers, so they are no constants; a global variable would need a
// constructor.
uint64_t legacy_handle() noexcept { return std::bit_cast<uint64_t>(CU_STREAM_LEGACY); }
uint64_t per_thread_handle() noexcept { return std::bit_cast<uint64_t>(CU_STREAM_PER_THREAD); }

uint32_t this_thread_number() noexcept {
  static std::atomic<uint32_t> last{0};
  thread_local const uint32_t number = ++last;
  return number;
}

}  // namespace

/// The handle of the per-thread default stream means another stream in each thread and on each
/// device.
uint32_t StreamUses::thread_of(Stream stream) noexcept {
  return stream.handle == per_thread_handle() ? this_thread_number() << 8 | stream.device : 0;
}

/// The legacy stream of the first device waits for blocking streams, which the order knows. That of
/// another device is treated as a stream that waits for none.
uint64_t StreamUses::handle_of(Stream stream) noexcept {
  const bool legacy = stream.handle == 0 || stream.handle == legacy_handle();
  if (!legacy) return stream.handle;
  return stream.device == 0 ? 0 : uint64_t{stream.device} << 8;
}

/// Never 0.
uint64_t StreamUses::key_of(Stream stream) noexcept {
  return (handle_of(stream) ^ uint64_t{thread_of(stream)} << 32) + 1;
}

uint16_t StreamUses::slot_of(Stream stream) {
  const auto same = [&](Stream other) {
    return other.handle == stream.handle && other.device == stream.device;
  };
  if (std::ranges::none_of(streams_, same)) streams_.push_back(stream);
  return order_.slot_of(handle_of(stream), thread_of(stream));
}

/// @return whether no other stream was ever used: then all work is in order and nothing needs to be
/// recorded.
bool StreamUses::is_alone(Stream stream) noexcept {
  if (several_.load(std::memory_order_acquire)) return false;
  const uint64_t key = key_of(stream);
  uint64_t first = first_key_.load(std::memory_order_acquire);
  if (first == key) return true;
  const Lock lock(mutex_);
  first = first_key_.load(std::memory_order_relaxed);
  if (first == 0) {
    first_ = stream;
    first_key_.store(key, std::memory_order_release);
    if (thread_of(stream) == 0) only_.store(exact_key(stream), std::memory_order_release);
  } else if (first != key && !several_.load(std::memory_order_relaxed)) {
    begin_several();
  }
  return first == 0 || first == key;
}

/// All earlier uses were by the first stream.
void StreamUses::begin_several() {
  unknown_up_to_ = addresses_.last_generation();
  unknown_ = order_.work(slot_of(first_));
  epoch_ = order_.epoch();
  only_.store(0, std::memory_order_release);
  several_.store(true, std::memory_order_release);
}

/// Removes reads that are not ordered before the use, since they may have seen bytes that it wrote.
void StreamUses::note(judge::Use use, uint64_t generation) {
  uses_.insert_or_assign(generation, use);
  if (reads_.empty()) return;
  auto [read, end] = reads_.equal_range(generation);
  while (read != end)
    read = order_.ordered(read->second.use, use.stream) ? std::next(read) : reads_.erase(read);
}

OwnRead StreamUses::begin_read(Stream stream, uint64_t generation) {
  const Lock lock(mutex_);
  make_room();
  if (reads_.size() >= kMostUses) reads_.clear();  // never ended, since contexts ended
  reads_.insert({generation, {++last_read_, order_.work(slot_of(stream))}});
  return {this, generation, last_read_};
}

bool StreamUses::end_read(const OwnRead& read) noexcept {
  const Lock lock(mutex_);
  const auto [begin, end] = reads_.equal_range(read.generation);
  const auto found = std::find_if(
      begin, end, [&](const auto& known) { return known.second.number == read.number; });
  if (found == end) return MUTATION(overwritten_reads);
  reads_.erase(found);
  return true;
}

/// Forgets uses that are over. If that is not enough, forgets which use was last.
void StreamUses::make_room() {
  if (order_.epoch() != epoch_) {
    uses_.clear();
    reads_.clear();
  }
  if (order_.epoch() == epoch_ && uses_.size() < kMostUses) return;
  std::erase_if(uses_, [this](const auto& use)
                           CONVTRACE_REQUIRES(mutex_) { return order_.done(use.second); });
  if (order_.epoch() == epoch_ && uses_.size() < kMostUses / 2) return;
  epoch_ = order_.epoch();
  uses_.clear();
  unknown_up_to_ = addresses_.last_generation();
  unknown_.reset();
}

void StreamUses::note_launch(Stream stream, std::span<const format::Operand> operands) {
  if (is_alone(stream)) return;
  const Lock lock(mutex_);
  make_room();
  const judge::Use use = order_.work(slot_of(stream));
  for (const format::Operand& operand : operands) note(use, operand.generation);
}

void StreamUses::wrote(Stream stream, uint64_t address) {
  const auto range = addresses_.find(address);
  if (!range || range->freed) return;
  const bool on_host = range->source == format::MemorySource::kHost;
  if (is_alone(stream) && !on_host) return;
  if (on_host) copies_to_host_.store(true, std::memory_order_release);
  const Lock lock(mutex_);
  make_room();
  note(order_.work(slot_of(stream)), range->generation);
}

void StreamUses::order(const format::Sync& told) {
  using Kind = format::SyncKind;
  // A value in memory or a function of the host, whose end is not reported.
  if (told.event == 0 && (told.kind == Kind::kStreamWait || told.kind == Kind::kEventDone)) return;
  const Lock lock(mutex_);
  const auto take = [&](Kind kind, Stream stream) CONVTRACE_REQUIRES(mutex_) {
    format::Sync event = told;
    event.kind = kind;
    event.stream = handle_of(stream);
    event.header.thread = thread_of(stream);
    order_.sync(event);
  };
  if (told.kind == Kind::kStreamDestroy)
    std::erase_if(streams_, [&](Stream known) { return known.handle == told.stream; });
  if (told.kind != Kind::kContextDone) return take(told.kind, {told.stream, told.device});
  for (const Stream& stream : streams_)
    if (stream.device == told.device) take(Kind::kStreamDone, stream);
}

bool StreamUses::is_settled(Stream stream, uint64_t generation) {
  if (is_alone(stream) || MUTATION(other_streams_ignored)) return true;
  const Lock lock(mutex_);
  make_room();
  const uint16_t slot = slot_of(stream);
  (void)order_.work(slot);  // adds edges that need no call
  const auto use = uses_.find(generation);
  if (use != uses_.end()) return order_.ordered(use->second, slot);
  if (generation == 0) return false;
  return generation > unknown_up_to_ || (unknown_ && order_.ordered(*unknown_, slot));
}

bool StreamUses::is_settled_on_host(uint64_t generation) {
  if (!copies_to_host_.load(std::memory_order_acquire) || MUTATION(copies_ignored)) return true;
  const Lock lock(mutex_);
  const auto use = uses_.find(generation);
  return use == uses_.end() || (order_.epoch() == epoch_ && order_.done(use->second));
}

}  // namespace convtrace::cupti
