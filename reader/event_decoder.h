#pragma once
/// @file event_decoder.h
/// Decodes the events of one EVENTS payload in seq order, a few at a time.
///
/// Place:    trace_reader.cpp; format/file/event_encoder.h is its mirror.
/// Threads:  one owner thread.
/// Errors:   load() verifies everything, so next() cannot fail on a hostile payload.
/// Source:   format/FORMAT.md section 6.

#include <memory>
#include <span>
#include <vector>

#include "format/base/bytes.h"
#include "format/base/status.h"
#include "format/file/columns/step_sums.h"
#include "format/model/events.h"
#include "reader/columns/definition_check.h"
#include "reader/kind_set.h"

namespace convtrace::reader {

class EventDecoder {
 public:
  EventDecoder();
  ~EventDecoder();

  /// @param raw         payload, aligned to 8 bytes; borrowed until the next load().
  /// @param item_count  from the record header; must be the number of events in the payload.
  /// @param wanted      events of other kinds are not decoded, and their columns not checked.
  /// @return kCorrupt, kLimitExceeded; then there are no events.
  [[nodiscard]] Status load(Bytes raw, uint32_t item_count, KindSet wanted = kAllKinds);

  /// Removes the chunk: there are no events.
  void clear();

  /// @return the step sums that the chunk contains; none if they are damaged.
  [[nodiscard]] std::vector<format::StepSums> sums() const;

  /// @return the number of the first event; the others follow without gaps.
  [[nodiscard]] uint64_t first_seq() const;

  /// @return whether all ids in the wanted and understood events are defined. If so,
  /// DefinitionCheck::resolves() need not be called for each event.
  [[nodiscard]] bool resolved_by(const DefinitionCheck& check) const;

  /// Decodes the next events, at most kBatch, in seq order. Skips events with a kind or an
  /// enumerator that a newer version added.
  /// @return nothing at the end. Events, with their spans and texts, are valid until the next call,
  /// load() or clear(). Enumerators are always ones of events.h; definition ids are not checked.
  [[nodiscard]] std::span<const format::Event> next();
  static constexpr size_t kBatch = 64;

  /// @return the number of events that next() has skipped since load().
  [[nodiscard]] uint64_t not_understood() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::reader
