#include "interposer/core/writer/flight_recorder.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "format/base/clock.h"
#include "interposer/core/queue/event_pack.h"

namespace convtrace::engine {
namespace {

constexpr size_t kPieceWords = size_t{1} << 15;

/// Precedes each packed event.
struct EventHead {
  uint32_t kind;
  uint32_t words;  ///< size of the event, without this
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

/// @return the most serious of them; null if there is none.
const char* name_of(std::bitset<settings::kTriggerCount> triggers) {
  using settings::Trigger;
  if (triggers.test(static_cast<size_t>(Trigger::kAlias))) return "alias";
  if (triggers.test(static_cast<size_t>(Trigger::kNan))) return "nan";
  if (triggers.test(static_cast<size_t>(Trigger::kSpike))) return "spike";
  return nullptr;
}

}  // namespace

/// -inf alone is no error: attention masks contain it.
FlightRecorder::Triggers FlightRecorder::triggers_of(const format::Event& event) {
  using settings::Trigger;
  Triggers found;
  const auto set_if = [&found](Trigger trigger, bool is) {
    found.set(static_cast<size_t>(trigger), is);
  };
  if (const auto* tensor = std::get_if<format::TensorStats>(&event)) {
    const format::Stats& s = tensor->stats;
    if (tensor->capture == format::Capture::kHash) return found;
    set_if(Trigger::kNan, s.nan + s.pos_inf > 0);
    const bool is_loss = tensor->place.phase == format::Phase::kLoss;
    set_if(Trigger::kSpike, is_loss && losses_.is_spike(s.mean));
  } else if (const auto* finding = std::get_if<format::Finding>(&event)) {
    set_if(Trigger::kAlias, finding->level == format::Level::kError && !finding->suppressed);
  }
  return found & ring_.triggers;
}

const char* FlightRecorder::keep(const format::Event& event) {
  if (std::holds_alternative<format::Step>(event)) {
    ++step_;
    step_number_ = header_of(event).step;
  }
  const size_t words = packed_bytes(event) / sizeof(uint64_t);
  Piece& piece = piece_for(1 + words);
  const size_t at = piece.words.size();
  piece.words.resize(at + 1 + words);
  const EventHead head{static_cast<uint32_t>(event.index()), static_cast<uint32_t>(words)};
  std::memcpy(&piece.words[at], &head, sizeof head);
  pack(event, reinterpret_cast<std::byte*>(&piece.words[at + 1]));
  ++piece.events;
  bytes_ += (1 + words) * sizeof(uint64_t);
  const char* const reason = name_of(due(event));
  if (reason == nullptr) let_go_of_old();  // otherwise everything is about to be written
  return reason;
}

FlightRecorder::Triggers FlightRecorder::due(const format::Event& event) {
  if (std::holds_alternative<format::Step>(event)) return used_ = std::exchange(owed_, {});
  const Triggers found = triggers_of(event);
  owed_ |= found & used_;
  const Triggers now = found & ~used_;
  used_ |= now;
  return now;
}

uint64_t FlightRecorder::bytes_of(const Piece& piece) {
  return sizeof(Piece) + piece.words.size() * sizeof(uint64_t);
}

FlightRecorder::Piece& FlightRecorder::piece_for(size_t words) {
  const bool fits = !pieces_.empty() && pieces_.back().step == step_ &&
                    pieces_.back().words.capacity() - pieces_.back().words.size() >= words;
  if (!fits) {
    if (!pieces_.empty()) pieces_.back().words.shrink_to_fit();
    Piece piece{.step = step_, .words = {}};
    piece.words.reserve(std::max(words, kPieceWords));
    pieces_.push_back(std::move(piece));
    bytes_ += bytes_of(pieces_.back());
  }
  return pieces_.back();
}

void FlightRecorder::let_go_of_old() {
  while (pieces_.size() > 1 &&
         (pieces_.front().step + ring_.steps <= step_ || bytes_ > max_bytes_)) {
    gone_ += pieces_.front().events;
    bytes_ -= bytes_of(pieces_.front());
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
  owed_.reset();
  if (!first_trigger_.empty()) return kOkStatus;
  first_trigger_ = std::string(reason) + " in step " + std::to_string(step_number_);
  return trace.flush();
}

Status FlightRecorder::finish(format::TraceWriter& trace) {
  if (owed_.any()) CONVTRACE_TRY(write(trace, name_of(owed_)));
  uint64_t unwritten = gone_;
  for (const Piece& piece : pieces_) unwritten += piece.events;
  char text[128];
  std::snprintf(text, sizeof text, "%" PRIu64 " events since the last trigger were not written",
                unwritten);
  return say(trace, text);
}

}  // namespace convtrace::engine
