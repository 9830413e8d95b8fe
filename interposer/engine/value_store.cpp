#include "interposer/engine/value_store.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "format/base/checksum.h"
#include "format/base/quiet_thread.h"
#include "format/snapshot/part_encoder.h"
#include "interposer/engine/clock.h"

namespace convtrace::engine {
namespace {

using format::ContentId;
using format::LossReason;
using settings::WhenFull;

/// Beyond it values are stored again rather than remembered for ever.
constexpr size_t kMaxKnown = size_t{1} << 20;
constexpr int kNiceness = 10;

ContentId content_of(const format::TensorStats& event) { return {event.stats.hash, event.bytes}; }

/// Where in the program a value belongs, whatever the step.
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

/// Once armed, counted in ValueStore::incoming_ for as long as it lives.
class ValueStore::Incoming final : public cupti::IncomingValue {
 public:
  Incoming(ValueStore& store, std::shared_ptr<Value> value)
      : store_(store), value_(std::move(value)), kept_(std::make_shared<KeptValue>()) {
    kept_->content = value_->content;
  }

  void arm() noexcept { armed_ = true; }

  ~Incoming() override {
    if (!armed_) return;
    const bool complete = offset_ == value_->content.bytes;
    std::shared_ptr<const KeptValue> old;  // freed without the lock
    const std::lock_guard lock(store_.mutex_);
    if (complete) {
      try {
        old = store_.history_.keep(value_->place, kept_);
      } catch (...) {  // no memory: the next value of this place is stored as it is
      }
    } else {
      store_.release(value_->content.bytes - offset_);
      store_.forget(value_->content);
    }
    --store_.incoming_;
    store_.settled_.notify_all();
  }

  std::span<std::byte> next() noexcept override {
    const uint64_t left = value_->content.bytes - offset_;
    if (left == 0) return {};
    if (job_.empty()) prepare(std::min<uint64_t>(left, format::kPartBytes));
    if (job_.empty()) return {};
    const ValuePart& part = *job_.front().part;
    return {part.bytes.get(), part.size};
  }

  void filled() noexcept override {
    const std::lock_guard lock(store_.mutex_);
    kept_->parts.push_back(job_.front().part);
    offset_ += job_.front().part->size;
    store_.jobs_.splice(store_.jobs_.end(), job_);
    store_.work_.notify_one();
  }

 private:
  /// Gets all memory that filled() needs.
  void prepare(uint64_t size) noexcept try {
    kept_->parts.reserve((value_->content.bytes + format::kPartBytes - 1) / format::kPartBytes);
    auto part = std::make_shared<ValuePart>();
    part->bytes = std::make_unique_for_overwrite<std::byte[]>(size);
    part->size = static_cast<uint32_t>(size);
    job_.push_back({value_, std::move(part), offset_});
  } catch (...) {  // no memory now
  }

  ValueStore& store_;
  std::shared_ptr<Value> value_;
  std::shared_ptr<KeptValue> kept_;
  std::list<Job> job_;  ///< of the part that is being filled: one at most
  uint64_t offset_ = 0;
  bool armed_ = false;
};

ValueStore::ValueStore(const Options& options, Doorbell& doorbell, format::EventSink& sink)
    : options_(options),
      max_under_way_(options.memory_bytes / 2),
      doorbell_(doorbell),
      sink_(sink),
      history_(options.memory_bytes - max_under_way_) {}

ValueStore::~ValueStore() {
  close(LossReason::kExitDeadline);
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
}

bool ValueStore::has(const format::TensorStats& event) noexcept {
  const std::lock_guard lock(mutex_);
  return event.bytes == 0 || known_.contains({event.stats.hash, event.bytes});
}

ValueStore::Begun ValueStore::begin(const format::TensorStats& event) noexcept try {
  auto value = std::make_shared<Value>();
  value->content = content_of(event);
  value->form = format::element_form(event.dtype);
  value->place = place_of(event);
  auto incoming = std::make_unique<Incoming>(*this, value);
  const uint64_t bytes = value->content.bytes;
  const std::lock_guard lock(mutex_);
  if (closed_ || bytes > max_under_way_ || !start_threads()) return {};
  if (bytes > max_under_way_ - reserved_) return {.value = nullptr, .later = true};
  if (known_.size() >= kMaxKnown) known_.clear();
  known_.insert({value->content.hash, bytes});
  value->base = history_.last(value->place, bytes);
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
  while (begun.later && Clock::now() < until) {  // others may take the room that there was
    std::unique_lock lock(mutex_);
    const bool waited = !out_of_patience_ && room_.wait_until(lock, until, [&] {
      return closed_ || event.bytes <= max_under_way_ - reserved_;
    });
    out_of_patience_ = !waited;
    if (!waited) break;
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

bool ValueStore::start_threads() {
  while (threads_.size() < options_.threads) {
    pthread_t thread{};
    threads_.reserve(options_.threads);
    if (!start_quiet_thread(thread, &ValueStore::main, this)) break;
    threads_.push_back(thread);
  }
  return !threads_.empty();
}

void* ValueStore::main(void* self) noexcept {
  pthread_setname_np(pthread_self(), "convtrace-zip");
  // The program's own threads come first; on Linux this is of the calling thread alone.
  setpriority(PRIO_PROCESS, 0, kNiceness);
  static_cast<ValueStore*>(self)->work();
  return nullptr;
}

void ValueStore::work() {
  format::PartEncoder encoder;
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (jobs_.empty()) {
      work_.wait(lock);
      continue;
    }
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    ++busy_;
    lock.unlock();
    const uint64_t reserved = job.part->size;
    const ContentId content = job.value->content;
    std::optional<Finished> finished = compress(encoder, job);
    job = {};  // memory that nobody compares with goes now
    lock.lock();
    --busy_;
    if (finished && !closed_) {
      finished_.push_back(std::move(*finished));
      doorbell_.ring();
    } else {
      release(reserved);
      forget(content);  // an equal value is stored after all
      lose(closed_ ? LossReason::kExitDeadline : LossReason::kValueNotStored, 1);
    }
    settled_.notify_all();
  }
}

std::optional<ValueStore::Finished> ValueStore::compress(format::PartEncoder& encoder,
                                                         const Job& job) try {
  const Value& value = *job.value;
  format::BlobHeader header;
  header.content = value.content;
  header.offset = job.offset;
  header.form = value.form;
  format::BasePart base;
  if (value.base != nullptr) {
    const ValuePart& part = *value.base->parts[job.offset / format::kPartBytes];
    const uint8_t depth = part.depth.load(std::memory_order_acquire);
    // Unknown: it is still being compressed.
    if (depth < format::kMaxBaseDepth) base = {part.view(), value.base->content.hash, depth};
  }
  const Result<Bytes> payload = encoder.encode(header, job.part->view(), base);
  if (!payload.ok()) return std::nullopt;
  job.part->depth.store(header.depth, std::memory_order_release);
  if (!base.bytes.empty() && header.depth == 0) {
    std::shared_ptr<const KeptValue> old;  // freed without the lock
    const std::lock_guard lock(mutex_);
    old = history_.give_up(value.place);
  }
  return Finished{{payload.value().begin(), payload.value().end()}, job.part->size};
} catch (...) {
  return std::nullopt;
}

Status ValueStore::write(format::TraceWriter& trace, uint64_t max_bytes, uint64_t turn_ns) {
  const uint64_t begin = now_ns();
  std::unique_lock lock(mutex_);
  while (!finished_.empty() && trace.bytes_written() < max_bytes) {
    Finished& one = finished_.front();  // others only append
    lock.unlock();
    CONVTRACE_TRY(trace.append_blob(one.payload));
    const std::vector<std::byte> written = std::move(one.payload);  // freed without the lock
    lock.lock();
    release(one.reserved);
    finished_.pop_front();
    if (now_ns() - begin < turn_ns) continue;
    if (!finished_.empty()) doorbell_.ring();
    break;
  }
  return kOkStatus;
}

bool ValueStore::settle(uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  return settled_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                           [this] { return incoming_ == 0 && jobs_.empty() && busy_ == 0; });
}

void ValueStore::close(LossReason reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  lose(reason, jobs_.size() + finished_.size());
  jobs_.clear();
  finished_.clear();
  work_.notify_all();
  room_.notify_all();
}

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
