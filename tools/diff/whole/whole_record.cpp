#include "tools/diff/whole/whole_record.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "cupti/stats/tile/hash.h"
#include "tools/common/element.h"
#include "tools/diff/compare/compare.h"
#include "tools/trace/model/hash_mix.h"
#include "tools/trace/model/pieces.h"

namespace convtrace::diff {
namespace {

/// @return whether the ranks' values may be terms of a sum or mean that is still to be computed.
/// Gradients of parameters are recorded as optimizers get them, except those before clipping.
bool may_be_term(const ValueRecord& record) {
  const bool is_operand = is_other(record.kind) && record.key.op;  // `input_after:0`
  return record.kind == Role::kInput || record.kind == Role::kOutput || is_operand ||
         is_activation_gradient(record) || record.kind == Role::kUnclipped;
}

/// @return the distance of two tensors of one size. @pre may_be_added() for both.
double distance(const format::Stats& a, const format::Stats& b) {
  return a.count == 1 ? std::abs(a.sum.as_f64() - b.sum.as_f64())
                      : sketched_distance(a.sketch, b.sketch);
}

/// @return one copy of each piece. @param copies  of each piece
std::vector<Held> pieces_of(const HeldValue& value, uint64_t copies) {
  std::map<uint64_t, uint64_t> left = value.contents;
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

/// @return the hash of the pieces concatenated by rank, which is that of the whole for shards of
/// the first dimension and parts of a batch; for other pieces it only depends on their contents.
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

/// @return the samples of all pieces, if they include all elements; else none.
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

WholeRecord::WholeRecord(const Held& held)
    : record(*held.record), shape(held.step->shape_of(record)), pieces{held} {
  const auto borrowed = held.step->samples_of(record);
  samples.assign(borrowed.begin(), borrowed.end());
}

WholeRecord copy_of(const HeldValue& value) {
  const auto measured =
      std::ranges::find_if(value.by_rank, [](const Held& held) { return has_statistics(held); });
  return WholeRecord(measured != value.by_rank.end() ? *measured : value.by_rank.front());
}

WholeRecord of_pieces(const HeldValue& value, uint64_t copies, const HeldValue* partner) {
  const std::vector<Held> pieces = pieces_of(value, copies);
  WholeRecord whole(pieces.front());
  ValueRecord& record = whole.record;
  for (const Held& piece : pieces) {
    if (&piece != &pieces.front()) add_piece(record.dtype, record.stats, piece.record->stats);
    if (!has_statistics(piece)) record.capture = format::Capture::kHash;
  }
  whole.samples =
      record.stats.count <= format::kMaxWhole ? joined_samples(pieces) : std::vector<std::byte>();
  record.stats.hash = hash_of(pieces);
  record.in_pieces = true;
  // The shape of the whole is known from a run that has it whole.
  record.has_shape = partner != nullptr && partner->first().has_shape &&
                     partner->first().stats.count == record.stats.count;
  whole.shape = record.has_shape ? partner->by_rank.front().step->shape_of(partner->first())
                                 : std::span<const uint64_t>();
  whole.pieces = pieces;
  return whole;
}

WholeRecord reduced(const HeldValue& value, Reduction reduction) {
  std::map<uint64_t, const Held*> unlike;
  for (const Held& held : value.by_rank) unlike.emplace(content_of(held), &held);
  std::vector<format::Stats> all;
  uint64_t contents = 0;
  if (reduction == Reduction::kSum) {
    for (const auto& [content, held] : unlike) all.push_back(held->record->stats);
  } else {
    for (const Held& held : value.by_rank) all.push_back(held.record->stats);
  }
  for (const auto& [content, held] : unlike) contents = mix_all({contents, content});
  WholeRecord whole(value.by_rank.front());
  whole.record.stats = mean_of(all);
  if (reduction == Reduction::kSum) scale(whole.record.stats, static_cast<double>(all.size()));
  whole.record.stats.hash = contents;
  whole.record.in_pieces = true;
  whole.samples.clear();
  return whole;
}

WholeRecord in_full(const HeldValue& value, const HeldValue& partner, bool are_terms,
                    double factor) {
  WholeRecord whole(furthest(value, partner));
  whole.record.parted = true;
  if (!may_be_term(whole.record) || !std::ranges::all_of(value.by_rank, may_be_added)) return whole;
  const format::Stats& other = partner.first().stats;
  const bool comparable =
      may_be_added(partner.by_rank.front()) && other.count == whole.record.stats.count;
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMean}) {
    if (reduction == Reduction::kMean && whole.record.kind != Role::kUnclipped) continue;
    WholeRecord one = reduced(value, reduction);
    if (reduction == Reduction::kSum) scale(one.record.stats, factor);
    const bool is_nearer =
        comparable && distance(one.record.stats, other) < distance(whole.record.stats, other);
    if (are_terms || is_nearer) whole = std::move(one);
  }
  return whole;
}

}  // namespace convtrace::diff
