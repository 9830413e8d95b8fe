#include "format/model/definitions.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "format/base/checksum.h"
#include "format/base/mutex.h"

namespace convtrace::format {
namespace {

/// A table of values by id. Pages are allocated where ids are defined, so a hostile id costs one
/// page instead of the range below it. Values never move.
template <typename T>
class IdTable {
 public:
  [[nodiscard]] const T* find(uint32_t id) const {
    const uint32_t page = id / kPageSize;
    if (page >= pages_.size() || !pages_[page]) return nullptr;
    const std::optional<T>& slot = (*pages_[page])[id % kPageSize];
    return slot ? &*slot : nullptr;
  }

  /// @pre 1 <= id <= kMaxDefinitions, not defined yet
  const T& insert(uint32_t id, T value) {
    const uint32_t page = id / kPageSize;
    if (page >= pages_.size()) pages_.resize(page + 1);
    if (!pages_[page]) pages_[page] = std::make_unique<Page>();
    last_ = std::max(last_, id);
    return (*pages_[page])[id % kPageSize].emplace(std::move(value));
  }

  /// @return the smallest defined id above `id`, or 0.
  [[nodiscard]] uint32_t next(uint32_t id) const {
    while (++id <= last_) {
      if (!pages_[id / kPageSize]) {
        id |= kPageSize - 1;
      } else if (find(id) != nullptr) {
        return id;
      }
    }
    return 0;
  }

  [[nodiscard]] uint32_t last() const { return last_; }
  [[nodiscard]] bool full() const { return last_ >= kMaxDefinitions; }

 private:
  static constexpr uint32_t kPageSize = 256;
  using Page = std::array<std::optional<T>, kPageSize>;
  std::vector<std::unique_ptr<Page>> pages_;
  uint32_t last_ = 0;
};

using Frames = std::vector<StringId>;
using FrameView = std::span<const StringId>;

struct FrameHash {
  size_t operator()(FrameView frames) const noexcept { return checksum64(std::as_bytes(frames)); }
};
struct FrameEqual {
  bool operator()(FrameView a, FrameView b) const noexcept { return std::ranges::equal(a, b); }
};

uint64_t key_of(KernelDef kernel) {
  return uint64_t{kernel.name.value} << 32 | kernel.family.value;
}

std::string_view cut(std::string_view text) { return text.substr(0, kMaxStringBytes); }
FrameView cut(FrameView frames) { return frames.first(std::min(frames.size(), kMaxFrames)); }

/// Defines `value` under `id`, or checks that it equals the former definition.
template <typename T, typename Same>
Status define_in(IdTable<T>& table, uint32_t id, T value, const Same& same) {
  if (id == 0 || id > kMaxDefinitions)
    return Status::make(StatusCode::kLimitExceeded, "define", id);
  if (const T* known = table.find(id))
    return same(*known) ? kOkStatus : Status::make(StatusCode::kCorrupt, "define", id);
  table.insert(id, std::move(value));
  return kOkStatus;
}

}  // namespace

struct Definitions::Impl {
  mutable Mutex mutex;
  IdTable<std::string> strings CONVTRACE_GUARDED_BY(mutex);
  IdTable<KernelDef> kernels CONVTRACE_GUARDED_BY(mutex);
  IdTable<Frames> stacks CONVTRACE_GUARDED_BY(mutex);
  // Keys point into the tables above, whose values do not move.
  std::unordered_map<std::string_view, uint32_t> string_ids CONVTRACE_GUARDED_BY(mutex);
  std::unordered_map<uint64_t, uint32_t> kernel_ids CONVTRACE_GUARDED_BY(mutex);
  std::unordered_map<FrameView, uint32_t, FrameHash, FrameEqual> stack_ids
      CONVTRACE_GUARDED_BY(mutex);
};

Definitions::Definitions() : impl_(std::make_unique<Impl>()) {}
Definitions::~Definitions() = default;

StringId Definitions::intern(std::string_view text) {
  const Lock lock(impl_->mutex);
  text = cut(text);
  if (const auto known = impl_->string_ids.find(text); known != impl_->string_ids.end())
    return {known->second};
  if (impl_->strings.full()) return {};
  const uint32_t id = impl_->strings.last() + 1;
  impl_->string_ids.emplace(impl_->strings.insert(id, std::string(text)), id);
  return {id};
}

KernelId Definitions::intern_kernel(KernelDef kernel) {
  const Lock lock(impl_->mutex);
  if (const auto known = impl_->kernel_ids.find(key_of(kernel)); known != impl_->kernel_ids.end())
    return {known->second};
  if (impl_->kernels.full()) return {};
  const uint32_t id = impl_->kernels.last() + 1;
  impl_->kernels.insert(id, kernel);
  impl_->kernel_ids.emplace(key_of(kernel), id);
  return {id};
}

StackId Definitions::intern_stack(std::span<const StringId> frames) {
  const Lock lock(impl_->mutex);
  frames = cut(frames);
  if (const auto known = impl_->stack_ids.find(frames); known != impl_->stack_ids.end())
    return {known->second};
  if (impl_->stacks.full()) return {};
  const uint32_t id = impl_->stacks.last() + 1;
  impl_->stack_ids.emplace(impl_->stacks.insert(id, Frames(frames.begin(), frames.end())), id);
  return {id};
}

std::string_view Definitions::text(StringId id) const {
  const Lock lock(impl_->mutex);
  const std::string* found = impl_->strings.find(id.value);
  return found ? std::string_view(*found) : std::string_view();
}

KernelDef Definitions::kernel(KernelId id) const {
  const Lock lock(impl_->mutex);
  const KernelDef* found = impl_->kernels.find(id.value);
  return found ? *found : KernelDef{};
}

std::span<const StringId> Definitions::stack(StackId id) const {
  const Lock lock(impl_->mutex);
  const Frames* found = impl_->stacks.find(id.value);
  return found ? FrameView(*found) : FrameView();
}

bool Definitions::has(StringId id) const {
  const Lock lock(impl_->mutex);
  return impl_->strings.find(id.value) != nullptr;
}

bool Definitions::has(KernelId id) const {
  const Lock lock(impl_->mutex);
  return impl_->kernels.find(id.value) != nullptr;
}

bool Definitions::has(StackId id) const {
  const Lock lock(impl_->mutex);
  return impl_->stacks.find(id.value) != nullptr;
}

StringId Definitions::next(StringId id) const {
  const Lock lock(impl_->mutex);
  return {impl_->strings.next(id.value)};
}

KernelId Definitions::next(KernelId id) const {
  const Lock lock(impl_->mutex);
  return {impl_->kernels.next(id.value)};
}

StackId Definitions::next(StackId id) const {
  const Lock lock(impl_->mutex);
  return {impl_->stacks.next(id.value)};
}

Definitions::Counts Definitions::counts() const {
  const Lock lock(impl_->mutex);
  return {impl_->strings.last(), impl_->kernels.last(), impl_->stacks.last()};
}

Status Definitions::define(StringId id, std::string_view text) {
  const Lock lock(impl_->mutex);
  text = cut(text);
  return define_in(impl_->strings, id.value, std::string(text),
                   [&](const std::string& known) { return known == text; });
}

Status Definitions::define(KernelId id, KernelDef kernel) {
  const Lock lock(impl_->mutex);
  return define_in(impl_->kernels, id.value, kernel,
                   [&](const KernelDef& known) { return key_of(known) == key_of(kernel); });
}

Status Definitions::define(StackId id, std::span<const StringId> frames) {
  const Lock lock(impl_->mutex);
  frames = cut(frames);
  return define_in(impl_->stacks, id.value, Frames(frames.begin(), frames.end()),
                   [&](const Frames& known) { return std::ranges::equal(known, frames); });
}

}  // namespace convtrace::format
