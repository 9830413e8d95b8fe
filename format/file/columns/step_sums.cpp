#include "format/file/columns/step_sums.h"

#include <algorithm>
#include <array>

#include "format/base/checksum.h"
#include "format/file/columns/words.h"
#include "format/schema/sums_generated.h"

namespace convtrace::format {
namespace {

template <size_t N>
uint64_t mix(const std::array<uint64_t, N>& words) {
  return checksum64(std::as_bytes(std::span(words)));
}

// The first word of a key.
constexpr uint64_t kLaunchKey = 0, kValueKey = 1, kFactKey = 2;

}  // namespace

void merge(std::vector<StepSums>& sums) {
  std::ranges::stable_sort(sums, {}, &StepSums::step);
  size_t kept = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (kept > 0 && sums[kept - 1].step == sums[i].step) {
      sums[kept - 1] += sums[i];
    } else {
      sums[kept++] = sums[i];
    }
  }
  sums.resize(kept);
}

std::unique_ptr<wire::StepSumsT> pack(std::span<const StepSums> sums) {
  if (sums.empty()) return nullptr;
  auto to = std::make_unique<wire::StepSumsT>();
  for (const StepSums& row : sums) {
    to->step.push_back(row.step);
    to->launches.push_back(row.launches);
    to->values.push_back(row.values);
    to->key_sum.push_back(row.key_sum);
    to->value_sum.push_back(row.value_sum);
  }
  return to;
}

void StepSummer::Occurrences::restart() {
  used_ = 0;
  if (++epoch_ != 0) return;
  std::ranges::fill(entries_, Entry{});  // the epoch has wrapped around: old entries would look new
  epoch_ = 1;
}

uint32_t StepSummer::Occurrences::next(uint64_t key) {
  for (size_t i = key;; ++i) {
    Entry& entry = entries_[i % entries_.size()];
    if (entry.epoch != epoch_) {
      if (used_ == kMaxKeys) return 0;
      entry = {key, epoch_, 1};
      if (++used_ > entries_.size() / 2) grow();
      return 0;
    }
    if (entry.key == key) return entry.count++;
  }
}

void StepSummer::Occurrences::grow() {
  const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(entries_.size() * 2));
  for (const Entry& entry : old) {
    if (entry.epoch != epoch_) continue;
    size_t i = entry.key;
    while (entries_[i % entries_.size()].epoch == epoch_) ++i;
    entries_[i % entries_.size()] = entry;
  }
}

uint64_t StepSummer::text_hash(StringId id) {
  if (!id) return 0;
  if (id.value >= text_hashes_.size()) text_hashes_.resize(size_t{id.value} + 1);
  uint64_t& hash = text_hashes_[id.value];
  if (hash == 0) hash = checksum64(bytes_of(definitions_.text(id)));
  return hash;
}

uint64_t StepSummer::family_hash(KernelId id) {
  if (!id) return 0;
  if (id.value >= family_hashes_.size()) family_hashes_.resize(size_t{id.value} + 1);
  uint64_t& hash = family_hashes_[id.value];
  if (hash == 0) hash = text_hash(definitions_.kernel(id).family);
  return hash;
}

StepSums& StepSummer::sums_of(uint32_t step) {
  if (last_ < sums_.size() && sums_[last_].step == step) return sums_[last_];
  const auto known = std::ranges::find(sums_, step, &StepSums::step);
  last_ = static_cast<size_t>(known - sums_.begin());
  if (known == sums_.end()) sums_.push_back({.step = step});
  return sums_[last_];
}

uint64_t StepSummer::occurrence_of(uint64_t key, uint32_t step) {
  if (step != step_) {
    step_ = step;
    occurrences_.restart();
  }
  const uint32_t occurrence = occurrences_.next(key);
  return occurrence == 0 ? key : mix<2>({key, occurrence});
}

uint64_t StepSummer::key_of(const Launch& e) {
  return mix<8>({kLaunchKey, text_hash(e.place.scope), family_hash(e.kernel),
                 pair(e.place.call, static_cast<uint32_t>(e.place.phase)),
                 pair(e.grid[0], e.grid[1]), pair(e.grid[2], e.block[0]),
                 pair(e.block[1], e.block[2]), e.shared_bytes});
}

void StepSummer::add(const Launch& e, uint32_t signature) {
  if (signature == launch_keys_.size()) launch_keys_.push_back(key_of(e));
  StepSums& sums = sums_of(e.header.step);
  ++sums.launches;
  sums.key_sum += launch_keys_[signature];
}

void StepSummer::add(const TensorStats& e) {
  const uint64_t shape = e.has_shape ? checksum64(std::as_bytes(e.shape)) : 0;
  const uint64_t key = mix<9>(
      {kValueKey, text_hash(e.place.scope), family_hash(e.kernel),
       pair(e.place.call, static_cast<uint32_t>(e.place.phase)), text_hash(e.op), text_hash(e.slot),
       pair(static_cast<uint32_t>(e.dtype), static_cast<uint32_t>(e.extent)), e.stats.count,
       shape});
  StepSums& sums = sums_of(e.header.step);
  ++sums.values;
  const uint64_t occurrence = occurrence_of(key, e.header.step);
  sums.key_sum += occurrence;
  sums.value_sum += mix<2>({occurrence, e.stats.hash});
}

void StepSummer::add(const Fact& e) {
  if (is_location(definitions_.text(e.name))) return;
  sums_of(e.header.step).value_sum +=
      mix<4>({kFactKey, text_hash(e.scope), text_hash(e.name), checksum64(bytes_of(e.value))});
}

const std::vector<StepSums>& StepSummer::sums() {
  merge(sums_);
  last_ = 0;
  return sums_;
}

}  // namespace convtrace::format
