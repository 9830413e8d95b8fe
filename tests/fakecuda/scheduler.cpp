#include "tests/fakecuda/scheduler.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/fakecuda/driver.h"

namespace fakecuda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr size_t kMostLaunches = 1024;
/// Longer than what lies between two calls of a busy host, much shorter than its patience.
constexpr milliseconds kIdle{20};
constexpr milliseconds kPatience{5000};
constexpr microseconds kPause{50};

uint64_t mix(uint64_t value) {  // splitmix64
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9U;
  value = (value ^ value >> 27) * 0x94D049BB133111EBU;
  return value ^ value >> 31;
}

}  // namespace

Scheduler& scheduler() {
  static auto* const the_scheduler = new Scheduler;
  return *the_scheduler;
}

Scheduler::Scheduler()
    : seed_(knob("FAKECUDA_SEED", 0)), connections_(knob("CUDA_DEVICE_MAX_CONNECTIONS", 8)) {
  const char* const seed = getenv("FAKECUDA_SEED");
  seeded_ = seed != nullptr && *seed != 0;
}

uint64_t Scheduler::draw() const {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15U;
  static std::atomic<uint64_t> threads{0};
  thread_local uint64_t state = mix(seed_ + 1) + ++threads * kGolden;
  return seeded_ ? mix(state += kGolden) : 0;
}

/// @return the last items that one which comes to that stream now has to wait for.
std::vector<uint64_t> Scheduler::behind_what(CUstream stream) const {
  std::vector<uint64_t> numbers;
  const bool legacy = stream == &stream->context->legacy;
  for (const auto& [id, queue] : queues_) {
    const Item& item = pending_.at(queue.back());
    const bool other_blocks = item.context == stream->context && stream->blocking && item.blocking;
    const bool implicit = other_blocks && (legacy || id == stream->context->legacy.id);
    if (id == stream->id || implicit) numbers.push_back(queue.back());
  }
  return numbers;
}

uint64_t Scheduler::add(CUstream stream, Work work, uint64_t behind) {
  Lock lock(mutex_);
  start_device();
  if (work.kernel != nullptr && launches_ >= kMostLaunches)
    run_until(lock, {pending_.begin()->first}, [this] { return launches_ < kMostLaunches; });
  Item item{.work = std::move(work),
            .behind = behind_what(stream),
            .stream = stream->id,
            .context = stream->context,
            .blocking = stream->blocking};
  if (behind != 0) item.behind.push_back(behind);
  launches_ += item.work.kernel != nullptr ? 1 : 0;
  const uint64_t number = ++last_;
  pending_.emplace(number, std::move(item));
  queues_[stream->id].push_back(number);
  if (!seeded_) run_all();
  return number;
}

/// With what has to be done, or has to begin, before.
Scheduler::Numbers Scheduler::with_all_before(std::vector<uint64_t> numbers) const {
  Numbers all;
  while (!numbers.empty()) {
    const auto found = pending_.find(numbers.back());
    numbers.pop_back();
    if (found == pending_.end() || !all.insert(found->first).second) continue;
    numbers.insert(numbers.end(), found->second.behind.begin(), found->second.behind.end());
    for (const auto& [number, item] : pending_) {
      if (number >= found->first) break;
      if (connection(item) == connection(found->second)) numbers.push_back(number);
    }
  }
  return all;
}

/// Of each stream its first item, if nothing keeps it.
std::vector<uint64_t> Scheduler::runnable() const {
  std::map<uint64_t, uint64_t> first;  // by connection: of those that have not begun
  for (const auto& [id, queue] : queues_) {
    const bool begun = pending_.at(queue.front()).begun;
    if (begun && queue.size() == 1) continue;
    const uint64_t number = begun ? queue[1] : queue[0];
    const auto known = first.emplace(id % connections_, number).first;
    known->second = std::min(known->second, number);
  }
  std::vector<uint64_t> numbers;
  for (const auto& [id, queue] : queues_) {
    const Item& item = pending_.at(queue.front());
    const bool free = std::ranges::none_of(
        item.behind, [this](uint64_t number) { return pending_.contains(number); });
    if (item.begun || (free && first.at(connection(item)) == queue.front()))
      numbers.push_back(queue.front());
  }
  return numbers;
}

/// @param needed  empty: anything will do. @return 0: nothing can be done.
uint64_t Scheduler::choose(const Numbers& needed) const {
  std::vector<uint64_t> wanted, others;
  for (const uint64_t number : runnable()) {
    if (needed.contains(number)) {
      wanted.push_back(number);
    } else if (!held_.contains(pending_.at(number).stream)) {
      others.push_back(number);
    }
  }
  const bool take_wanted = others.empty() || (!wanted.empty() && (!seeded_ || draw() % 4 != 0));
  const std::vector<uint64_t>& from = take_wanted ? wanted : others;
  return from.empty() ? 0 : from[draw() % from.size()];
}

void Scheduler::run(uint64_t number) {
  Item& item = pending_.at(number);
  item.begun = true;
  if (driver().sticky.load() == CUDA_SUCCESS) item.work.run(item.unfinished);
  if (item.unfinished == 0 || driver().sticky.load() != CUDA_SUCCESS) finish(number);
}

void Scheduler::finish(uint64_t number) {
  const auto found = pending_.find(number);
  const auto queue = queues_.find(found->second.stream);
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
  launches_ -= found->second.work.kernel != nullptr ? 1 : 0;
  pending_.erase(found);
  ++finished_;
  changed_.notify_all();
}

void Scheduler::run_all() {
  for (uint64_t finished = finished_ - 1; finished != finished_;) {
    finished = finished_;
    if (const uint64_t number = choose({})) run(number);
  }
}

void Scheduler::run_until(Lock& lock, const std::vector<uint64_t>& numbers,
                          const std::function<bool()>& over) {
  const Numbers needed = with_all_before(numbers);
  Clock::duration idle{};
  while (!over()) {
    const uint64_t finished = finished_;
    if (const uint64_t number = choose(needed)) run(number);
    if (finished != finished_) {
      idle = {};
    } else if (idle > kPatience) {
      stuck();
    } else {
      const auto before = Clock::now();
      changed_.wait_for(lock, kPause);
      idle += Clock::now() - before;
    }
  }
}

void Scheduler::wait_for(Lock& lock, const std::vector<uint64_t>& numbers) {
  run_until(lock, numbers, [&] {
    return std::ranges::none_of(numbers, [this](uint64_t n) { return pending_.contains(n); });
  });
}

void Scheduler::stuck() const {
  fprintf(stderr, "fakecuda: a call waits for work that can never be done (FAKECUDA_SEED=%llu)\n",
          static_cast<unsigned long long>(seed_));
  abort();
}

void Scheduler::step() {
  if (!seeded_) return;
  const uint64_t laziness = seed_ % 4;  // 0: nothing is done unless somebody waits for it
  const std::lock_guard lock(mutex_);
  if (laziness == 0 || draw() % (8 >> laziness) != 0) return;
  for (uint64_t i = draw() % 3; i > 0 && !pending_.empty(); --i)
    if (const uint64_t number = choose({})) run(number);
}

bool Scheduler::is_pending(uint64_t number) {
  const std::lock_guard lock(mutex_);
  return pending_.contains(number);
}

bool Scheduler::is_busy(CUstream stream) {
  const std::lock_guard lock(mutex_);
  return queues_.contains(stream->id);
}

void Scheduler::wait(uint64_t number) {
  Lock lock(mutex_);
  wait_for(lock, {number});
}

void Scheduler::wait(CUstream stream) {
  Lock lock(mutex_);
  const auto queue = queues_.find(stream->id);
  const bool legacy = stream == &stream->context->legacy;
  if (legacy) {
    wait_for(lock, behind_what(stream));
  } else if (queue != queues_.end()) {
    wait_for(lock, {queue->second.back()});
  }
}

void Scheduler::wait_all(CUcontext context) {
  Lock lock(mutex_);
  std::vector<uint64_t> numbers;
  for (const auto& [number, item] : pending_)
    if (context == nullptr || item.context == context) numbers.push_back(number);
  wait_for(lock, numbers);
}

void Scheduler::end(CUcontext context) {
  if (!seeded_) return wait_all();
  const std::lock_guard lock(mutex_);
  const uint64_t most = draw() % 3 == 0 ? UINT64_MAX : draw() % 8;
  for (uint64_t i = 0, number = 1; i < most && number != 0; ++i)
    if ((number = choose({})) != 0) run(number);
  std::erase_if(pending_, [&](const auto& entry) {
    const Item& item = entry.second;
    if (item.context != context) return false;
    queues_.erase(item.stream);
    launches_ -= item.work.kernel != nullptr ? 1 : 0;
    return true;
  });
  changed_.notify_all();
}

void Scheduler::set_connections(uint64_t count) {
  const std::lock_guard lock(mutex_);
  connections_ = count;
}

void Scheduler::hold(CUstream stream) {
  const std::lock_guard lock(mutex_);
  held_once_ = true;
  held_.insert(stream->id);
}

void Scheduler::release(CUstream stream) {
  const std::lock_guard lock(mutex_);
  held_.erase(stream->id);
  run_all();
}

void Scheduler::start_device() {
  if (!seeded_ || std::exchange(device_started_, true)) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(&Scheduler::be_device, this).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// After a while without any progress all is done that came until then, unless more comes.
void Scheduler::be_device() {
  Lock lock(mutex_);
  for (;;) {
    const uint64_t finished = finished_;
    const bool busy = changed_.wait_for(lock, kIdle, [&] { return finished != finished_; });
    for (const uint64_t newest = last_; !busy && newest == last_;) {
      const uint64_t before = finished_;
      if (const uint64_t number = choose({})) run(number);
      if (before == finished_) break;
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

}  // namespace fakecuda
