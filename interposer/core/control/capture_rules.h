#pragma once
/// @file capture_rules.h
/// Decides how much of a tensor is recorded, from the mode and from rules with a scope and a
/// `capture` or `samples`.
///
/// Threads:  any, concurrently. Without such rules a decision costs one branch.

#include <atomic>
#include <cstdint>

#include "format/model/definitions.h"
#include "format/settings/rule_book.h"
#include "format/settings/settings.h"

namespace convtrace::engine {

class CaptureRules {
 public:
  /// @param mode         settings::mode_without_rule.
  /// @param rules        of this rank; rules with a kernel are left to the launch gate. Outlives
  /// this.
  /// @param definitions  contains the scopes that are asked about; outlives this.
  /// @param store_values false: values cannot be stored (a flight recorder).
  /// @param samples      raw values that are kept of a tensor where no rule gives a number.
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
    bool is_final;  ///< decided by a rule or the mode, so the observer's request is overruled
  };
  /// @param asked  what the observer requests for a tensor of this kind.
  /// @return capture and samples, each from the first matching rule (by scope and step) that has
  /// it, else from the settings.
  [[nodiscard]] Decision decide(format::Capture asked, format::StringId scope, uint32_t step);

  void set_mode(settings::Mode mode) noexcept { mode_.store(mode, std::memory_order_relaxed); }

  /// @return whether decide() can return kSnapshot with the present rules.
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
