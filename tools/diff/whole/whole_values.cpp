#include "tools/diff/whole/whole_values.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "cupti/stats/tile/hash.h"
#include "tools/common/element.h"
#include "tools/common/text.h"
#include "tools/diff/compare/compare.h"
#include "tools/diff/model/hash_mix.h"
#include "tools/diff/model/scope_map.h"
#include "tools/diff/whole/pieces.h"

namespace convtrace::diff {
namespace {

using format::NumberClass;

const ValueRecord& first_of(const HeldValue& value) { return *value.by_rank.front().record; }

/// How many ranks hold each content.
std::map<uint64_t, uint64_t> contents_of(const HeldValue& value) {
  std::map<uint64_t, uint64_t> contents;
  for (const Held& held : value.by_rank)
    ++contents[mix_all({held.record->stats.hash, held.record->stats.count})];
  return contents;
}

/// What ranks exchange belongs to the layout, as the other run has it with another number of ranks.
bool is_exchanged(const ValueRecord& record) {
  return record.kind == SlotKind::kSent || record.kind == SlotKind::kReceived;
}

bool is_activation_gradient(const ValueRecord& record) {
  return record.kind == SlotKind::kGradOutput || record.kind == SlotKind::kGradInput;
}

/// Whether modules in place of one have pieces of its value. They take the same input.
bool is_divided(SlotKind kind) {
  return kind == SlotKind::kParam || kind == SlotKind::kGrad || kind == SlotKind::kBuffer ||
         kind == SlotKind::kOutput || kind == SlotKind::kGradOutput;
}

/// The ranks whose values are pieces: of each content as many as there are copies less.
std::vector<Held> pieces_of(const HeldValue& value, uint64_t copies) {
  std::map<uint64_t, uint64_t> left = contents_of(value);
  for (auto& [content, number] : left) number /= copies;
  std::vector<Held> pieces;
  for (const Held& held : value.by_rank) {
    uint64_t& number = left[mix_all({held.record->stats.hash, held.record->stats.count})];
    if (number == 0) continue;
    --number;
    pieces.push_back(held);
  }
  return pieces;
}

/// The copy that is furthest from the other run's value.
const Held& furthest(const HeldValue& value, const HeldValue& partner) {
  const auto distance = [&other = partner.by_rank.front()](const Held& held) {
    if (held.record->stats.count != other.record->stats.count) return 0.0;  // a piece
    return measure(view(*held.step, *held.record), view(*other.step, *other.record)).rms;
  };
  return *std::ranges::max_element(value.by_rank, {}, distance);
}

/// The hash of the pieces one behind the other in the order of the ranks, as shards of the first
/// dimension and parts of a batch stand; for other pieces it only tells their contents.
uint64_t hash_of(const std::vector<Held>& pieces) {
  uint64_t hash = 0, words = 0;
  for (const Held& piece : pieces) {
    const ValueRecord& record = *piece.record;
    hash = stats::residue_sum(hash,
                              stats::residue_product(stats::hash_factor(words), record.stats.hash));
    words += (record.bytes + stats::kHashWordBytes - 1) / stats::kHashWordBytes;
  }
  return hash;
}

}  // namespace

void HeldStep::add(const StepRecords& step, int64_t clock) {
  may_be_cut_ |= step.may_be_cut;
  if (!has_launches_) launches_ = step.launches;
  has_launches_ = true;
  for (const ValueRecord& record : step.values) {
    if (is_exchanged(record)) continue;
    const auto [number, is_new] = numbers_.try_emplace(record.key, values_.size());
    if (is_new)
      values_.push_back({.key = record.key, .at = static_cast<int64_t>(record.t_ns) + clock});
    values_[number->second].by_rank.push_back({&step, &record});
  }
}

void HeldStep::clear() {
  values_.clear();
  numbers_.clear();
  launches_.clear();
  has_launches_ = may_be_cut_ = false;
}

WholeValues::WholeValues(format::Definitions& names, const DiffRules& rules)
    : names_(names), renames_(rules.renames), reductions_(rules.reductions), fused_(rules.fused) {}

Reduction WholeValues::reduction_of(const ValueRecord& record) const {
  for (auto rule = reductions_.rbegin(); rule != reductions_.rend(); ++rule) {
    if (fits(rule->pattern, names_, record)) return rule->reduction;
  }
  // A number that a module takes or gives is a loss, or a part of one.
  const bool is_number = record.stats.count == 1 &&
                         (record.kind == SlotKind::kInput || record.kind == SlotKind::kOutput);
  const bool is_averaged =
      is_number || record.kind == SlotKind::kLoss || record.kind == SlotKind::kGrad;
  return is_averaged ? Reduction::kMean : Reduction::kNone;
}

/// The likeliest first: copies, then the fewer the pieces, then a mean, then copies that differ.
std::vector<WholeValues::Form> WholeValues::forms_of(const HeldValue& value) const {
  const ValueRecord& first = first_of(value);
  const auto alike = [&first](const Held& held) {
    return held.record->dtype == first.dtype && held.record->capture == first.capture &&
           held.record->hashed_anew == first.hashed_anew;
  };
  if (!std::ranges::all_of(value.by_rank, alike)) return {};
  const std::map<uint64_t, uint64_t> contents = contents_of(value);
  uint64_t total = 0, most_copies = 0;
  bool one_size = true, finite = true;
  for (const Held& held : value.by_rank) {
    total += held.record->stats.count;
    one_size &= held.record->stats.count == first.stats.count;
    finite &= held.record->stats.finite == held.record->stats.count;
  }
  for (const auto& [content, number] : contents) most_copies = std::gcd(most_copies, number);
  const bool is_reduced = reduction_of(first) != Reduction::kNone &&
                          first.capture != format::Capture::kHash &&
                          format::number_class(first.dtype) == NumberClass::kFloat;
  const bool is_number = one_size && first.stats.count == 1;
  const bool in_pieces = first.extent == format::Extent::kTensor && !(is_reduced && is_number);
  std::vector<Form> forms;
  for (uint64_t copies = most_copies; copies > 0; --copies) {
    if (most_copies % copies != 0) continue;
    const bool one = value.by_rank.size() == copies;
    if (one || in_pieces)
      forms.push_back({one ? How::kCopies : How::kPieces, copies, total / copies});
  }
  if (!one_size || contents.size() == 1) return forms;
  if (is_reduced && (is_number || finite))
    forms.push_back({How::kMean, value.by_rank.size() / contents.size(), first.stats.count});
  forms.push_back({How::kUnlike, 1, first.stats.count});
  return forms;
}

std::optional<std::pair<WholeValues::Form, WholeValues::Form>> WholeValues::common(
    const std::vector<Form>& base, const std::vector<Form>& cand) {
  constexpr auto kAsTheyAre = [](const Form& form) { return form.how <= How::kPieces ? 0 : 1; };
  std::optional<std::pair<Form, Form>> best;
  int least = 3;
  for (const Form& a : base) {
    for (const Form& b : cand) {
      // Of unlike copies in both runs nothing says which belong together.
      if (a.count != b.count || (a.how == How::kUnlike && b.how == How::kUnlike)) continue;
      const int made = kAsTheyAre(a) + kAsTheyAre(b);
      if (made < least) best = {a, b};
      least = std::min(least, made);
    }
  }
  return best;
}

/// @return the key by the baseline's name of the module, as far as the user has told it.
RecordKey WholeValues::in_base(RecordKey key) {
  if (renames_.empty()) return key;
  const auto [known, is_new] = in_base_.try_emplace(key.scope.value, key.scope);
  if (is_new) {
    for (const ScopeRename& rule : renames_) {
      const auto path = renamed(names_.text(key.scope), rule.cand, rule.base);
      if (!path) continue;
      known->second = names_.intern(*path);
      break;
    }
  }
  key.scope = known->second;
  return key;
}

void WholeValues::take(Side& side, HeldValue& value, const Form& form) const {
  side.chosen.push_back({&value, form});
  const ValueRecord& first = first_of(value);
  if (first.kind == SlotKind::kLoss && form.how == How::kMean &&
      reduction_of(first) == Reduction::kMean)
    side.parts = std::max(side.parts, contents_of(value).size());
}

void WholeValues::leave(const HeldValue& base, const HeldValue& cand) {
  const auto sizes = [](const HeldValue& value) {
    return tools::counted(value.by_rank.size(), "rank") + " with " +
           tools::counted(contents_of(value).size(), "content") + " of " +
           tools::counted(first_of(value).stats.count, "element");
  };
  const RecordKey& key = base.key;
  std::string scope(names_.text(key.scope)), op(names_.text(key.op)), slot(names_.text(key.slot));
  const auto same = [&](const ApartValue& one) {
    return one.phase == key.phase && one.scope == scope && one.op == op && one.slot == slot;
  };
  auto known = std::ranges::find_if(apart_, same);
  if (known == apart_.end())
    known = apart_.insert(
        known, {.phase = key.phase,
                .scope = std::move(scope),
                .op = std::move(op),
                .slot = std::move(slot),
                .why = sizes(base) + " in the baseline, " + sizes(cand) + " in the candidate",
                .first_step = base.by_rank.front().step->step});
  ++known->values;
}

void WholeValues::pair(HeldStep& base, HeldStep& cand) {
  pairs_.clear();
  pair_of_.clear();
  for (HeldValue& value : base.values()) {
    pair_of_.emplace(value.key, pairs_.size());
    pairs_.push_back({value.key, {&value, nullptr}});
  }
  for (HeldValue& value : cand.values()) {
    const RecordKey key = in_base(value.key);
    const auto [number, is_new] = pair_of_.try_emplace(key, pairs_.size());
    if (is_new) pairs_.push_back({key, {}});
    pairs_[number->second].of[1] = &value;
  }
}

/// Gives a run that has several modules in place of one the value of that one.
void WholeValues::join_fused() {
  joined_.clear();
  for (Pair& pair : pairs_) {
    const size_t parted = pair.of[0] == nullptr ? 0 : 1;  // the run that has several
    const HeldValue* whole = pair.of[1 - parted];
    if (pair.of[parted] != nullptr || whole == nullptr || !is_divided(first_of(*whole).kind))
      continue;
    const std::string path(names_.text(pair.key.scope));
    const auto fused = fused_.find(std::string_view(path).substr(path.rfind('.') + 1));
    if (fused == fused_.end()) continue;
    std::vector<Pair*> parts;
    for (const std::string& name : fused->second) {
      RecordKey key = pair.key;
      key.scope = names_.intern(beside(path, name));
      const auto part = pair_of_.find(key);
      if (part == pair_of_.end()) break;
      Pair& found = pairs_[part->second];
      if (found.of[parted] == nullptr || found.of[1 - parted] != nullptr) break;
      parts.push_back(&found);
    }
    if (parts.size() != fused->second.size()) continue;
    const HeldValue& first = *parts.front()->of[parted];
    HeldValue joined{.key = first.key, .at = first.at};
    joined.key.scope = names_.intern(beside(names_.text(first.key.scope), fused->first));
    for (Pair* part : parts) {
      const HeldValue& value = *std::exchange(part->of[parted], nullptr);
      joined.by_rank.insert(joined.by_rank.end(), value.by_rank.begin(), value.by_rank.end());
    }
    pair.of[parted] = &joined_.emplace_back(std::move(joined));
  }
}

/// Chooses the form of each value, that of a value of one run alone by its copies.
void WholeValues::choose() {
  base_ = {};
  cand_ = {};
  partners_.clear();
  for (const auto& [key, of] : pairs_) {
    const auto [base, cand] = of;
    if (base == nullptr || cand == nullptr) {
      HeldValue* const value = base == nullptr ? cand : base;
      std::vector<Form> forms = value == nullptr ? std::vector<Form>() : forms_of(*value);
      if (forms.empty()) continue;
      if (forms.front().how == How::kUnlike) forms.front().how = How::kCopies;
      take(base == nullptr ? cand_ : base_, *value, forms.front());
      continue;
    }
    const auto forms = common(forms_of(*base), forms_of(*cand));
    if (!forms) {
      leave(*base, *cand);
      continue;
    }
    take(base_, *base, forms->first);
    take(cand_, *cand, forms->second);
    partners_.emplace(base, cand);
    partners_.emplace(cand, base);
  }
}

void WholeValues::put(const Chosen& chosen, const HeldValue* partner, double factor,
                      StepRecords& whole) const {
  const std::vector<Held>& by_rank = chosen.value->by_rank;
  const std::vector<Held> pieces = pieces_of(*chosen.value, chosen.form.copies);
  const bool is_one = chosen.form.how == How::kCopies || chosen.form.how == How::kUnlike;
  const Held& shown =
      chosen.form.how == How::kUnlike ? furthest(*chosen.value, *partner) : by_rank.front();
  ValueRecord record = *shown.record;
  record.key = chosen.value->key;
  std::span<const uint64_t> shape = shown.step->shape_of(record);
  std::vector<std::byte> samples;
  if (is_one) {
    const auto borrowed = shown.step->samples_of(record);
    samples.assign(borrowed.begin(), borrowed.end());
  } else if (chosen.form.how == How::kMean) {
    std::vector<format::Stats> all;
    for (const Held& held : by_rank) all.push_back(held.record->stats);
    record.stats = mean_of(all);
    record.stats.hash = hash_of(pieces);
    if (reduction_of(record) == Reduction::kSum)
      scale(record.stats, static_cast<double>(contents_of(*chosen.value).size()));
    record.in_pieces = true;
  } else {
    bool whole_samples = chosen.form.count <= format::kMaxWhole;
    for (const Held& piece : pieces) {
      const ValueRecord& one = *piece.record;
      if (&piece != &pieces.front()) {
        add_piece(record.dtype, record.stats, one.stats);
        record.bytes += one.bytes;
      }
      const auto borrowed = piece.step->samples_of(one);
      const size_t all = one.stats.count * tools::component_bytes(one.dtype);
      whole_samples &= borrowed.size() >= all;
      if (whole_samples) samples.insert(samples.end(), borrowed.begin(), borrowed.begin() + all);
    }
    if (!whole_samples) samples.clear();
    record.stats.hash = hash_of(pieces);
    record.in_pieces = true;
    // The shape of the whole is known from a run that has it whole.
    record.has_shape = false;
    shape = {};
    if (partner != nullptr && first_of(*partner).has_shape &&
        first_of(*partner).stats.count == record.stats.count) {
      shape = partner->by_rank.front().step->shape_of(first_of(*partner));
      record.has_shape = true;
    }
  }
  if (factor != 1) {
    scale(record.stats, factor);
    samples.clear();
    record.in_pieces = true;
  }
  record.dims_at = whole.dims.size();
  record.dims_count = static_cast<uint8_t>(shape.size());
  whole.dims.insert(whole.dims.end(), shape.begin(), shape.end());
  record.samples_at = whole.samples.size();
  record.samples_bytes = static_cast<uint32_t>(samples.size());
  whole.samples.insert(whole.samples.end(), samples.begin(), samples.end());
  whole.values.push_back(record);
}

/// The gradient of an activation is that of the loss of its part of the batch, which counts for
/// 1 / parts in the mean.
void WholeValues::write(HeldStep& step, const Side& side, size_t least_parts,
                        StepRecords& whole) const {
  std::vector<const Chosen*> order;
  for (const Chosen& chosen : side.chosen) order.push_back(&chosen);
  std::ranges::stable_sort(order, {}, [](const Chosen* c) { return c->value->at; });
  const double of_gradient = static_cast<double>(least_parts) / static_cast<double>(side.parts);
  for (const Chosen* chosen : order) {
    const auto partner = partners_.find(chosen->value);
    const double factor = is_activation_gradient(first_of(*chosen->value)) ? of_gradient : 1;
    put(*chosen, partner == partners_.end() ? nullptr : partner->second, factor, whole);
  }
  whole.launches = step.launches();
  whole.may_be_cut = step.may_be_cut();
}

void WholeValues::put_together(HeldStep& base, HeldStep& cand, StepRecords& base_whole,
                               StepRecords& cand_whole) {
  pair(base, cand);
  join_fused();
  choose();
  const size_t least_parts = std::min(base_.parts, cand_.parts);
  write(base, base_, least_parts, base_whole);
  write(cand, cand_, least_parts, cand_whole);
}

}  // namespace convtrace::diff
