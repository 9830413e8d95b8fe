#pragma once
/// @file cubin_table.h
/// The kernels' parameters by name, from the cubins that are loaded.
///
/// Place:    told of modules by CUPTI callbacks; asked once for each kernel that the driver tells
/// nothing of.
/// Threads:  any; locks for itself.
/// Errors:   two loaded kernels of one name and other parameters (Triton makes them): neither is
/// known, since a wrong layout would be read past the end of the caller's list.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cupti/cubin_layout.h"

namespace convtrace::cupti {

class CubinTable {
 public:
  void load(uint32_t module, std::span<const std::byte> cubin) {
    std::unordered_map<std::string, std::vector<ParamLayout>> kernels;
    for (KernelLayout& one : read_cubin_layouts(cubin))
      kernels.emplace(std::move(one.kernel), std::move(one.params));
    const std::lock_guard lock(mutex_);
    modules_.insert_or_assign(module, std::move(kernels));
  }

  void unload(uint32_t module) {
    const std::lock_guard lock(mutex_);
    modules_.erase(module);
  }

  [[nodiscard]] std::optional<std::vector<ParamLayout>> find(const std::string& kernel) const {
    const std::lock_guard lock(mutex_);
    const std::vector<ParamLayout>* found = nullptr;
    for (const auto& [module, kernels] : modules_) {
      const auto it = kernels.find(kernel);
      if (it == kernels.end()) continue;
      if (found != nullptr && *found != it->second) return std::nullopt;
      found = &it->second;
    }
    return found == nullptr ? std::nullopt : std::optional(*found);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint32_t, std::unordered_map<std::string, std::vector<ParamLayout>>> modules_;
};

}  // namespace convtrace::cupti
