#pragma once
/// @file options.h
/// Options of the interceptor: where it records to, and functions of its owner that it calls.

#include <cstdint>
#include <string>

#include "cupti/memory/address_map.h"
#include "cupti/values/value_sink.h"
#include "format/model/definitions.h"
#include "format/model/event_sink.h"
#include "format/settings/rule_book.h"

namespace convtrace::cupti {

/// Position of the calling thread in the program.
struct Position {
  format::Place place;
  uint32_t step = 0;
  bool capture = true;  ///< values of this step are wanted
};

struct InterceptorOptions {
  // These three outlive the interceptor.
  format::EventSink* sink = nullptr;
  format::Definitions* definitions = nullptr;
  AddressMap* addresses = nullptr;
  Position (*position)() noexcept = nullptr;
  /// Applies pending reports of allocators to `addresses`; null: there never are any. With `all` it
  /// also waits for a thread that is applying some, which values need because their extents depend
  /// on it. Returns whether all reports are applied.
  bool (*apply_memory_reports)(bool all) noexcept = nullptr;
  /// Asked when a rule applies to every kernel; null: all kernels are wanted.
  bool (*wants_kernel)(format::KernelId kernel) noexcept = nullptr;
  /// Called on the launching thread before the event of each launch; null: not wanted.
  void (*note_launch)() noexcept = nullptr;
  /// Called once, when the program uses its first context and cuInit has returned, possibly inside
  /// a CUPTI callback; null: not wanted.
  void (*note_context)() noexcept = nullptr;
  settings::RuleBook* rules = nullptr;  ///< rules of this rank; outlives the interceptor
  std::string cupti_path;               ///< CONVTRACE_CUPTI or empty
  bool record_launches = true;          ///< false below mode `launches`
  bool compute_values = true;   ///< false below mode `hash`: no context is prepared for statistics
  uint32_t samples = 8;         ///< elements sampled of a value, unless a rule gives a number
  bool poison = false;          ///< see quarantine.h
  bool quarantine = false;      ///< see quarantine.h
  ValueSink* values = nullptr;  ///< null: no value is stored whole; outlives the interceptor
  /// Device memory of each context for values that wait for their copy to the host.
  uint64_t value_bytes = 0;
};

}  // namespace convtrace::cupti
