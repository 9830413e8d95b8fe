#pragma once
/// @file capture_rules.h
/// How much of a tensor is recorded: by the mode, and by rules with a scope and a `capture` or
/// `samples`.
///
/// Threads:  any, concurrently. Without such rules a question costs a branch.

#include <atomic>
#include <cstdint>

#include "format/model/definitions.h"
#include "format/settings/rule_book.h"
#include "format/settings/settings.h"

namespace convtrace::engine {

class CaptureRules {
 public:
  /// @param mode         settings::mode_without_rule.
  /// @param rules        of this rank; those with a kernel are the launch gate's. Outlives this.
  /// @param definitions  of the scopes asked about; outlives this.
  /// @param store_values false: there is nowhere to store them (a flight recorder).
  /// @param samples      raw values kept of a tensor where no rule says how many.
  CaptureRules(settings::Mode mode, settings::RuleBook& rules,
               const format::Definitions& definitions, bool store_values, uint32_t samples)
      : mode_(mode),
        store_values_(store_values),
        samples_(samples),
        definitions_(definitions),
        rules_(rules) {}

  struct Decision {
    format::Capture capture;
    uint32_t samples;
    bool is_final;  ///< decided by a rule or the mode, not by the observer's request
  };
  /// @param asked  what the observer takes a tensor of this kind for.
  /// @return of each, what the first rule that matches scope and step and has it says, else the
  /// settings.
  [[nodiscard]] Decision decide(format::Capture asked, format::StringId scope, uint32_t step);

  void set_mode(settings::Mode mode) noexcept { mode_.store(mode, std::memory_order_relaxed); }

  /// Whether any answer can be kSnapshot now.
  [[nodiscard]] bool may_store() const;

 private:
  [[nodiscard]] format::Capture by_mode(format::Capture asked) const noexcept;

  std::atomic<settings::Mode> mode_;
  const bool store_values_;
  const uint32_t samples_;
  const format::Definitions& definitions_;
  settings::RuleBook& rules_;
};

}  // namespace convtrace::engine
