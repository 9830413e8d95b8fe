#include "tools/diff/whole/held.h"

#include "tools/trace/model/hash_mix.h"

namespace convtrace::diff {
namespace {

/// Exchanged values depend on the number of ranks, so the other run has no counterpart.
bool is_exchanged(const ValueRecord& record) {
  return record.kind == Role::kSent || record.kind == Role::kReceived;
}

}  // namespace

uint64_t content_of(const Held& held) {
  return mix_all({held.record->stats.hash, held.record->stats.count});
}

void HeldValue::count_contents() {
  contents.clear();
  for (const Held& held : by_rank) ++contents[content_of(held)];
}

bool may_be_added(const Held& held) {
  const ValueRecord& record = *held.record;
  return has_statistics(held) && record.stats.finite == record.stats.count &&
         format::number_class(record.dtype) == format::NumberClass::kFloat &&
         (record.stats.count == 1 || record.stats.sketch.is_known());
}

void HeldStep::add(const StepRecords& step, uint32_t rank, uint64_t clock) {
  may_be_cut_ |= step.may_be_cut;
  if (!has_launches_) launches_ = step.launches;
  has_launches_ = true;
  // A value that was recorded before may have only a hash: equal bytes have equal statistics.
  std::unordered_map<uint64_t, const ValueRecord*> measured;
  const auto bytes_of = [](const ValueRecord& record) {
    return mix_all({record.stats.hash, record.stats.count, static_cast<uint64_t>(record.dtype)});
  };
  for (const ValueRecord& record : step.values) {
    if (record.capture != format::Capture::kHash) measured.emplace(bytes_of(record), &record);
  }
  for (const ValueRecord& record : step.values) {
    if (is_exchanged(record)) continue;
    const auto [number, is_new] = numbers_.try_emplace(record.key, values_.size());
    if (is_new) values_.push_back({.key = record.key, .at = record.t_ns + clock});
    const ValueRecord* own = &record;
    const auto known =
        record.capture == format::Capture::kHash ? measured.find(bytes_of(record)) : measured.end();
    if (known != measured.end()) {
      ValueRecord& completed = completed_.emplace_back(record);
      completed.capture = known->second->capture;
      completed.stats = known->second->stats;
      completed.samples_at = known->second->samples_at;
      completed.samples_bytes = known->second->samples_bytes;
      own = &completed;
    }
    values_[number->second].by_rank.push_back({&step, own, rank});
  }
}

void HeldStep::clear() {
  values_.clear();
  numbers_.clear();
  completed_.clear();
  launches_.clear();
  has_launches_ = may_be_cut_ = false;
}

}  // namespace convtrace::diff
