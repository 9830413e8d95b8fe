#pragma once
/// @file function_table.h
/// What is known of each kernel handle: names, parameter layout, the rules that tag it. Asked of
/// the driver once per handle.
///
/// Place:    read by the gate on every launch; told of handles by CUPTI callbacks.
/// Threads:  any, concurrently.
/// Errors:   what the driver does not tell is left out (no layout: no operands).
/// Source:   cuda.h: launches take a CUkernel cast to CUfunction, the cuFunc* queries do not say
///           that they do.

#include <cuda.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cupti/calls/state_decoder.h"
#include "cupti/driver/api.h"
#include "cupti/kernels/operands.h"
#include "cupti/kernels/output_learner.h"
#include "format/base/mutex.h"
#include "format/model/definitions.h"
#include "format/settings/rule_book.h"

namespace convtrace::cupti {

struct FunctionInfo {
  const void* handle = nullptr;
  format::KernelId kernel;
  std::vector<ParamLayout> params;
  settings::RuleBook::Matching rules;
  std::shared_ptr<OutputLearner> outputs;  ///< null: no rule wants them found
  bool may_wait = false;                   ///< nothing is inserted around it: it has no rules
};

class FunctionTable {
 public:
  /// @param api, @param definitions, @param rules outlive this. @param wants as
  /// InterceptorOptions::wants_kernel.
  FunctionTable(const DriverApi& api, format::Definitions& definitions, settings::RuleBook& rules,
                bool (*wants)(format::KernelId kernel) noexcept = nullptr);

  /// Handles were found or unloaded.
  void apply(const HandleChange& change);

  /// A context is ending, and every module of it: their handles may come again for others. Kernels
  /// of libraries belong to no context.
  void forget_modules();

  /// Whether apply() and forget_modules() are told of every unload. If not, a handle may come again
  /// for another kernel at any launch, and the driver is asked at each.
  void follow_unloads(bool followed) noexcept { followed_.store(followed); }

  /// Asks the driver when the handle is new: never call it from a CUPTI callback.
  /// @return never dangling: an unloaded kernel's facts stay until the end.
  const FunctionInfo& resolve(CUfunction function);

  /// The rules are others now. Facts that were handed out keep the old ones.
  void match_again();

  /// Without any CUDA call. @return what was told of `function` before, null if nothing.
  const FunctionInfo* known(CUfunction function) const;

  /// @return the kernel of that name, mangled or not.
  format::KernelId define(const std::string& name);

 private:
  struct Handle {
    HandleKind kind = HandleKind::kUnknown;
    const void* owner = nullptr;
    std::string name;  ///< by which the program asked for it, or for the kernel that owns it
    const FunctionInfo* info = nullptr;
  };

  /// Infos of late, by a hash of their handle: read on every launch, without the lock.
  using Recent = std::array<std::atomic<const FunctionInfo*>, 1024>;
  std::atomic<const FunctionInfo*>& recent(const void* handle);

  /// What the driver says of a handle.
  struct Facts {
    std::string name;
    std::vector<ParamLayout> params;
  };
  const FunctionInfo* find(CUfunction function, Handle& known) const;
  Facts ask_driver(CUfunction function, const Handle& handle);
  FunctionInfo make_info(CUfunction function, Facts facts);
  void match(const std::string& name, FunctionInfo& info);
  void forget_owner(const void* owner) CONVTRACE_REQUIRES(mutex_);
  void forget_recent() CONVTRACE_REQUIRES(mutex_);

  const DriverApi& api_;
  format::Definitions& definitions_;
  settings::RuleBook& rules_;
  bool (*const wants_)(format::KernelId kernel) noexcept;

  std::atomic<bool> followed_{false};
  Recent recent_{};  ///< written under the lock
  mutable SharedMutex mutex_;
  std::unordered_map<const void*, Handle> handles_ CONVTRACE_GUARDED_BY(mutex_);
  std::deque<FunctionInfo> infos_ CONVTRACE_GUARDED_BY(mutex_);
  std::unordered_map<std::string, format::KernelId> kernels_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::cupti
