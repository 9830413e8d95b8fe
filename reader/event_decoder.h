#pragma once
/// @file event_decoder.h
/// The events of one EVENTS payload, one after another in seq order.
///
/// Place:    trace_reader.cpp; format/event_encoder.h is its mirror.
/// Threads:  one owner thread.
/// Errors:   load() verifies everything, so next() cannot fail on a hostile payload.
/// Source:   format/FORMAT.md section 6.

#include <memory>
#include <vector>

#include "format/base/bytes.h"
#include "format/base/status.h"
#include "format/events.h"
#include "format/step_sums.h"
#include "reader/definition_check.h"

namespace convtrace::reader {

class EventDecoder {
 public:
  EventDecoder();
  ~EventDecoder();

  /// @param raw         payload, aligned to 8 bytes; borrowed until the next load().
  /// @param item_count  from the record header; must be what the payload holds.
  /// @return kCorrupt, kLimitExceeded; then there are no events.
  [[nodiscard]] Status load(Bytes raw, uint32_t item_count);

  /// Forgets the chunk: no events.
  void clear();

  /// @return the step sums that the chunk states of itself; none if they are damaged.
  [[nodiscard]] std::vector<format::StepSums> sums() const;

  /// @return number of the first event; those after it have the next ones.
  [[nodiscard]] uint64_t first_seq() const;

  /// @return whether all that the events name is defined, of those that are understood; then
  /// DefinitionCheck::resolves() need not be asked for each.
  [[nodiscard]] bool resolved_by(const DefinitionCheck& check) const;

  enum class Outcome : uint8_t {
    kEvent,
    kNotUnderstood,  ///< of a kind, or with an enumerator, that a newer version added; what
                     ///< `event` holds then means nothing
    kEnd,
  };
  /// Spans and texts of `event` are valid until the next load() or clear(). Enumerators are always
  /// ones that events.h names; definition ids are not checked.
  Outcome next(format::Event& event);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::reader
