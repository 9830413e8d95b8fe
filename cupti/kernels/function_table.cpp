#include "cupti/kernels/function_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "cupti/driver/mutation.h"
#include "cupti/driver/own_calls.h"
#include "cupti/kernels/kernel_name.h"

namespace convtrace::cupti {
namespace {

constexpr size_t kMaxParams = 4096;  // 32 KiB of parameters, 8 bytes each

/// @return nothing if the driver does not answer; an empty list for a kernel without parameters.
template <typename Handle, typename Query>
std::optional<std::vector<ParamLayout>> read_layout(Handle handle, Query query) {
  if (query == nullptr) return std::nullopt;
  std::vector<ParamLayout> params;
  for (size_t index = 0; index < kMaxParams; ++index) {
    ParamLayout place;
    const CUresult result = query(handle, index, &place.offset, &place.bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) break;  // after the last parameter
    if (result != CUDA_SUCCESS) return std::nullopt;
    params.push_back(place);
  }
  return params;
}

template <typename Handle, typename Query>
std::string read_name(Handle handle, Query query) {
  const char* name = nullptr;
  if (query == nullptr || query(&name, handle) != CUDA_SUCCESS || name == nullptr) return {};
  return name;
}

/// Kernels that spin until another GPU, or another stream, has written: PyTorch's symmetric memory,
/// NVSHMEM, DeepEP. A program that fills the device with such a kernel makes sure that work in
/// other streams can still finish; a kernel of convtrace there could wait for ever. Source:
/// CUDASymmetricMemory.cu and CUDASymmetricMemoryOps.cu of PyTorch, and names of NVSHMEM; others
/// are not known.
bool may_wait(std::string_view kernel) {
  constexpr std::string_view kParts[] = {"multimem",
                                         "one_shot_all_reduce",
                                         "two_shot_all_reduce",
                                         "barrier_kernel",
                                         "put_signal_kernel",
                                         "wait_signal_kernel",
                                         "symm_mem",
                                         "nvshmem",
                                         "deep_ep::"};
  return std::ranges::any_of(
      kParts, [=](std::string_view part) { return kernel.find(part) != std::string_view::npos; });
}

/// @return the number of 8-byte words up to the end of the last parameter.
size_t count_words(const std::vector<ParamLayout>& params) {
  size_t words = 0;
  for (const ParamLayout& place : params)
    words = std::max(words, (place.offset + place.bytes + 7) / 8);
  return words;
}

bool agrees(const KernelSignature& signature, const std::string& kernel,
            const std::vector<ParamLayout>& params) {
  const size_t count = signature.params.size();
  if (signature.kernel != kernel || params.size() < count ||
      params.size() > count + KernelSignature::kMostAppended)
    return false;
  return std::ranges::equal(signature.params, std::span(params).first(count),
                            [](const KernelSignature::Param& param, const ParamLayout& place) {
                              return !param.is_pointer || place.bytes == sizeof(uint64_t);
                            });
}

}  // namespace

FunctionTable::FunctionTable(const DriverApi& api, format::Definitions& definitions,
                             settings::RuleBook& rules,
                             bool (*wants)(format::KernelId kernel) noexcept)
    : api_(api), definitions_(definitions), rules_(rules), wants_(wants) {}

void FunctionTable::apply(const HandleChange& change) {
  const Lock lock(mutex_);
  if (change.handles == nullptr) {
    forget_owner(change.owner);
    forget_recent();
    return;
  }
  bool known = false;
  for (uint32_t i = 0; i < change.count; ++i) {
    const void* handle = nullptr;
    std::memcpy(&handle, static_cast<const char*>(change.handles) + i * sizeof handle,
                sizeof handle);
    Handle& entry = handles_[handle];
    const bool reused = entry.kind != change.kind || entry.owner != change.owner;
    if (reused) {
      known = known || std::exchange(entry.info, nullptr) != nullptr;
      entry.signature.reset();
    }
    entry.kind = change.kind;
    entry.owner = change.owner;
    const auto owner = handles_.find(change.owner);
    if (change.name != nullptr) {
      entry.name = change.name;
    } else if (owner != handles_.end()) {
      entry.name = owner->second.name;
    }
  }
  if (known) forget_recent();
}

/// It is not known to which context a module belongs, so facts about functions of other contexts
/// are asked for again.
void FunctionTable::forget_modules() {
  const Lock lock(mutex_);
  std::erase_if(handles_, [](const auto& one) { return one.second.kind != HandleKind::kKernel; });
  forget_recent();
}

void FunctionTable::describe(CUfunction function,
                             std::shared_ptr<const KernelSignature> signature) {
  const Lock lock(mutex_);
  Handle& entry = handles_[function];
  entry.signature = std::move(signature);
  entry.info = nullptr;
  forget_recent();
}

void FunctionTable::forget_recent() {
  for (auto& info : recent_) info.store(nullptr, std::memory_order_relaxed);
}

std::atomic<const FunctionInfo*>& FunctionTable::recent(const void* handle) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
  static_assert(std::tuple_size_v<Recent> == size_t{1} << 10);
  return recent_[std::bit_cast<uint64_t>(handle) * kGolden >> (64 - 10)];
}

/// A library owns kernels, and a kernel owns the function that was made from it.
void FunctionTable::forget_owner(const void* owner) {
  std::vector<const void*> gone;
  for (const auto& [handle, entry] : handles_)
    if (entry.owner == owner) gone.push_back(handle);
  for (const void* handle : gone) handles_.erase(handle);
  for (const void* handle : gone) forget_owner(handle);
}

const FunctionInfo* FunctionTable::find(CUfunction function, Handle& known) const {
  const SharedLock lock(mutex_);
  const auto it = handles_.find(function);
  if (it == handles_.end()) return nullptr;
  known = it->second;
  return it->second.info;
}

const FunctionInfo& FunctionTable::resolve(CUfunction function) {
  const bool followed = followed_.load(std::memory_order_relaxed);
  std::atomic<const FunctionInfo*>& quick = recent(function);
  const FunctionInfo* const last = quick.load(std::memory_order_acquire);
  if (followed && last != nullptr && last->handle == function) return *last;
  Handle handle;
  const FunctionInfo* const before = find(function, handle);
  if (followed && before != nullptr) {
    quick.store(before, std::memory_order_release);
    return *before;
  }
  // The driver is called without the lock, because its callbacks call apply().
  Facts facts = ask_driver(function, handle);
  if (before != nullptr && before->kernel == define(facts.name) && before->params == facts.params)
    return *before;
  FunctionInfo info = make_info(function, std::move(facts), handle);
  const Lock lock(mutex_);
  Handle& entry = handles_[function];
  if (entry.info == nullptr || entry.info == before)
    entry.info = &infos_.emplace_back(std::move(info));
  return *entry.info;
}

FunctionTable::Facts FunctionTable::ask_driver(CUfunction function, const Handle& handle) {
  const OwnCalls own;
  const RelaxedCapture relaxed(api_);
  Facts facts;
  std::optional<std::vector<ParamLayout>> params;
  // Without CUPTI the kind of a handle is not known. It is looked up as a kernel first, since the
  // driver detects a handle that is no kernel; a function query reads any handle as a function.
  if (handle.kind != HandleKind::kFunction) {
    auto* kernel = reinterpret_cast<CUkernel>(function);
    facts.name = read_name(kernel, api_.kernel_get_name);
    params = read_layout(kernel, api_.kernel_get_param_info);
  }
  const bool refused = facts.name.empty() && !params;
  if (handle.kind != HandleKind::kKernel && refused) {
    facts.name = read_name(function, api_.func_get_name);
    params = read_layout(function, api_.func_get_param_info);
  }
  if (facts.name.empty()) facts.name = handle.name;
  if (params) facts.params = std::move(*params);
  if (facts.name.empty()) facts.name = "(unnamed)";
  return facts;
}

FunctionInfo FunctionTable::make_info(CUfunction function, Facts facts, const Handle& handle) {
  FunctionInfo info;
  info.handle = function;
  info.params = std::move(facts.params);
  info.words = words_of(info.params);
  info.kernel = define(facts.name);
  if (handle.signature != nullptr && agrees(*handle.signature, facts.name, info.params))
    info.signature = handle.signature;
  match(facts.name, info);
  return info;
}

void FunctionTable::match(const std::string& name, FunctionInfo& info) {
  const std::string demangled = demangle(name);
  const std::string names[] = {demangled, name, kernel_family(demangled)};
  info.rules = rules_.of_kernel(names);
  const bool wanted = wants_ == nullptr || wants_(info.kernel);
  std::erase_if(info.rules, [&](const settings::Rule* rule) {
    using enum settings::Rule::AllKernels;
    return (rule->all_kernels != kNo && !wanted) ||
           (rule->all_kernels == kTyped && info.signature == nullptr);
  });
  info.may_wait = !info.rules.empty() && may_wait(demangled);
  if (info.may_wait && !MUTATION(around_waiting_kernels)) info.rules.clear();
  if (info.outputs == nullptr && std::ranges::any_of(info.rules, &settings::Rule::outputs_auto))
    info.outputs = std::make_shared<OutputLearner>(count_words(info.params));
}

void FunctionTable::match_again() {
  const Lock lock(mutex_);
  for (auto& [handle, entry] : handles_) {
    if (entry.info == nullptr) continue;
    FunctionInfo& info = infos_.emplace_back(*entry.info);
    const format::StringId name = definitions_.kernel(info.kernel).name;
    match(std::string(definitions_.text(name)), info);
    entry.info = &info;
  }
  forget_recent();
}

const FunctionInfo* FunctionTable::known(CUfunction function) const {
  const SharedLock lock(mutex_);
  const auto it = handles_.find(function);
  return it == handles_.end() ? nullptr : it->second.info;
}

format::KernelId FunctionTable::define(const std::string& name) {
  {
    const SharedLock lock(mutex_);
    const auto it = kernels_.find(name);
    if (it != kernels_.end()) return it->second;
  }
  const format::KernelDef kernel{definitions_.intern(name),
                                 definitions_.intern(kernel_family(demangle(name)))};
  const format::KernelId id = definitions_.intern_kernel(kernel);
  const Lock lock(mutex_);
  kernels_.emplace(name, id);
  return id;
}

}  // namespace convtrace::cupti
