#include "reader/columns/stats_rows.h"

namespace convtrace::reader {

using namespace format;

bool StatsRows::bind(const wire::StatsColumns* table, size_t row_count) {
  row_ = 0;
  if (table == nullptr) return row_count == 0;
  const wire::StatsColumns& t = *table;
  return rows_.bind(t.back(), row_count) && bind_signatures(t) && bind_shapes(t) && bind_flat(t) &&
         varying_.bind(t, rows_) && bind_sketches(t);
}

bool StatsRows::bind_signatures(const wire::StatsColumns& t) {
  signatures_.clear();
  return each_signature<TensorStats>(t, rows_.signature_count(), [this](const auto& row) {
    Signature& made = signatures_.emplace_back();
    made.known = set_fixed(made.event, row);
    made.rank = static_cast<uint8_t>(fixed_at<TensorStats, 15>(row));
    made.event.has_shape = made.rank != wire::kRankUnknown;
    made.range_count = static_cast<uint32_t>(fixed_at<TensorStats, 16>(row));
    made.sample_bytes = static_cast<uint32_t>(fixed_at<TensorStats, 17>(row));
    made.leading_bytes = static_cast<uint32_t>(fixed_at<TensorStats, 18>(row));
    made.pad_row_count = static_cast<uint32_t>(fixed_at<TensorStats, 55>(row));
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
  const std::array column = {StoredColumn{t.shape()}};
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
    Sketch sketch;
    from_word(sketch.exponent, varying_[row][kColumns<TensorStats>.place[58]]);
    if (sketch.is_known()) buckets += Sketch::kBuckets;
  }
  buckets_.clear();
  next_bucket_ = 0;
  const std::array column = {StoredColumn{t.sketch(), sizeof(float)}};
  return each_row(column, buckets, [this](const auto& v) { buckets_.push_back(bucket_of(v[0])); });
}

bool StatsRows::next(EventHeader header, Event& event) {
  const size_t row = row_++;
  const Signature& signature = signatures_[rows_.signature(row)];
  auto& stats = event.emplace<TensorStats>(signature.event);
  stats.header = header;
  varying_.set(stats, row);
  stats.stats.hash = hash_.take(1)[0];
  if (stats.stats.sketch.is_known()) {
    std::copy_n(buckets_.begin() + static_cast<ptrdiff_t>(next_bucket_), Sketch::kBuckets,
                stats.stats.sketch.bucket.begin());
    next_bucket_ += Sketch::kBuckets;
  }
  stats.range_hashes = range_hashes_.take(signature.range_count);
  stats.samples = std::as_bytes(samples_.take(signature.sample_bytes));
  stats.leading = std::as_bytes(leading_.take(signature.leading_bytes));
  stats.pad_rows = pad_rows_.take(signature.pad_row_count);
  return signature.known;
}

}  // namespace convtrace::reader
