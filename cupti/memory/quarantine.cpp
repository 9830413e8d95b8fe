#include "cupti/memory/quarantine.h"

#include <algorithm>

#include "cupti/driver/own_calls.h"

namespace convtrace::cupti {
namespace {

constexpr unsigned char kFreed = 0xFF;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

}  // namespace

Quarantine::Quarantine(const DriverApi& driver, bool poison, bool quarantine)
    : driver_(driver),
      poison_(poison),
      possible_((poison || quarantine) && driver.memset_d32_async != nullptr &&
                driver.mem_get_info != nullptr && driver.pointer_get_attributes != nullptr &&
                driver.ctx_synchronize != nullptr),
      holds_(quarantine && possible_) {}

uint64_t Quarantine::identity(uint64_t address) const {
  unsigned type = 0, managed = 1;
  unsigned long long id = 0;
  CUdeviceptr base = 0;
  int device = -1;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* answers[] = {&type, &managed, &id, &base, &device};
  CUdevice current = -1;
  if (driver_.pointer_get_attributes(5, asked, answers, address) != CUDA_SUCCESS ||
      driver_.ctx_get_device(&current) != CUDA_SUCCESS) {
    return 0;
  }
  const bool ours =
      type == CU_MEMORYTYPE_DEVICE && managed == 0 && base == address && device == current;
  return ours ? id : 0;
}

CUcontext Quarantine::current_context() const {
  CUcontext context = nullptr;
  return driver_.ctx_get_current(&context) == CUDA_SUCCESS ? context : nullptr;
}

bool Quarantine::know(uint64_t address, uint64_t bytes, bool in_order) {
  const Known known{bytes, identity(address), current_context(), in_order};
  const Lock lock(mutex_);
  known_.erase(address);
  if (known.id == 0 || known.context == nullptr || known_.size() >= kMostKnown) return false;
  known_.emplace(address, known);
  return true;
}

/// Forgets an allocation. @return whether the memory at its address is still that allocation.
bool Quarantine::take_known(uint64_t address, Known& known) {
  {
    const Lock lock(mutex_);
    const auto found = known_.find(address);
    if (found == known_.end()) return false;
    known = found->second;
    known_.erase(found);
  }
  return known.context == current_context() && known.id == identity(address);
}

void Quarantine::given(uint64_t address, uint64_t bytes, bool fill) {
  if (!possible_ || OwnCalls::active()) return;
  const OwnCalls own;
  const RelaxedCapture relaxed(driver_);
  if (!know(address, bytes, false) || !poison_ || !fill) return;
  CUstream const stream = own_stream(current_context());
  if (stream == nullptr) return;
  fill_fresh(address, bytes, stream);
  // Other streams are not ordered behind this one, and may use the memory at once.
  (void)driver_.stream_synchronize(stream);
}

void Quarantine::given_in_order(uint64_t address, uint64_t bytes, CUstream stream, bool fill) {
  if (!poisons() || OwnCalls::active()) return;
  const OwnCalls own;
  if (know(address, bytes, true) && fill) fill_fresh(address, bytes, stream);
}

void Quarantine::taken_in_order(uint64_t address, CUstream stream, bool fill) {
  if (!poisons() || OwnCalls::active()) return;
  const OwnCalls own;
  Known known;
  if (take_known(address, known) && fill)
    (void)driver_.memset_d8_async(address, kFreed, known.bytes, stream);
}

void Quarantine::shared(uint64_t address) {
  const Lock lock(mutex_);
  std::erase_if(known_, [=](const auto& one) {
    return address >= one.first && address - one.first < one.second.bytes;
  });
}

void Quarantine::grew() {
  if (!any_.load() || OwnCalls::active()) return;
  const OwnCalls own;
  if (most_held() == 0) (void)give_back();
}

Quarantine::Free Quarantine::free(uint64_t address, const std::function<void()>& freed) {
  if (!possible_ || OwnCalls::active()) return Free::kCall;
  std::list<Held> block(1), too_many;
  {
    const Lock lock(mutex_);
    if (std::ranges::find(held_, address, &Held::address) != held_.end()) return Free::kTwice;
  }
  const OwnCalls own;
  const RelaxedCapture relaxed(driver_);
  Known known;
  if (!take_known(address, known) || known.in_order || !holds_.load()) return Free::kCall;
  const uint64_t most = most_held();
  if (known.bytes > most) {
    if (most == 0) (void)give_back();
    return Free::kCall;
  }
  // The driver's cuMemFree waits for the device, too.
  if (driver_.ctx_synchronize() != CUDA_SUCCESS) return Free::kCall;
  CUstream const stream = poison_ ? own_stream(known.context) : nullptr;
  if (stream != nullptr) (void)driver_.memset_d8_async(address, kFreed, known.bytes, stream);
  block.front() = {address, known.bytes, known.context};
  freed();
  {
    const Lock lock(mutex_);
    while (!held_.empty() && (held_.size() >= kMostHeld || held_bytes_ + known.bytes > most)) {
      held_bytes_ -= held_.front().bytes;
      too_many.splice(too_many.end(), held_, held_.begin());
    }
    held_bytes_ += known.bytes;
    held_.splice(held_.end(), block);
    any_.store(true);
  }
  free_all(too_many);
  // A capture may have begun meanwhile.
  if (!holds_.load()) (void)give_back();
  return Free::kHeld;
}

/// @return the number of bytes that may be held now; 0: the device has little memory left.
uint64_t Quarantine::most_held() const {
  size_t available = 0, total = 0;
  if (driver_.mem_get_info(&available, &total) != CUDA_SUCCESS || available < total / 8) return 0;
  return std::min<uint64_t>(kMostBytes, total / 16);
}

bool Quarantine::give_back() noexcept {
  if (!any_.load()) return false;
  std::list<Held> all;
  {
    const Lock lock(mutex_);
    all.swap(held_);
    held_bytes_ = 0;
    any_.store(false);
  }
  free_all(all);
  return !all.empty();
}

void Quarantine::free_all(std::list<Held>& blocks) noexcept {
  if (blocks.empty()) return;
  const OwnCalls own;
  const RelaxedCapture relaxed(driver_);
  for (const Held& block : blocks) (void)driver_.mem_free(block.address);
}

bool Quarantine::end() noexcept {
  if (!holds_.exchange(false)) return false;
  (void)give_back();
  return true;
}

void Quarantine::context_ended(CUcontext context) {
  const Lock lock(mutex_);
  std::erase_if(known_, [=](const auto& one) { return one.second.context == context; });
  std::erase_if(held_, [&](const Held& block) CONVTRACE_REQUIRES(mutex_) {
    if (block.context != context) return false;
    held_bytes_ -= block.bytes;
    return true;
  });
  streams_.erase(context);
}

/// @param context  the current context.
CUstream Quarantine::own_stream(CUcontext context) {
  {
    const Lock lock(mutex_);
    if (const auto found = streams_.find(context); found != streams_.end()) return found->second;
  }
  CUstream stream = nullptr;
  if (driver_.stream_create(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return nullptr;
  const Lock lock(mutex_);
  return streams_.emplace(context, stream).first->second;
}

void Quarantine::fill_fresh(uint64_t address, uint64_t bytes, CUstream stream) const {
  constexpr uint64_t kWord = sizeof kFreshPattern;
  if (bytes >= kWord) (void)driver_.memset_d32_async(address, kFreshPattern, bytes / kWord, stream);
}

}  // namespace convtrace::cupti
