#include "tools/diff/whole/whole_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
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

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();
/// What a form costs: a copy or a piece of which there are fewer copies than equal ones is taken
/// for one only if nothing else fits.
constexpr int kAsItIs = 0, kAveraged = 1, kTermOrCopy = 2, kByChance = 3;

const ValueRecord& first_of(const HeldValue& value) { return *value.by_rank.front().record; }

uint64_t content_of(const Held& held) {
  return mix_all({held.record->stats.hash, held.record->stats.count});
}

/// How many ranks hold each content.
std::map<uint64_t, uint64_t> contents_of(const HeldValue& value) {
  std::map<uint64_t, uint64_t> contents;
  for (const Held& held : value.by_rank) ++contents[content_of(held)];
  return contents;
}

/// What ranks exchange belongs to the layout, as the other run has it with another number of ranks.
bool is_exchanged(const ValueRecord& record) {
  return record.kind == SlotKind::kSent || record.kind == SlotKind::kReceived;
}

bool is_activation_gradient(const ValueRecord& record) {
  return record.kind == SlotKind::kGradOutput || record.kind == SlotKind::kGradInput;
}

/// Whether what ranks hold of it may be terms of a sum or a mean that is still to be made. Gradients
/// of parameters are recorded as optimizers get them, but for those that are not clipped yet.
bool may_be_term(const ValueRecord& record) {
  return record.kind == SlotKind::kInput || record.kind == SlotKind::kOutput ||
         is_activation_gradient(record) || record.unclipped;
}

/// Whether modules in place of one have pieces of its value. They take the same input.
bool is_divided(SlotKind kind) {
  return kind == SlotKind::kParam || kind == SlotKind::kGrad || kind == SlotKind::kBuffer ||
         kind == SlotKind::kOutput || kind == SlotKind::kGradOutput;
}

bool has_statistics(const Held& held) { return held.record->capture != format::Capture::kHash; }

/// Whether sums with others can be compared: the number is known, or its sketch.
bool may_be_added(const Held& held) {
  const ValueRecord& record = *held.record;
  return has_statistics(held) && record.stats.finite == record.stats.count &&
         format::number_class(record.dtype) == NumberClass::kFloat &&
         (record.stats.count == 1 || record.stats.sketch.is_known());
}

/// How far two tensors of one size are apart, both of which may be added.
double distance(const format::Stats& a, const format::Stats& b) {
  return a.count == 1 ? std::abs(a.sum.as_f64() - b.sum.as_f64())
                      : sketched_distance(a.sketch, b.sketch);
}

/// The ranks whose values are pieces: of each content as many as there are copies less.
std::vector<Held> pieces_of(const HeldValue& value, uint64_t copies) {
  std::map<uint64_t, uint64_t> left = contents_of(value);
  for (auto& [content, number] : left) number /= copies;
  std::vector<Held> pieces;
  for (const Held& held : value.by_rank) {
    uint64_t& number = left[content_of(held)];
    if (number == 0) continue;
    --number;
    pieces.push_back(held);
  }
  return pieces;
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

/// The copy that is furthest from the other run's value.
const Held& furthest(const HeldValue& value, const HeldValue& partner) {
  const Held& other = partner.by_rank.front();
  const auto order = [&other](const Held& held) {
    const format::Stats &a = held.record->stats, &b = other.record->stats;
    const bool same_finite = a.nan == b.nan && a.pos_inf == b.pos_inf && a.neg_inf == b.neg_inf;
    const bool same_size = a.count == b.count;  // else the other run's is a piece
    const double apart =
        same_size ? measure(view(*held.step, *held.record), view(*other.step, *other.record)).rms
                  : 0;
    return std::tuple(!same_finite, a.hash != b.hash, std::isnan(apart) ? 0 : apart);
  };
  return *std::ranges::max_element(value.by_rank, {}, order);
}

/// The samples of pieces that have all of their elements among them; else none.
std::vector<std::byte> joined_samples(const std::vector<Held>& pieces) {
  std::vector<std::byte> samples;
  for (const Held& piece : pieces) {
    const auto borrowed = piece.step->samples_of(*piece.record);
    const size_t all = piece.record->stats.count * tools::component_bytes(piece.record->dtype);
    if (borrowed.size() < all) return {};
    samples.insert(samples.end(), borrowed.begin(), borrowed.begin() + static_cast<ptrdiff_t>(all));
  }
  return samples;
}

}  // namespace

void HeldStep::add(const StepRecords& step, size_t trace, uint64_t clock) {
  may_be_cut_ |= step.may_be_cut;
  if (!has_launches_) launches_ = step.launches;
  has_launches_ = true;
  // Of a value that was recorded before, only its hash may be: equal bytes have equal statistics.
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
    values_[number->second].by_rank.push_back({&step, own, trace});
  }
}

void HeldStep::clear() {
  values_.clear();
  numbers_.clear();
  completed_.clear();
  launches_.clear();
  has_launches_ = may_be_cut_ = false;
}

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
  const bool is_number = record.stats.count == 1 &&
                         (record.kind == SlotKind::kInput || record.kind == SlotKind::kOutput);
  return is_number || record.kind == SlotKind::kLoss ? Reduction::kMean : Reduction::kNone;
}

std::vector<WholeValues::Form> WholeValues::forms_of(const HeldValue& value) const {
  const ValueRecord& first = first_of(value);
  const std::map<uint64_t, uint64_t> contents = contents_of(value);
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
  for (const auto& [content, number] : contents) most_copies = std::gcd(most_copies, number);
  const bool is_reduced = one_size && contents.size() > 1 && measured &&
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
  if (one_size && contents.size() > 1)
    forms.push_back({How::kInFull, most_copies, first.stats.count, kTermOrCopy});
  return forms;
}

std::optional<std::pair<WholeValues::Form, WholeValues::Form>> WholeValues::common(
    const std::vector<Form>& base, const std::vector<Form>& cand, bool are_terms) {
  std::optional<std::pair<Form, Form>> best;
  for (const Form& a : base) {
    for (const Form& b : cand) {
      // Of unlike copies in both runs nothing says which belong together; terms have their sums.
      const bool unlike = a.how == How::kInFull && b.how == How::kInFull;
      if (a.count != b.count || (unlike && !are_terms)) continue;
      if (!best || a.cost + b.cost < best->first.cost + best->second.cost) best = {a, b};
    }
  }
  return best;
}

/// @return the key by the baseline's name of the module, as far as the user has told it.
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

/// Whether a gradient is of something that all parts of the batch have, in both runs.
bool WholeValues::are_shared_by_parts(const HeldValue& base, const HeldValue& cand) const {
  return is_activation_gradient(first_of(base)) && base_.parts() > 1 && cand_.parts() > 1 &&
         std::ranges::all_of(base.by_rank, may_be_added) &&
         std::ranges::all_of(cand.by_rank, may_be_added);
}

void WholeValues::take(Side& side, HeldValue& value, const HeldValue* partner, const Form& form,
                       How partner_form) const {
  side.chosen.push_back({&value, partner, form, partner_form});
  const ValueRecord& first = first_of(value);
  if (first.kind == SlotKind::kInput && first.key.phase == format::Phase::kData) {
    const size_t parts = form.how == How::kPieces ? value.by_rank.size() / form.copies : 1;
    side.data_parts = std::max(side.data_parts.value_or(1), parts);
  }
  if (first.kind != SlotKind::kLoss) return;
  side.sums_losses |= reduction_of(first) == Reduction::kSum;
  if (form.how == How::kReduced)
    side.loss_parts = std::max(side.loss_parts, contents_of(value).size());
}

void WholeValues::leave(const HeldValue& base, const HeldValue& cand) {
  const auto sizes = [](const HeldValue& value) {
    return tools::counted(value.by_rank.size(), "rank") + " with " +
           tools::counted(contents_of(value).size(), "content") + " of " +
           tools::counted(first_of(value).stats.count, "element");
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
  base_.begin_step();
  cand_.begin_step();
  for (const auto& [key, of] : pairs_) {
    const auto [base, cand] = of;
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

/// The mean of what the ranks hold, or the sum of what they hold unlike.
ValueRecord WholeValues::reduced(const HeldValue& value, Reduction reduction) const {
  std::map<uint64_t, const Held*> unlike;
  for (const Held& held : value.by_rank) unlike.emplace(content_of(held), &held);
  ValueRecord record = first_of(value);
  std::vector<format::Stats> all;
  uint64_t contents = 0;
  if (reduction == Reduction::kSum) {
    for (const auto& [content, held] : unlike) all.push_back(held->record->stats);
  } else {
    for (const Held& held : value.by_rank) all.push_back(held.record->stats);
  }
  for (const auto& [content, held] : unlike) contents = mix_all({contents, content});
  record.stats = mean_of(all);
  if (reduction == Reduction::kSum) scale(record.stats, static_cast<double>(all.size()));
  record.stats.hash = contents;
  record.in_pieces = true;
  return record;
}

/// Whether each part of the batch has its own elements: pieces, or all that one rank alone has, as of
/// an expert that the other ranks' data do not choose.
bool WholeValues::is_of_parts(const Chosen& chosen) {
  return chosen.form.how == How::kPieces || chosen.value->by_rank.size() == 1;
}

void WholeValues::put(Side& side, const Chosen& chosen, double factor, StepRecords& whole) {
  const HeldValue& value = *chosen.value;
  const HeldValue* const partner = chosen.partner;
  Held shown = value.by_rank.front();
  if (chosen.form.how == How::kCopies) {
    const auto measured = std::ranges::find_if(value.by_rank, has_statistics);
    if (measured != value.by_rank.end()) shown = *measured;
  } else if (chosen.form.how == How::kInFull) {
    shown = furthest(value, *partner);
  }
  ValueRecord record = *shown.record;
  const auto borrowed = shown.step->samples_of(record);
  std::vector<std::byte> samples(borrowed.begin(), borrowed.end());
  std::span<const uint64_t> shape = shown.step->shape_of(record);
  std::vector<Held> pieces = {shown};
  if (chosen.form.how == How::kReduced) {
    record = reduced(value, reduction_of(record));
    samples.clear();
  } else if (chosen.form.how == How::kInFull) {
    record.parted = true;
    if (may_be_term(record) && std::ranges::all_of(value.by_rank, may_be_added)) {
      const bool both = chosen.partner_form == How::kInFull;
      const format::Stats& other = first_of(*partner).stats;
      const bool comparable =
          may_be_added(partner->by_rank.front()) && other.count == record.stats.count;
      for (const Reduction reduction : {Reduction::kSum, Reduction::kMean}) {
        if (reduction == Reduction::kMean && !record.unclipped) continue;
        ValueRecord one = reduced(value, reduction);
        if (reduction == Reduction::kSum) scale(one.stats, factor);
        if (!both && !(comparable && distance(one.stats, other) < distance(record.stats, other)))
          continue;
        summed_ += record.in_pieces ? 0 : 1;
        record = one;
        samples.clear();
      }
    }
  } else if (chosen.form.how == How::kPieces) {
    pieces = pieces_of(value, chosen.form.copies);
    record = *pieces.front().record;
    for (const Held& piece : pieces) {
      if (&piece != &pieces.front()) add_piece(record.dtype, record.stats, piece.record->stats);
      if (!has_statistics(piece)) record.capture = format::Capture::kHash;
    }
    samples =
        chosen.form.count <= format::kMaxWhole ? joined_samples(pieces) : std::vector<std::byte>();
    record.stats.hash = hash_of(pieces);
    record.in_pieces = true;
    // The shape of the whole is known from a run that has it whole.
    record.has_shape = partner != nullptr && first_of(*partner).has_shape &&
                       first_of(*partner).stats.count == record.stats.count;
    shape = record.has_shape ? partner->by_rank.front().step->shape_of(first_of(*partner))
                             : std::span<const uint64_t>();
  }
  record.key = value.key;
  if (record.kind == SlotKind::kParam) {
    double moved = 0;
    for (const Held& piece : pieces) {
      const format::Sketch& now = piece.record->stats.sketch;
      format::Sketch& before =
          side.parameters[mix_all({piece.trace, parameter_key(*piece.record)})];
      const double by =
          now.is_known() && before.is_known() ? sketched_distance(now, before) : kNotKnown;
      moved = std::hypot(moved, by);
      before = now;
    }
    record.moved = moved;
  }
  if (factor != 1 && is_of_parts(chosen)) {
    scale(record.stats, factor);
    samples.clear();
    record.stats.hash = mix_all({record.stats.hash, std::bit_cast<uint64_t>(factor)});
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
/// 1 / parts in the mean. What all parts share has the sum of theirs: of equal ones that is one.
void WholeValues::write(const HeldStep& step, Side& side, size_t least_parts, StepRecords& whole) {
  std::ranges::stable_sort(side.chosen, {}, [](const Chosen& c) { return c.value->at; });
  const auto parts = static_cast<double>(side.parts());
  for (const Chosen& chosen : side.chosen) {
    const bool is_gradient = is_activation_gradient(first_of(*chosen.value));
    const double shared = is_of_parts(chosen) ? static_cast<double>(least_parts) : 1;
    put(side, chosen, is_gradient ? shared / parts : 1, whole);
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
}

}  // namespace convtrace::diff
