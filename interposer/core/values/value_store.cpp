#include "interposer/core/values/value_store.h"

#include <algorithm>
#include <chrono>

#include "format/base/checksum.h"
#include "format/base/clock.h"

namespace convtrace::engine {
namespace {

using format::ContentId;
using format::LossReason;
using settings::WhenFull;

/// Beyond this number equal values are stored again, so that the table stays bounded.
constexpr size_t kMaxKnown = size_t{1} << 20;

ContentId content_of(const format::TensorStats& event) { return {event.stats.hash, event.bytes}; }

/// A key of the value's place in the program, without the step.
uint64_t place_of(const format::TensorStats& event) {
  const uint64_t words[] = {event.place.scope.value,
                            event.place.call,
                            static_cast<uint64_t>(event.place.phase),
                            event.slot.value,
                            event.op.value,
                            event.kernel.value,
                            static_cast<uint64_t>(event.device.type),
                            event.device.index,
                            static_cast<uint64_t>(event.dtype)};
  return checksum64(std::as_bytes(std::span(words)));
}

}  // namespace

/// Counted in ValueStore::incoming_ from its arming to its destruction.
class ValueStore::Incoming final : public cupti::IncomingValue {
 public:
  Incoming(ValueStore& store, std::shared_ptr<StoredValue> value)
      : store_(store), value_(std::move(value)), kept_(std::make_shared<KeptValue>()) {
    kept_->content = value_->content;
  }

  void arm() noexcept { armed_ = true; }

  ~Incoming() override {
    if (!armed_) return;
    const bool complete = offset_ == value_->content.bytes;
    Wakeup& wakeup = store_.wakeup_;       // the store may be destroyed once nothing is incoming
    std::shared_ptr<const KeptValue> old;  // freed without the lock
    {
      const Lock lock(store_.mutex_);
      if (complete) {
        try {
          old = store_.history_.keep(value_->place, kept_);
        } catch (...) {  // no memory: the next value of this place is stored without a base
        }
      } else {
        store_.release(value_->content.bytes - offset_);
        store_.forget(value_->content);
      }
      --store_.incoming_;
    }
    wakeup.wake();  // settle() may wait for it
  }

  std::span<std::byte> next() noexcept override {
    const uint64_t left = value_->content.bytes - offset_;
    if (left == 0) return {};
    if (job_ == nullptr) prepare(std::min<uint64_t>(left, format::kPartBytes));
    if (job_ == nullptr) return {};
    return {job_->part->bytes.get(), job_->part->size};
  }

  void filled() noexcept override {
    {
      const Lock lock(store_.mutex_);
      if (const auto last = store_.history_.last(value_->place, value_->content.bytes)) {
        job_->base = last->parts[offset_ / format::kPartBytes];
        job_->base_hash = last->content.hash;
      }
    }
    kept_->parts.push_back(job_->part);
    offset_ += job_->part->size;
    store_.compressors_.put(std::move(job_));
    if (store_.compressors_.closed()) store_.drop_parts(LossReason::kExitDeadline);
  }

 private:
  /// Allocates all memory that filled() needs.
  void prepare(uint64_t size) noexcept try {
    kept_->parts.reserve((value_->content.bytes + format::kPartBytes - 1) / format::kPartBytes);
    auto job = std::make_unique<PartJob>();
    job->value = value_;
    job->part = std::make_shared<ValuePart>();
    job->part->bytes = std::make_unique_for_overwrite<std::byte[]>(size);
    job->part->size = static_cast<uint32_t>(size);
    job->offset = offset_;
    job_ = std::move(job);
  } catch (...) {  // no memory at present
  }

  ValueStore& store_;
  std::shared_ptr<StoredValue> value_;
  std::shared_ptr<KeptValue> kept_;
  std::unique_ptr<PartJob> job_;  ///< the part that is being filled
  uint64_t offset_ = 0;
  bool armed_ = false;
};

ValueStore::ValueStore(const Options& options, Wakeup& wakeup, format::EventSink& sink)
    : options_(options),
      max_under_way_(options.memory_bytes / 3),
      wakeup_(wakeup),
      sink_(sink),
      history_(options.memory_bytes - 2 * max_under_way_),
      compressors_(wakeup) {}

ValueStore::~ValueStore() { close(LossReason::kExitDeadline); }

bool ValueStore::has(const format::TensorStats& event) noexcept {
  const Lock lock(mutex_);
  return event.bytes == 0 || known_.contains({event.stats.hash, event.bytes});
}

ValueStore::Begun ValueStore::begin(const format::TensorStats& event) noexcept try {
  auto value = std::make_shared<StoredValue>();
  value->content = content_of(event);
  value->form = format::element_form(event.dtype);
  value->place = place_of(event);
  auto incoming = std::make_unique<Incoming>(*this, value);
  const uint64_t bytes = value->content.bytes;
  const Lock lock(mutex_);
  if (bytes > max_under_way_ || !compressors_.start(options_.threads)) return {};
  if (bytes > max_under_way_ - reserved_) return {.value = nullptr, .later = true};
  if (known_.size() >= kMaxKnown) known_.clear();
  known_.insert({value->content.hash, bytes});
  reserved_ += bytes;
  ++incoming_;
  incoming->arm();
  return {.value = std::move(incoming)};
} catch (...) {
  return {};
}

std::unique_ptr<cupti::IncomingValue> ValueStore::wait_for_room(
    const format::TensorStats& event) noexcept {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until = Clock::now() + std::chrono::nanoseconds(options_.patience_ns);
  Begun begun = begin(event);
  while (begun.later && Clock::now() < until) {  // other values may have taken the free memory
    Lock lock(mutex_);
    const auto may_go_on = [&]() CONVTRACE_REQUIRES(mutex_) {
      return compressors_.closed() || event.bytes <= max_under_way_ - reserved_;
    };
    out_of_patience_ = out_of_patience_ || !room_.wait_until(lock, until, may_go_on);
    if (out_of_patience_) break;
    lock.unlock();
    begun = begin(event);
  }
  return std::move(begun.value);
}

ValueStore::Outcome ValueStore::take(const format::TensorStats& event,
                                     const stats::Layout& layout) noexcept {
  if (has(event)) return Outcome::kStored;
  Begun begun = begin(event);
  if (begun.later && options_.when_full == WhenFull::kBlock) begun.value = wait_for_room(event);
  const std::unique_ptr<cupti::IncomingValue> incoming = std::move(begun.value);
  if (incoming == nullptr) return refused();
  const uint32_t element = format::element_bytes(layout.dtype);
  uint64_t taken = 0;
  for (auto to = incoming->next(); !to.empty(); to = incoming->next()) {
    stats::gather(layout, taken / element, to.size() / element, to.data());
    taken += to.size();
    incoming->filled();
  }
  return taken == event.bytes ? Outcome::kStored : refused();
}

bool ValueStore::refuse() noexcept {
  const bool drop = options_.when_full == WhenFull::kDrop;
  lose(drop ? LossReason::kValueLeftOut : LossReason::kValueNotStored, 1);
  return !drop;
}

Status ValueStore::write(format::TraceWriter& trace, uint64_t max_bytes, uint64_t turn_ns) {
  if (compressors_.closed()) return kOkStatus;
  const uint64_t begin = now_ns();
  while (trace.bytes_written() < max_bytes) {
    if (writing_ == nullptr) writing_ = compressors_.take_finished();
    if (writing_ == nullptr) break;
    if (!writing_->payload.empty()) CONVTRACE_TRY(trace.append_blob(writing_->payload));
    const std::unique_ptr<PartJob> job = std::move(writing_);
    writing_ = std::move(job->next);
    finish(*job);
    if (now_ns() - begin < turn_ns) continue;
    wakeup_.wake();  // perhaps there is more
    break;
  }
  return kOkStatus;
}

/// The job is done: frees its memory and its count.
void ValueStore::finish(const PartJob& job) noexcept {
  compressors_.written();
  const bool failed = job.payload.empty();
  {
    std::shared_ptr<const KeptValue> old;  // freed without the lock
    const Lock lock(mutex_);
    release(job.part->size);
    if (failed) forget(job.value->content);  // so that an equal value is stored later
    if (job.base_was_useless) old = history_.give_up(job.value->place);
  }
  if (failed) lose(LossReason::kValueNotStored, 1);
}

bool ValueStore::nothing_under_way() {
  const Lock lock(mutex_);
  return compressors_.closed() || (incoming_ == 0 && compressors_.all_compressed());
}

bool ValueStore::settle(uint64_t timeout_ns) {
  const uint64_t begin = now_ns();
  while (!nothing_under_way()) {
    const uint64_t waited = now_ns() - begin;
    if (waited >= timeout_ns) return false;
    wakeup_.wait(timeout_ns - waited);
  }
  return true;
}

void ValueStore::close(LossReason reason) noexcept {
  if (!compressors_.close()) return;
  drop_parts(reason);
  LockFreeQueue<PartJob>::free_list(std::move(writing_));
  const Lock lock(mutex_);
  room_.notify_all();
}

void ValueStore::drop_parts(LossReason reason) noexcept { lose(reason, compressors_.drop()); }

void ValueStore::lose(LossReason reason, uint64_t count) noexcept {
  if (count == 0) return;
  format::Loss loss;
  loss.header.step = format::kNoStep;
  loss.reason = reason;
  loss.count = count;
  sink_.emit(loss);
}

void ValueStore::release(uint64_t bytes) noexcept {
  reserved_ -= bytes;
  out_of_patience_ = false;
  room_.notify_all();
}

void ValueStore::forget(const ContentId& content) noexcept {
  known_.erase({content.hash, content.bytes});
}

}  // namespace convtrace::engine
