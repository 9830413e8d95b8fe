#include "tools/diff/whole/whole_values.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "tools/common/element.h"
#include "tools/common/text.h"
#include "tools/diff/compare/compare.h"
#include "tools/diff/model/scope_map.h"
#include "tools/trace/model/hash_mix.h"
#include "tools/trace/model/pieces.h"

namespace convtrace::diff {
namespace {

using format::NumberClass;

/// The costs of a form. A form with fewer copies of a piece than there are equal values (kByChance)
/// is used only if no other form fits.
constexpr int kAsItIs = 0, kAveraged = 1, kTermOrCopy = 2, kByChance = 3;

/// @return whether modules that replace one module divide such a value. Inputs they take whole.
bool is_divided(Role kind) {
  return kind == Role::kParameter || is_parameter_gradient(kind) || kind == Role::kBuffer ||
         kind == Role::kOutput || kind == Role::kGradOutput;
}

using format::Stats;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// @return the excess of a piece over any possible part of the whole, relative to the whole.
double excess(const ValueRecord& record, double factor, const Stats& whole) {
  const Stats& piece = record.stats;
  for (uint64_t Stats::*const count : {&Stats::nan, &Stats::pos_inf, &Stats::neg_inf})
    if (piece.*count > whole.*count) return kInfinite;
  const format::DType dtype = record.dtype;
  const auto number = [dtype](format::Scalar scalar) {
    return tools::extreme_as_double(dtype, scalar);
  };
  const auto zeros = [](const Stats& stats) {
    return static_cast<double>(stats.pos_zero + stats.neg_zero);
  };
  const double size = tools::magnitude_as_double(dtype, whole.amax);
  double most = (zeros(piece) - zeros(whole)) / static_cast<double>(piece.count);
  // An unknown number is NaN and counts as no excess.
  for (const auto& [more, scale] : {std::pair(number(piece.max) * factor - number(whole.max), size),
                                    std::pair(number(whole.min) - number(piece.min) * factor, size),
                                    std::pair(piece.l2 * factor - whole.l2, whole.l2)}) {
    if (more > 0) most = std::max(most, scale > 0 ? more / scale : kInfinite);
  }
  return most;
}

/// Finds the rank whose piece cannot be a part of the other run's value. Statistics of a whole do
/// not show which of its pieces is wrong, unless one exceeds the other run's whole: more NaNs or
/// zeros, an element beyond its extrema, a larger norm.
/// @param pieces  one of each rank. @param factor  by which they are multiplied
/// @param other  of the other run's whole value
OddRank odd_piece(const std::vector<Held>& pieces, double factor, const Stats& other) {
  OddRank odd;
  for (const Held& piece : pieces) {
    const ValueRecord& record = *piece.record;
    if (!has_statistics(piece) || record.stats.count == 0) continue;
    const double by = excess(record, factor, other);
    if (by > odd.by)
      odd = {piece.rank, by, odd.by};
    else
      odd.next = std::max(odd.next, by);
  }
  return odd;
}

/// @return the rank whose copy is unlike those of all others, which are equal, or equal to the
/// other run's copies.
OddRank odd_copy(const HeldValue& value, const HeldValue& partner) {
  std::optional<uint64_t> right;
  if (partner.contents.size() == 1 && value.contents.contains(partner.contents.begin()->first))
    right = partner.contents.begin()->first;
  for (const auto& [content, holders] : value.contents)
    if (!right && holders > 1 && holders + 1 == value.by_rank.size()) right = content;
  if (!right || value.contents.at(*right) + 1 != value.by_rank.size()) return {};
  const auto odd = std::ranges::find_if(
      value.by_rank, [&](const Held& held) { return content_of(held) != *right; });
  return {odd->rank, kInfinite, 0};
}

}  // namespace

void WholeValues::Side::begin_step() {
  chosen.clear();
  data_parts.reset();
  loss_parts = 1;
  sums_losses = false;
}

WholeValues::WholeValues(format::Definitions& names, const DiffRules& rules)
    : names_(names), renames_(rules.renames), reductions_(rules.reductions), fused_(rules.fused) {}

Reduction WholeValues::reduction_of(const ValueRecord& record) const {
  for (auto rule = reductions_.rbegin(); rule != reductions_.rend(); ++rule) {
    if (fits(rule->pattern, names_, record)) return rule->reduction;
  }
  // A number that a module takes or gives is a loss, or a part of one.
  const bool is_number =
      record.stats.count == 1 && (record.kind == Role::kInput || record.kind == Role::kOutput);
  return is_number || record.kind == Role::kLoss ? Reduction::kMean : Reduction::kNone;
}

std::vector<WholeValues::Form> WholeValues::forms_of(const HeldValue& value) const {
  const ValueRecord& first = value.first();
  uint64_t total = 0, most_copies = 0;
  bool one_size = true, finite = true, measured = true;
  for (const Held& held : value.by_rank) {
    const ValueRecord& record = *held.record;
    if (record.dtype != first.dtype || record.hashed_anew != first.hashed_anew) return {};
    total += record.stats.count;
    one_size &= record.stats.count == first.stats.count;
    finite &= record.stats.finite == record.stats.count;
    measured &= has_statistics(held);
  }
  for (const auto& [content, number] : value.contents) most_copies = std::gcd(most_copies, number);
  const bool is_reduced = one_size && value.contents.size() > 1 && measured &&
                          reduction_of(first) != Reduction::kNone &&
                          format::number_class(first.dtype) == NumberClass::kFloat &&
                          (finite || first.stats.count == 1);
  const bool is_number = is_reduced && first.stats.count == 1;
  std::vector<Form> forms;
  for (uint64_t copies = most_copies; copies > 0; --copies) {
    if (most_copies % copies != 0) continue;
    const bool one = value.by_rank.size() == copies;
    if (!one && first.extent != format::Extent::kTensor) continue;
    const bool by_chance = copies != most_copies || is_number;
    forms.push_back({one ? How::kCopies : How::kPieces, copies, total / copies,
                     by_chance ? kByChance : kAsItIs});
  }
  if (is_reduced)
    forms.push_back(
        {How::kReduced, most_copies, first.stats.count, is_number ? kAsItIs : kAveraged});
  if (one_size && value.contents.size() > 1)
    forms.push_back({How::kInFull, most_copies, first.stats.count, kTermOrCopy});
  return forms;
}

std::optional<std::pair<WholeValues::Form, WholeValues::Form>> WholeValues::common(
    const std::vector<Form>& base, const std::vector<Form>& cand, bool are_terms) {
  std::optional<std::pair<Form, Form>> best;
  for (const Form& a : base) {
    for (const Form& b : cand) {
      // Unlike copies in both runs cannot be paired; terms are compared by their sums.
      const bool unlike = a.how == How::kInFull && b.how == How::kInFull;
      if (a.count != b.count || (unlike && !are_terms)) continue;
      if (!best || a.cost + b.cost < best->first.cost + best->second.cost) best = {a, b};
    }
  }
  return best;
}

/// @return the key with the module's name in the baseline, by the user's renames.
RecordKey WholeValues::in_base(RecordKey key) {
  if (renames_.empty()) return key;
  const auto [known, is_new] = in_base_.try_emplace(key.scope.value, key.scope);
  if (is_new) {
    const auto path = path_in_base(names_.text(key.scope), renames_);
    if (path) known->second = names_.intern(*path);
  }
  key.scope = known->second;
  return key;
}

/// @return whether a gradient may belong to a value that all parts of the batch share, in both
/// runs: then the ranks' gradients are terms.
bool WholeValues::are_shared_by_parts(const HeldValue& base, const HeldValue& cand) const {
  return is_activation_gradient(base.first()) && base_.parts() > 1 && cand_.parts() > 1 &&
         std::ranges::all_of(base.by_rank, may_be_added) &&
         std::ranges::all_of(cand.by_rank, may_be_added);
}

void WholeValues::take(Side& side, HeldValue& value, const HeldValue* partner, const Form& form,
                       How partner_form) const {
  side.chosen.push_back({&value, partner, form, partner_form});
  const ValueRecord& first = value.first();
  if (first.kind == Role::kInput && first.key.phase == format::Phase::kData) {
    const size_t parts = form.how == How::kPieces ? value.by_rank.size() / form.copies : 1;
    side.data_parts = std::max(side.data_parts.value_or(1), parts);
  }
  if (first.kind != Role::kLoss) return;
  side.sums_losses |= reduction_of(first) == Reduction::kSum;
  if (form.how == How::kReduced) side.loss_parts = std::max(side.loss_parts, value.contents.size());
}

void WholeValues::leave(const HeldValue& base, const HeldValue& cand) {
  const auto sizes = [](const HeldValue& value) {
    return tools::counted(value.by_rank.size(), "rank") + " with " +
           tools::counted(value.contents.size(), "content") + " of " +
           tools::counted(value.first().stats.count, "element");
  };
  const RecordKey& key = base.key;
  std::string scope(names_.text(key.scope)), op(names_.text(key.op)), slot(names_.text(key.slot));
  ++apart_.values;
  const auto same = [&](const ApartValue& one) {
    return one.phase == key.phase && one.scope == scope && one.op == op && one.slot == slot;
  };
  auto known = std::ranges::find_if(apart_.list, same);
  if (known == apart_.list.end()) {
    if (apart_.list.size() == ApartValues::kMost) return;
    known = apart_.list.insert(
        known, {.phase = key.phase,
                .scope = std::move(scope),
                .op = std::move(op),
                .slot = std::move(slot),
                .why = sizes(base) + " in the baseline, " + sizes(cand) + " in the candidate",
                .first_step = base.by_rank.front().step->step});
  }
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
    if (pair.of[parted] != nullptr || whole == nullptr || !is_divided(whole->first().kind))
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
  base_.begin_step();
  cand_.begin_step();
  for (const auto& [key, of] : pairs_) {
    const auto [base, cand] = of;
    for (HeldValue* const value : of) {
      if (value != nullptr) value->count_contents();
    }
    if (base == nullptr || cand == nullptr) {
      HeldValue* const value = base == nullptr ? cand : base;
      std::vector<Form> forms = value == nullptr ? std::vector<Form>() : forms_of(*value);
      if (forms.empty()) continue;
      if (forms.front().how == How::kInFull) forms.front().how = How::kCopies;
      take(base == nullptr ? cand_ : base_, *value, nullptr, forms.front(), forms.front().how);
    } else if (const auto forms =
                   common(forms_of(*base), forms_of(*cand), are_shared_by_parts(*base, *cand))) {
      take(base_, *base, cand, forms->first, forms->second.how);
      take(cand_, *cand, base, forms->second, forms->first.how);
    } else {
      leave(*base, *cand);
    }
  }
}

/// @return whether each part of the batch has its own elements: pieces, or a value of one rank
/// alone, as of an expert that the other ranks' data do not choose.
bool WholeValues::is_of_parts(const Chosen& chosen) {
  return chosen.form.how == How::kPieces || chosen.value->by_rank.size() == 1;
}

WholeRecord WholeValues::made(const Chosen& chosen) const {
  const HeldValue& value = *chosen.value;
  switch (chosen.form.how) {
    case How::kCopies: break;
    case How::kPieces: return of_pieces(value, chosen.form.copies, chosen.partner);
    case How::kReduced: return reduced(value, reduction_of(value.first()));
    case How::kInFull:
      return in_full(value, *chosen.partner, chosen.partner_form == How::kInFull, chosen.factor);
  }
  return copy_of(value);
}

void WholeValues::put(Side& side, const Chosen& chosen, StepRecords& whole) {
  auto [record, shape, samples, pieces] = made(chosen);
  record.key = chosen.value->key;
  summed_ += chosen.form.how == How::kInFull && record.in_pieces ? 1 : 0;
  if (record.kind == Role::kGradient) side.moves.take_gradient(pieces);
  if (record.kind == Role::kParameter) side.moves.take(pieces, record);
  if (chosen.factor != 1 && is_of_parts(chosen)) {
    scale(record.stats, chosen.factor);
    samples.clear();
    record.stats.hash = mix_all({record.stats.hash, std::bit_cast<uint64_t>(chosen.factor)});
    record.in_pieces = true;
  }
  record.dims_at = whole.dims.size();
  record.dims_count = static_cast<uint8_t>(shape.size());
  whole.dims.insert(whole.dims.end(), shape.begin(), shape.end());
  record.samples_at = whole.samples.size();
  record.samples_bytes = static_cast<uint32_t>(samples.size());
  whole.samples.insert(whole.samples.end(), samples.begin(), samples.end());
  chosen.value->made = whole.values.size();
  whole.values.push_back(record);
}

void WholeValues::find_odd_ranks(const Side& side, const StepRecords& other, StepRecords& whole) {
  for (const Chosen& chosen : side.chosen) {
    if (chosen.partner == nullptr) continue;
    ValueRecord& record = whole.values[chosen.value->made];
    if (chosen.form.how == How::kInFull && record.parted) {
      record.odd = odd_copy(*chosen.value, *chosen.partner);
    } else if (chosen.form.how == How::kPieces && chosen.form.copies == 1 && !record.held_back) {
      const format::Stats& whole_of_other = other.values[chosen.partner->made].stats;
      record.odd = odd_piece(chosen.value->by_rank, chosen.factor, whole_of_other);
    }
  }
}

/// The gradient of an activation is that of the loss of its part of the batch, which counts for
/// 1 / parts in the mean. What all parts share has the sum of theirs: of equal ones that is one.
void WholeValues::write(const HeldStep& step, Side& side, size_t least_parts, StepRecords& whole) {
  std::ranges::stable_sort(side.chosen, {}, [](const Chosen& c) { return c.value->at; });
  const auto parts = static_cast<double>(side.parts());
  for (Chosen& chosen : side.chosen) {
    const double shared = is_of_parts(chosen) ? static_cast<double>(least_parts) : 1;
    if (is_activation_gradient(chosen.value->first())) chosen.factor = shared / parts;
    put(side, chosen, whole);
  }
  whole.launches = step.launches();
  whole.may_be_cut = step.may_be_cut();
}

void WholeValues::put_together(HeldStep& base, HeldStep& cand, StepRecords& base_whole,
                               StepRecords& cand_whole) {
  pair(base, cand);
  join_fused();
  choose();
  const size_t least_parts = std::min(base_.parts(), cand_.parts());
  write(base, base_, least_parts, base_whole);
  write(cand, cand_, least_parts, cand_whole);
  find_odd_ranks(base_, cand_whole, base_whole);
  find_odd_ranks(cand_, base_whole, cand_whole);
}

}  // namespace convtrace::diff
