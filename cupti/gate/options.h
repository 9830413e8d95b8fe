#pragma once
/// @file options.h
/// What the interceptor is made with: what it records into, and what it asks of its owner.

#include <cstdint>
#include <string>

#include "cupti/memory/address_map.h"
#include "cupti/values/value_sink.h"
#include "format/model/definitions.h"
#include "format/model/event_sink.h"
#include "format/settings/rule_book.h"

namespace convtrace::cupti {

/// Where the calling thread is in the program.
struct Position {
  format::Place place;
  uint32_t step = 0;
  bool capture = true;  ///< values of this step are wanted
};

struct InterceptorOptions {
  format::EventSink* sink = nullptr;  ///< outlives the interceptor, as the next two
  format::Definitions* definitions = nullptr;
  AddressMap* addresses = nullptr;
  Position (*position)() noexcept = nullptr;
  /// Brings `addresses` up to what allocators have reported; null: it always is. `all`: also what
  /// another thread is at, for values, whose extent depends on it. Returns whether all is in.
  bool (*apply_memory_reports)(bool all) noexcept = nullptr;
  /// Asked for a rule that is for all kernels; null: all are wanted.
  bool (*wants_kernel)(format::KernelId kernel) noexcept = nullptr;
  /// Called on the launching thread in front of each launch's event; null: nobody wants to know.
  void (*note_launch)() noexcept = nullptr;
  /// Called once, when the program uses its first context: cuInit is over. Maybe inside a CUPTI
  /// callback. Null: nobody wants to know.
  void (*note_context)() noexcept = nullptr;
  settings::RuleBook* rules = nullptr;  ///< of this rank; outlives the interceptor
  std::string cupti_path;               ///< CONVTRACE_CUPTI or empty
  bool record_launches = true;          ///< false below mode `launches`
  bool compute_values = true;           ///< false below mode `hash`: contexts are not prepared
  uint32_t samples = 8;                 ///< of values that a rule says nothing else for
  bool poison = false;                  ///< see quarantine.h, as the next
  bool quarantine = false;
  ValueSink* values = nullptr;  ///< null: no value is stored whole; outlives the interceptor
  uint64_t value_bytes = 0;     ///< of each context's memory, for values on their way
};

}  // namespace convtrace::cupti
