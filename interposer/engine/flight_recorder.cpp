#include "interposer/engine/flight_recorder.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "interposer/engine/clock.h"
#include "interposer/engine/event_pack.h"

namespace convtrace::engine {
namespace {

constexpr size_t kPieceWords = size_t{1} << 15;

/// In front of each packed event.
struct EventHead {
  uint32_t kind;
  uint32_t words;  ///< of the event, without this
};
static_assert(sizeof(EventHead) == sizeof(uint64_t));

Status say(format::TraceWriter& trace, const char* text) {
  format::Diagnostic event;
  event.header.t_ns = now_ns();
  event.header.step = format::kNoStep;
  event.level = format::Level::kInfo;
  event.site = "flight recorder";
  event.message = text;
  return trace.append(event);
}

}  // namespace

const char* FlightRecorder::trigger(const format::Event& event) const {
  using settings::Trigger;
  if (const auto* tensor = std::get_if<format::TensorStats>(&event)) {
    const format::Stats& s = tensor->stats;
    const bool bad = tensor->capture != format::Capture::kHash && s.nan + s.pos_inf + s.neg_inf > 0;
    return bad && ring_.on(Trigger::kNan) ? "nan" : nullptr;
  }
  if (const auto* finding = std::get_if<format::Finding>(&event)) {
    const bool bad = finding->level == format::Level::kError && !finding->suppressed;
    return bad && ring_.on(Trigger::kAlias) ? "alias" : nullptr;
  }
  return nullptr;
}

const char* FlightRecorder::keep(const format::Event& event) {
  if (std::holds_alternative<format::Step>(event)) ++step_;
  const size_t words = packed_bytes(event) / sizeof(uint64_t);
  Piece& piece = piece_for(1 + words);
  const size_t at = piece.words.size();
  piece.words.resize(at + 1 + words);
  const EventHead head{static_cast<uint32_t>(event.index()), static_cast<uint32_t>(words)};
  std::memcpy(&piece.words[at], &head, sizeof head);
  pack(event, reinterpret_cast<std::byte*>(&piece.words[at + 1]));
  ++piece.events;
  let_go_of_old();
  return trigger(event);
}

FlightRecorder::Piece& FlightRecorder::piece_for(size_t words) {
  const bool fits = !pieces_.empty() && pieces_.back().step == step_ &&
                    pieces_.back().words.capacity() - pieces_.back().words.size() >= words;
  if (!fits) {
    Piece piece{.step = step_, .words = {}};
    piece.words.reserve(std::max(words, kPieceWords));
    bytes_ += piece.words.capacity() * sizeof(uint64_t);
    pieces_.push_back(std::move(piece));
  }
  return pieces_.back();
}

void FlightRecorder::let_go_of_old() {
  while (pieces_.size() > 1 &&
         (pieces_.front().step + ring_.steps <= step_ || bytes_ > max_bytes_)) {
    gone_ += pieces_.front().events;
    bytes_ -= pieces_.front().words.capacity() * sizeof(uint64_t);
    pieces_.pop_front();
  }
}

Status FlightRecorder::write(format::TraceWriter& trace, const char* reason) {
  char text[160];
  std::snprintf(text, sizeof text,
                "trigger %s: at most %" PRIu32 " steps follow; %" PRIu64
                " older events were not written",
                reason, ring_.steps, gone_);
  CONVTRACE_TRY(say(trace, text));
  for (const Piece& piece : pieces_) {
    for (size_t at = 0; at < piece.words.size();) {
      EventHead head;
      std::memcpy(&head, &piece.words[at], sizeof head);
      const auto* packed = reinterpret_cast<const std::byte*>(&piece.words[at + 1]);
      CONVTRACE_TRY(trace.append(unpack(head.kind, packed)));
      at += 1 + head.words;
    }
  }
  pieces_.clear();
  bytes_ = gone_ = 0;
  return trace.flush();
}

Status FlightRecorder::finish(format::TraceWriter& trace) const {
  uint64_t unwritten = gone_;
  for (const Piece& piece : pieces_) unwritten += piece.events;
  char text[128];
  std::snprintf(text, sizeof text, "%" PRIu64 " events since the last trigger were not written",
                unwritten);
  return say(trace, text);
}

}  // namespace convtrace::engine
