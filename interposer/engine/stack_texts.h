#pragma once
/// @file stack_texts.h
/// Return addresses as an interned stack of texts. Each address is looked up once.
///
/// Threads:  any; a mutex and symbol look-ups: only when a finding is made, or for
/// CONVTRACE_STACKS=all.

#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "format/definitions.h"
#include "interposer/engine/unwinder.h"

namespace convtrace::engine {

class StackTexts {
 public:
  explicit StackTexts(format::Definitions& definitions) : definitions_(definitions) {}

  /// @return id 0 for an empty stack.
  format::StackId intern(std::span<void* const> return_addresses) {
    if (return_addresses.empty()) return {};
    std::vector<format::StringId> frames;
    const std::lock_guard lock(mutex_);
    for (void* const address : without_own_frames(return_addresses)) {
      format::StringId& text = known_[address];
      if (!text) text = definitions_.intern(describe_frame(address));
      frames.push_back(text);
    }
    return definitions_.intern_stack(frames);
  }

 private:
  format::Definitions& definitions_;
  std::mutex mutex_;
  std::unordered_map<void*, format::StringId> known_;
};

}  // namespace convtrace::engine
