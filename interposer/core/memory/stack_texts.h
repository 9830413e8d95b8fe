#pragma once
/// @file stack_texts.h
/// Return addresses as an interned stack of texts, and facts about the libraries that they name.
///
/// Frame:    "function+0x1c (ops.so+0x1234)", without an exported name "ops.so+0x1234". The fact
///           "library.ops.so" is "BUILD_ID PATH" ("-" for none): what `convtrace findings` needs to
///           name functions that a library does not export, and lines of source. Two libraries of
///           one file name: the second goes by its path.
/// Threads:  any; a mutex, symbol look-ups and disk access, once for each address and library: only
///           when a finding is made, or for CONVTRACE_STACKS=all.

#include <span>
#include <string>
#include <unordered_map>

#include "format/base/mutex.h"
#include "format/model/definitions.h"
#include "interposer/core/memory/frame.h"
#include "interposer/core/runtime/fact_table.h"

namespace convtrace::engine {

class StackTexts {
 public:
  /// Both outlive it.
  StackTexts(format::Definitions& definitions, FactTable& facts)
      : definitions_(definitions), facts_(facts) {}

  /// @return id 0 for an empty stack.
  format::StackId intern(std::span<void* const> return_addresses);

 private:
  [[nodiscard]] std::string text_of(void* return_address) CONVTRACE_REQUIRES(mutex_);
  const std::string& name_of(const link_map& library) CONVTRACE_REQUIRES(mutex_);

  format::Definitions& definitions_;
  FactTable& facts_;
  Mutex mutex_;
  std::unordered_map<void*, format::StringId> known_ CONVTRACE_GUARDED_BY(mutex_);
  std::unordered_map<const link_map*, std::string> names_
      CONVTRACE_GUARDED_BY(mutex_);  ///< of libraries, as frames have them
  std::unordered_map<std::string, const link_map*> owners_
      CONVTRACE_GUARDED_BY(mutex_);  ///< of those names
};

}  // namespace convtrace::engine
