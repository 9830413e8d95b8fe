#include "format/findings/collectives/flight_judge.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "format/findings/common/wording.h"

namespace convtrace::judge {
namespace {

constexpr size_t kMostUses = 4096;
constexpr size_t kMostTensors = 4096;   // tensors of one op
constexpr size_t kMostParameters = 64;  // parameters of one module

bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

/// @return whether a recorded tensor certainly shares memory with the collective's tensor `call`. That
/// one is dense, as backends require. The strides of the recorded tensor are not known, so only its
/// first element is certain to be its own, or all bytes if it fills its storage.
bool takes(const format::Op& call, const format::ValueId& value, uint64_t address, uint64_t bytes) {
  if (bytes == 0) return false;
  const bool same_storage = value.storage != 0 && value.storage == call.value.storage;
  const bool same_life = value.generation != 0 && value.generation == call.value.generation;
  if (!same_storage && !same_life) return false;
  const bool begins_inside = address >= call.address && address < call.address + call.bytes;
  const bool has_all = same_storage && bytes >= call.storage_bytes &&
                       overlap(address, bytes, call.address, call.bytes);
  return begins_inside || has_all;
}

}  // namespace

void FlightJudge::see(const format::Event& event, Findings& findings) {
  if (const auto* op = std::get_if<format::Op>(&event)) return on(*op, findings);
  const auto* const stats = std::get_if<format::TensorStats>(&event);
  any_ |= stats != nullptr && stats->collective != 0;
  if (const auto* call = std::get_if<format::Collective>(&event)) buckets_.see(*call);
  if (!any_) return;
  if (stats != nullptr) {
    on(*stats, findings);
  } else if (const auto* scope = std::get_if<format::Scope>(&event)) {
    if (scope->place.phase == format::Phase::kBackward) exchanged_.forget();
    if (!flights_.empty()) on(*scope, findings);
  } else if (const auto* loss = std::get_if<format::Loss>(&event)) {
    if (loss->reason == format::LossReason::kQueueFull) forget();
  }
}

void FlightJudge::on(const format::Op& event, Findings& findings) {
  using enum format::OpMoment;
  if (event.moment == kInFlight) return on_call(event, findings);
  if (event.moment == kAwaited) return on_awaited(event, findings);
  if (flights_.empty()) return;
  if (event.moment == kBegin) begun_[event.header.thread] = last_;
  if (event.moment == kInput || event.moment == kOutput) {
    std::vector<format::Op>& tensors = tensors_[event.header.thread];
    if (tensors.size() < kMostTensors) tensors.push_back(event);
  }
  if (event.moment == kEnd) on_op_end(event, findings);
}

void FlightJudge::on_call(const format::Op& event, Findings& findings) {
  any_ = true;
  if (event.written) buckets_.begins(event);
  Flight flight{.serial = ++last_, .call = event, .told = false, .changed = {}};
  for (Flight& other : flights_) {
    // Two calls may send the same memory.
    if (!event.written && !other.call.written) continue;
    if (!overlap(event.address, event.bytes, other.call.address, other.call.bytes)) continue;
    if (event.value.storage != other.call.value.storage &&
        (event.value.generation == 0 || event.value.generation != other.call.value.generation))
      continue;
    FlightFinding finding;
    finding.kind = format::FindingKind::kReceiveOverlaps;
    finding.header = event.header;
    finding.place = event.place;
    finding.call = event;
    finding.other = other.call;
    finding.address = std::max(event.address, other.call.address);
    finding.bytes = std::min(event.address + event.bytes, other.call.address + other.call.bytes) -
                    finding.address;
    report(std::move(finding), flight, findings);
    break;
  }
  if (flights_.size() == kMost) flights_.erase(flights_.begin());
  flights_.push_back(std::move(flight));
}

void FlightJudge::on_awaited(const format::Op& event, Findings& findings) {
  const auto at = std::ranges::find_if(flights_, [&event](const Flight& one) {
    return one.call.value.storage == event.value.storage && one.call.address == event.address &&
           one.call.bytes == event.bytes && one.call.op == event.op && one.call.slot == event.slot;
  });
  if (at == flights_.end()) return;
  std::erase_if(uses_, [at](const Use& use) { return use.flight == at->serial; });
  if (event.written && !at->told) {
    FlightFinding finding;
    finding.header = event.header;
    finding.place = event.place;
    if (at->changed) {
      finding.header.step = at->changed->header.step;
      finding.place = at->changed->place;
      finding.slot = at->changed->slot;
    }
    finding.address = event.address;
    finding.bytes = event.bytes;
    finding.call = at->call;
    finding.written = true;
    finding.until = event.stack;
    report(std::move(finding), *at, findings);
  }
  flights_.erase(at);
}

/// Judges the inputs of an op when it has returned. An input that it returns unchanged was only passed
/// on, not used.
void FlightJudge::on_op_end(const format::Op& end, Findings& findings) {
  const auto tensors = tensors_.extract(end.header.thread);
  if (tensors.empty()) return;
  const auto begun = begun_.find(end.header.thread);
  for (const format::Op& input : tensors.mapped()) {
    if (input.moment != format::OpMoment::kInput || begun == begun_.end()) continue;
    const bool handed_on =
        !input.written && std::ranges::any_of(tensors.mapped(), [&](const auto& one) {
          return one.moment == format::OpMoment::kOutput &&
                 one.value.storage == input.value.storage &&
                 one.value.version == input.value.version;
        });
    if (handed_on) continue;
    for (Flight& flight : flights_) {
      if (flight.serial > begun->second || !(flight.call.written || input.written)) continue;
      if (!takes(flight.call, input.value, input.address, input.bytes)) continue;
      FlightFinding finding;
      finding.header = end.header;
      finding.place = end.place;
      finding.slot = input.slot;
      finding.user = end.op;
      finding.address = input.address;
      finding.bytes = input.bytes;
      finding.call = flight.call;
      report(std::move(finding), flight, findings);
    }
  }
}

FlightJudge::Kind FlightJudge::kind_of(format::StringId slot) {
  if (slot.value >= kinds_.size()) kinds_.resize(slot.value + size_t{1});
  std::optional<Kind>& kind = kinds_[slot.value];
  if (kind) return *kind;
  const std::string_view text = definitions_.text(slot), name = text.substr(0, text.find(':'));
  kind = name == "input"            ? Kind::kInput
         : name == "output"         ? Kind::kOutput
         : name == "grad_output"    ? Kind::kOutputGradient
         : name == "grad"           ? Kind::kGradient
         : name == "grad_unclipped" ? Kind::kUnclipped
         : name == "grad_norm"      ? Kind::kNorm
         : name == "param"          ? Kind::kParameter
                                    : Kind::kOther;
  return *kind;
}

void FlightJudge::on(const format::TensorStats& event, Findings& findings) {
  if (event.collective != 0) {
    exchanged_.see(event);
    buckets_.see(event);
    look_at_windows(event, findings);
  }
  if (event.op || event.collective != 0) return;
  const Kind kind = kind_of(event.slot);
  const bool updated = kind == Kind::kParameter && event.place.phase == format::Phase::kOptimizer;
  if (kind == Kind::kParameter) keep(event);
  if (kind == Kind::kGradient) look_at_gradient(event, findings);
  if (kind == Kind::kGradient || kind == Kind::kUnclipped)
    buckets_.take(event, kind == Kind::kUnclipped);
  if (updated) {
    exchanged_.forget();
    look_at_buckets(findings);
  }
  if (flights_.empty()) return;
  const uint32_t thread = event.header.thread;
  if (updated || kind == Kind::kNorm) {
    end_uses(findings, [&](const Use& use) {
      return use.end == End::kOptimizer && use.finding.header.thread == thread;
    });
  }
  if (kind == Kind::kOutput) pass_on(event);
  for (Flight& flight : flights_) {
    if (!flight.changed && event.value.storage == flight.call.value.storage &&
        event.value.version != flight.call.value.version)
      flight.changed = event;
  }
  const End end = kind == Kind::kInput                                  ? End::kModule
                  : kind == Kind::kOutputGradient                       ? End::kBackward
                  : kind == Kind::kGradient || kind == Kind::kUnclipped ? End::kOptimizer
                                                                        : End::kNone;
  if (end != End::kNone)
    take(event.header, event.place, event.slot, {event.value, event.address, event.bytes}, end);
}

void FlightJudge::look_at_buckets(Findings& findings) {
  const std::optional<FlatBuckets::Found> found = buckets_.updated();
  if (!found) return;
  FlightFinding finding;
  finding.header = found->header;
  finding.place = found->place;
  finding.slot = found->slot;
  finding.address = found->call.address;
  finding.bytes = found->call.bytes;
  finding.call = found->call;
  finding.copied = found->gradients;
  finding.ranks = found->ranks;
  finding.level = format::Level::kInfo;  // ranks that average weights instead do so on purpose
  say(std::move(finding), findings);
}

void FlightJudge::look_at_gradient(const format::TensorStats& event, Findings& findings) {
  const std::optional<Exchanged::Overwritten> found = exchanged_.look(event);
  if (!found) return;
  FlightFinding finding;
  finding.kind = format::FindingKind::kReceiveOverlaps;
  finding.header = event.header;
  finding.place = event.place;
  finding.slot = event.slot;
  finding.address = found->address;
  finding.bytes = found->bytes;
  finding.whole = event.bytes;
  finding.reduced = found->is_reduced;
  if (finding.reduced)  // it may have brought the same bytes
    finding.level = found->straddles ? format::Level::kWarning : format::Level::kInfo;
  finding.call.header = found->by.header;
  finding.call.op = found->by.op;
  finding.call.slot = found->by.slot;
  finding.call.value = event.value;
  say(std::move(finding), findings);
}

/// Two tensors that one call receives and that overlap. Calls that are not waited for are judged when
/// they are made.
void FlightJudge::look_at_windows(const format::TensorStats& event, Findings& findings) {
  if (event.layout != 0) return;
  if (std::exchange(receiving_, event.collective) != event.collective) {
    windows_.clear();
    sent_.reset();
  }
  const std::string_view slot = definitions_.text(event.slot);
  if (slot == "sent:0") sent_ = {event.bytes, event.stats.hash};
  if (!slot.starts_with("received") || !flights_.empty() || windows_.size() == kMostTensors) return;
  const bool is_own_part_lost = definitions_.text(event.op) == "all_gather" && sent_ &&
                                sent_->bytes == event.bytes && sent_->hash != event.stats.hash;
  for (const Window& other : windows_) {
    const bool same = event.address == other.memory.address && event.bytes == other.memory.bytes;
    if ((same && !is_own_part_lost) || event.value.storage != other.memory.value.storage ||
        !overlap(event.address, event.bytes, other.memory.address, other.memory.bytes))
      continue;
    FlightFinding finding;
    finding.kind = format::FindingKind::kReceiveOverlaps;
    finding.header = event.header;
    finding.place = event.place;
    finding.call.header = event.header;
    finding.call.op = event.op;
    finding.call.slot = event.slot;
    finding.call.value = event.value;
    finding.other.slot = other.slot;
    finding.one_call = true;
    if (same) finding.level = format::Level::kWarning;
    finding.address = std::max(event.address, other.memory.address);
    finding.bytes =
        std::min(event.address + event.bytes, other.memory.address + other.memory.bytes) -
        finding.address;
    say(std::move(finding), findings);
    break;
  }
  windows_.push_back({event.slot, {event.value, event.address, event.bytes}});
}

void FlightJudge::take(const format::EventHeader& header, const format::Place& place,
                       format::StringId slot, const Memory& memory, End end) {
  for (const Flight& flight : flights_) {
    if (!flight.call.written || flight.told || uses_.size() == kMostUses) continue;
    if (!takes(flight.call, memory.value, memory.address, memory.bytes)) continue;
    FlightFinding finding;
    finding.header = header;
    finding.place = place;
    finding.slot = slot;
    finding.address = memory.address;
    finding.bytes = memory.bytes;
    finding.call = flight.call;
    uses_.push_back({.flight = flight.serial, .end = end, .finding = std::move(finding)});
  }
}

/// A module that is left with the tensor among its outputs has handed it on.
void FlightJudge::pass_on(const format::TensorStats& output) {
  std::erase_if(uses_, [&](const Use& use) {
    return use.end == End::kModule && use.finding.header.thread == output.header.thread &&
           use.finding.place.scope == output.place.scope &&
           output.value.version == use.finding.call.value.version &&
           takes(use.finding.call, output.value, output.address, output.bytes);
  });
}

void FlightJudge::on(const format::Scope& event, Findings& findings) {
  using enum format::Phase;
  const format::Phase phase = event.place.phase;
  if (event.enter) {
    if (phase == kForward || phase == kEvaluation) take_parameters(event);
  } else if (phase == kBackward) {
    end_uses(findings, [&](const Use& use) {
      return use.end == End::kBackward && use.finding.header.thread == event.header.thread;
    });
  } else {
    end_uses(findings, [&](const Use& use) {
      return use.end == End::kModule && use.finding.header.thread == event.header.thread &&
             use.finding.place.scope == event.place.scope;
    });
  }
}

void FlightJudge::keep(const format::TensorStats& event) {
  std::vector<Parameter>& known = parameters_[event.place.scope.value];
  const auto at = std::ranges::find(known, event.slot, &Parameter::slot);
  const Parameter now{event.slot, {event.value, event.address, event.bytes}};
  if (at != known.end()) {
    *at = now;
  } else if (known.size() < kMostParameters) {
    known.push_back(now);
  }
}

/// A module may leave a parameter alone, but hardly all that it has.
void FlightJudge::take_parameters(const format::Scope& event) {
  const auto known = parameters_.find(event.place.scope.value);
  if (known == parameters_.end()) return;
  const auto in_flight = [this](const Parameter& one) {
    return std::ranges::any_of(flights_, [&one](const Flight& flight) {
      return flight.call.written &&
             takes(flight.call, one.memory.value, one.memory.address, one.memory.bytes);
    });
  };
  if (!std::ranges::all_of(known->second, in_flight)) return;
  for (const Parameter& one : known->second)
    take(event.header, event.place, one.slot, one.memory, End::kModule);
}

template <typename Which>
void FlightJudge::end_uses(Findings& findings, Which&& which) {
  std::vector<Use> ended;
  std::erase_if(uses_, [&](const Use& use) {
    if (!which(use)) return false;
    ended.push_back(use);
    return true;
  });
  for (Use& use : ended)
    if (Flight* const flight = find(use.flight)) report(std::move(use.finding), *flight, findings);
}

FlightJudge::Flight* FlightJudge::find(uint64_t serial) {
  const auto at = std::ranges::find(flights_, serial, &Flight::serial);
  return at == flights_.end() ? nullptr : &*at;
}

/// One finding for a call's tensor: what follows the first use may be its consequence.
void FlightJudge::report(FlightFinding finding, Flight& flight, Findings& findings) {
  if (flight.told) return;
  flight.told = true;
  say(std::move(finding), findings);
}

void FlightJudge::say(FlightFinding finding, Findings& findings) {
  finding.occurrence = ++occurrences_[{finding.kind, finding.call.op, finding.call.slot,
                                       finding.place.scope, finding.slot}];
  if (worth_saying(finding.occurrence)) findings.push_back(std::move(finding));
}

void FlightJudge::forget() {
  windows_.clear();
  sent_.reset();
  exchanged_.forget();
  buckets_.forget();
  flights_.clear();
  uses_.clear();
  tensors_.clear();
  begun_.clear();
}

}  // namespace convtrace::judge
