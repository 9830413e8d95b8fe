#include "interposer/core/values/part_compressors.h"

#include <sys/resource.h>

#include "format/base/background_thread.h"

namespace convtrace::engine {
namespace {

constexpr int kNiceness = 10;

void compress(format::PartEncoder& encoder, PartJob& job) noexcept try {
  format::BlobHeader header;
  header.content = job.value->content;
  header.offset = job.offset;
  header.form = job.value->form;
  format::BasePart base;
  if (job.base != nullptr) {
    const uint8_t depth = job.base->depth.load(std::memory_order_acquire);
    // Unknown while it is being compressed.
    if (depth < format::kMaxBaseDepth) base = {job.base->view(), job.base_hash, depth};
  }
  const Result<Bytes> payload = encoder.encode(header, job.part->view(), base);
  if (!payload.ok()) return;
  job.payload.assign(payload.value().begin(), payload.value().end());
  job.part->depth.store(header.depth, std::memory_order_release);
  job.base_was_useless = !base.bytes.empty() && header.depth == 0;
} catch (...) {  // no memory: the job keeps no payload
}

}  // namespace

PartCompressors::PartCompressors(Wakeup& wakeup) : wakeup_(wakeup) { sem_init(&waiting_, 0, 0); }

PartCompressors::~PartCompressors() {
  (void)close();
  const Lock lock(threads_mutex_);
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
  sem_destroy(&waiting_);
}

bool PartCompressors::start(uint32_t count) {
  const Lock lock(threads_mutex_);
  if (closed()) return false;
  threads_.reserve(count);
  while (threads_.size() < count) {
    pthread_t thread{};
    if (!start_background_thread(thread, &PartCompressors::main, this)) break;
    threads_.push_back(thread);
  }
  return !threads_.empty();
}

void PartCompressors::put(std::unique_ptr<PartJob> job) {
  uncompressed_.fetch_add(1);
  unwritten_.fetch_add(1);
  jobs_.put(std::move(job));
  sem_post(&waiting_);
}

void* PartCompressors::main(void* self) noexcept {
  pthread_setname_np(pthread_self(), "convtrace-zip");
  // The program's threads come first. On Linux this changes the calling thread only.
  setpriority(PRIO_PROCESS, 0, kNiceness);
  static_cast<PartCompressors*>(self)->work();
  return nullptr;
}

void PartCompressors::work() {
  format::PartEncoder encoder;
  while (true) {
    while (sem_wait(&waiting_) != 0) {  // interrupted
    }
    if (closed()) return;
    std::unique_ptr<PartJob> job = next_job();
    if (job == nullptr) continue;  // drop() has taken it
    compress(encoder, *job);
    finished_.put(std::move(job));
    uncompressed_.fetch_sub(1);
    wakeup_.wake();
  }
}

std::unique_ptr<PartJob> PartCompressors::next_job() {
  const Lock lock(taking_mutex_);
  if (taken_ == nullptr) taken_ = jobs_.take_all();
  std::unique_ptr<PartJob> job = std::move(taken_);
  if (job != nullptr) taken_ = std::move(job->next);
  return job;
}

bool PartCompressors::close() {
  if (closed_.exchange(true)) return false;
  {
    const Lock lock(taking_mutex_);
    LockFreeQueue<PartJob>::free_list(std::move(taken_));
  }
  const Lock lock(threads_mutex_);
  for (size_t i = 0; i < threads_.size(); ++i) sem_post(&waiting_);
  return true;
}

uint64_t PartCompressors::drop() {
  LockFreeQueue<PartJob>::free_list(jobs_.take_all());
  LockFreeQueue<PartJob>::free_list(finished_.take_all());
  return unwritten_.exchange(0);
}

}  // namespace convtrace::engine
