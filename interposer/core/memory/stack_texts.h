#pragma once
/// @file stack_texts.h
/// Converts return addresses into an interned stack of texts, and records facts about their
/// libraries.
///
/// Frame:    "function (file.py:12)" of Python; else
///           "function+0x1c (ops.so+0x1234)"; without an exported function "ops.so+0x1234". The
///           fact "library.ops.so" is "BUILD_ID PATH" ("-" for none), from which `convtrace
///           findings` finds functions that a library does not export, and source lines. If two
///           libraries have the same file name, the second goes by its path.
/// Threads:  any. A mutex, symbol look-ups and disk access, once for each address and library: only
///           used when a finding is made, or for CONVTRACE_STACKS=all.
/// Source:   dladdr(3), dl_iterate_phdr(3), elf(5) "Notes".

#include <link.h>

#include <span>
#include <string>
#include <unordered_map>

#include "format/base/mutex.h"
#include "format/model/definitions.h"
#include "interposer/core/runtime/fact_table.h"

namespace convtrace::engine {

class StackTexts {
 public:
  /// Both outlive this.
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
      CONVTRACE_GUARDED_BY(mutex_);  ///< names of libraries, as written in frames
  std::unordered_map<std::string, const link_map*> owners_
      CONVTRACE_GUARDED_BY(mutex_);  ///< the library of each name
};

}  // namespace convtrace::engine
