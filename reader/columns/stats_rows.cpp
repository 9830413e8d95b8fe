#include "reader/columns/stats_rows.h"

#include "reader/columns/enums.h"

namespace convtrace::reader {

using namespace format;

bool StatsRows::bind(const wire::StatsColumns* table, size_t row_count) {
  row_ = 0;
  if (table == nullptr) return row_count == 0;
  const wire::StatsColumns& t = *table;
  return rows_.bind(t.back(), row_count) && bind_signatures(t) && bind_shapes(t) && bind_flat(t) &&
         varying_.bind({{t.storage()},
                        {t.storage_offset()},
                        {t.generation()},
                        {t.version()},
                        {t.address()},
                        {t.finite()},
                        {t.nan()},
                        {t.pos_inf()},
                        {t.neg_inf()},
                        {t.pos_zero()},
                        {t.neg_zero()},
                        {t.positive()},
                        {t.negative()},
                        {t.subnormal()},
                        {t.saturated()},
                        {t.min()},
                        {t.max()},
                        {t.amax()},
                        {t.amin_nonzero()},
                        {t.sum_lo()},
                        {t.sum_hi()},
                        {t.l1_lo()},
                        {t.l1_hi()},
                        {t.l2()},
                        {t.mean()},
                        {t.deviation()},
                        {t.looks()},
                        {t.changes()},
                        {t.pad_count()},
                        {t.poisoned()},
                        {t.sketch_exponent()}},
                       rows_) &&
         bind_sketches(t);
}

bool StatsRows::bind_signatures(const wire::StatsColumns& t) {
  signatures_.clear();
  const StoredColumn columns[] = {
      {t.scope(), 4},        {t.call(), 4},          {t.phase(), 1},       {t.slot(), 4},
      {t.op(), 4},           {t.kernel(), 4},        {t.device_type(), 1}, {t.device_index(), 1},
      {t.dtype(), 1},        {t.extent(), 1},        {t.capture(), 1},     {t.bytes(), 8},
      {t.count(), 8},        {t.variant(), 4},       {t.rank(), 1},        {t.range_count(), 2},
      {t.sample_bytes(), 4}, {t.leading_bytes(), 4}, {t.padding(), 1},     {t.pad_index(), 8},
      {t.pad_row_count(), 2}};
  return each_row(columns, rows_.signature_count(), [this](const auto& v) {
    const auto u32 = [&v](size_t i) { return static_cast<uint32_t>(v[i]); };
    Signature& made = signatures_.emplace_back();
    TensorStats& e = made.event;
    Enums enums;
    e.place.scope = {u32(0)};
    e.place.call = u32(1);
    enums.set(e.place.phase, v[2]);
    e.slot = {u32(3)};
    e.op = {u32(4)};
    e.kernel = {u32(5)};
    enums.set(e.device.type, v[6]);
    e.device.index = static_cast<uint8_t>(v[7]);
    enums.set(e.dtype, v[8]);
    enums.set(e.extent, v[9]);
    enums.set(e.capture, v[10]);
    e.bytes = v[11];
    e.stats.count = v[12];
    e.variant = u32(13);
    made.rank = static_cast<uint8_t>(v[14]);
    e.has_shape = made.rank != wire::kRankUnknown;
    made.range_count = u32(15);
    made.sample_bytes = u32(16);
    made.leading_bytes = u32(17);
    enums.set(e.padding, v[18]);
    e.pad_index = static_cast<int64_t>(v[19]);
    made.pad_row_count = u32(20);
    made.known = enums.known;
  });
}

bool StatsRows::bind_shapes(const wire::StatsColumns& t) {
  size_t dims = 0;
  for (const Signature& signature : signatures_) {
    if (!signature.event.has_shape) continue;
    if (signature.rank > kMaxDims) return false;
    dims += signature.rank;
  }
  shapes_.clear();
  const StoredColumn column[] = {{t.shape(), 8}};
  if (!each_row(column, dims, [this](const auto& v) { shapes_.push_back(v[0]); })) return false;
  const uint64_t* next = shapes_.data();
  for (Signature& signature : signatures_) {
    if (!signature.event.has_shape) continue;
    signature.event.shape = {next, signature.rank};
    next += signature.rank;
  }
  return true;
}

bool StatsRows::bind_flat(const wire::StatsColumns& t) {
  const bool readable = hash_.bind(t.hash()) && range_hashes_.bind(t.range_hashes()) &&
                        samples_.bind(t.samples()) && leading_.bind(t.leading()) &&
                        pad_rows_.bind(t.pad_rows());
  if (!readable) return false;
  size_t ranges = 0, samples = 0, leading = 0, pad_rows = 0;
  for (size_t row = 0; row < rows_.row_count(); ++row) {
    const Signature& signature = signatures_[rows_.signature(row)];
    if (signature.range_count > kMaxRanges || signature.pad_row_count > kMaxPadRows) return false;
    ranges += signature.range_count;
    samples += signature.sample_bytes;
    leading += signature.leading_bytes;
    pad_rows += signature.pad_row_count;
  }
  return hash_.size() == rows_.row_count() && range_hashes_.size() == ranges &&
         samples_.size() == samples && leading_.size() == leading && pad_rows_.size() == pad_rows;
}

bool StatsRows::bind_sketches(const wire::StatsColumns& t) {
  size_t buckets = 0;
  for (size_t row = 0; row < rows_.row_count(); ++row) {
    if (sketch_exponent_of(varying_[row].back()) != Sketch::kNone) buckets += Sketch::kBuckets;
  }
  buckets_.clear();
  next_bucket_ = 0;
  const StoredColumn column[] = {{t.sketch(), sizeof(float)}};
  return each_row(column, buckets, [this](const auto& v) { buckets_.push_back(bucket_of(v[0])); });
}

void StatsRows::take_sketch(int16_t exponent, Sketch& sketch) {
  sketch.exponent = exponent;
  if (!sketch.is_known()) return;
  std::copy_n(buckets_.begin() + static_cast<ptrdiff_t>(next_bucket_), Sketch::kBuckets,
              sketch.bucket.begin());
  next_bucket_ += Sketch::kBuckets;
}

bool StatsRows::next(EventHeader header, Event& event) {
  const size_t row = row_++;
  const Signature& signature = signatures_[rows_.signature(row)];
  const auto& v = varying_[row];
  auto& stats = event.emplace<TensorStats>(signature.event);
  stats.header = header;
  stats.value = {
      .storage = v[0], .offset = v[1], .generation = v[2], .version = static_cast<uint32_t>(v[3])};
  stats.address = v[4];
  stats.stats = stats_of_words(v.data() + 5, signature.event.stats.count, hash_.take(1)[0]);
  take_sketch(sketch_exponent_of(v[9 + kStatsWords]), stats.stats.sketch);
  stats.looks = static_cast<uint32_t>(v[5 + kStatsWords]);
  stats.changes = static_cast<uint32_t>(v[6 + kStatsWords]);
  stats.pad_count = v[7 + kStatsWords];
  stats.poisoned = v[8 + kStatsWords];
  stats.range_hashes = range_hashes_.take(signature.range_count);
  stats.samples = std::as_bytes(samples_.take(signature.sample_bytes));
  stats.leading = std::as_bytes(leading_.take(signature.leading_bytes));
  stats.pad_rows = pad_rows_.take(signature.pad_row_count);
  return signature.known;
}

}  // namespace convtrace::reader
