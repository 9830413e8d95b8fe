#pragma once
/// @file function_table.h
/// The facts about each kernel handle: names, parameter layout and the rules that match it. The
/// driver is asked once for each handle.
///
/// Place:    read by the gate on every launch; CUPTI callbacks report handles to it.
/// Threads:  any, concurrently.
/// Errors:   facts that the driver does not give are left empty (no layout: no operands).
/// Source:   cuda.h: launches take a CUkernel cast to CUfunction; the cuFunc* queries are not
///           documented to.

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
#include "cupti/kernels/kernel_signature.h"
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
  std::vector<ParamWord> words;                      ///< words of the parameters
  std::shared_ptr<const KernelSignature> signature;  ///< null: names and types are not known
  settings::RuleBook::Matching rules;
  std::shared_ptr<OutputLearner> outputs;  ///< null: no rule wants them found
  /// It may wait for another kernel: convtrace launches nothing around it, and it has no rules.
  bool may_wait = false;
};

class FunctionTable {
 public:
  /// @param api, @param definitions, @param rules outlive this. @param wants as
  /// InterceptorOptions::wants_kernel.
  FunctionTable(const DriverApi& api, format::Definitions& definitions, settings::RuleBook& rules,
                bool (*wants)(format::KernelId kernel) noexcept = nullptr);

  /// Handles were found or unloaded.
  void apply(const HandleChange& change);

  /// A context is ending with all its modules, so other kernels may get their handles. Kernels of
  /// libraries belong to no context and stay.
  void forget_modules();

  /// Says whether every unload is reported to apply() and forget_modules(). If not, a handle may
  /// belong to another kernel at any launch, and the driver is asked each time.
  void follow_unloads(bool followed) noexcept { followed_.store(followed); }

  /// A compiler's names and types of the parameters of a kernel that was loaded as `function`. They
  /// are used if the kernel's name and its parameters, as the driver knows them, agree.
  void describe(CUfunction function, std::shared_ptr<const KernelSignature> signature);

  /// Calls the driver for a new handle, so it must not be called from a CUPTI callback.
  /// @return a reference that stays valid: facts about an unloaded kernel are kept.
  const FunctionInfo& resolve(CUfunction function);

  /// The rules were changed. Facts that were returned before keep the old rules.
  void match_again();

  /// Makes no CUDA call. @return the facts about `function`, or null if there are none yet.
  const FunctionInfo* known(CUfunction function) const;

  /// @return the kernel of that name, mangled or not.
  format::KernelId define(const std::string& name);

 private:
  struct Handle {
    HandleKind kind = HandleKind::kUnknown;
    const void* owner = nullptr;
    std::string name;  ///< by which the program asked for it, or for the kernel that owns it
    std::shared_ptr<const KernelSignature> signature;
    const FunctionInfo* info = nullptr;
  };

  /// A cache of recent facts by a hash of their handle, read on every launch without the lock.
  using Recent = std::array<std::atomic<const FunctionInfo*>, 1024>;
  std::atomic<const FunctionInfo*>& recent(const void* handle);

  /// The driver's answers about a handle.
  struct Facts {
    std::string name;
    std::vector<ParamLayout> params;
  };
  const FunctionInfo* find(CUfunction function, Handle& known) const;
  Facts ask_driver(CUfunction function, const Handle& handle);
  FunctionInfo make_info(CUfunction function, Facts facts, const Handle& handle);
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
