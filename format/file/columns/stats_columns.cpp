#include "format/file/columns/stats_columns.h"

#include <algorithm>

namespace convtrace::format {
namespace {

/// Ids in chunk.fbs of columns that are not in the list of fields, or that are named below.
enum Id : size_t {
  kRank = 15,
  kShape = 19,
  kStats = 25,
  kHash = 46,
  kRangeHashes,
  kSamples,
  kLeading,
  kPadRows = 56,
  kSketchExponent = 58,
  kSketch
};
constexpr size_t kStatsPlace = kColumns<TensorStats>.place[kStats], kStatsWords = kHash - kStats;

void append(std::vector<uint8_t>& to, std::span<const std::byte> bytes) {
  const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
  to.insert(to.end(), first, first + bytes.size());
}

}  // namespace

void StatsColumns::put(const TensorStats& e) {
  Words<TensorStats> words(e);
  if (e.capture == Capture::kHash) {
    std::fill_n(words.varying.begin() + kStatsPlace, kStatsWords, 0);
    words.varying[kColumns<TensorStats>.place[kSketchExponent]] = 0;
  } else {
    put_sketch(e.stats.sketch);
  }
  const auto shape = e.has_shape ? e.shape : std::span<const uint64_t>();
  if (!e.has_shape) words.fixed[kColumns<TensorStats>.place[kRank]] = wire::kRankUnknown;
  const size_t back = rows_.put(words.fixed, words.varying, shape);
  if (back == 0) {
    for (const uint64_t extent : shape) shape_.put(dims_++, extent);
  }
  hash_.push_back(e.stats.hash);
  range_hashes_.insert(range_hashes_.end(), e.range_hashes.begin(), e.range_hashes.end());
  append(samples_, e.samples);
  append(leading_, e.leading);
  pad_rows_.insert(pad_rows_.end(), e.pad_rows.begin(), e.pad_rows.end());
}

void StatsColumns::put_sketch(const Sketch& sketch) {
  if (!sketch.is_known()) return;
  for (const float bucket : sketch.bucket) sketch_.put(buckets_++, bucket_word(bucket));
}

size_t StatsColumns::packed_bytes() const {
  return rows_.packed_bytes() + shape_.packed_bytes(dims_) + sketch_.packed_bytes(buckets_) +
         (hash_.size() + range_hashes_.size() + pad_rows_.size()) * sizeof(uint64_t) +
         samples_.size() + leading_.size();
}

TableWriter::Offset StatsColumns::write(flatbuffers::FlatBufferBuilder& builder) const {
  if (rows_.row_count() == 0) return {};
  TableWriter to(builder);
  const auto write_rows = [&](size_t begin, size_t end) {
    rows_.write(to, kColumns<TensorStats>, begin, end);
  };
  write_rows(0, kShape);
  to.vector(kShape, shape_.pack(dims_));
  write_rows(kShape, kHash);
  to.vector(kHash, hash_);
  to.vector(kRangeHashes, range_hashes_);
  to.vector(kSamples, samples_);
  to.vector(kLeading, leading_);
  write_rows(kLeading, kPadRows);
  to.vector(kPadRows, pad_rows_);
  write_rows(kPadRows, kSketch);
  to.vector(kSketch, sketch_.pack(buckets_));
  write_rows(kSketch, kColumns<TensorStats>.ids);
  return to.finish();
}

void StatsColumns::clear() {
  rows_.clear();
  shape_.clear();
  sketch_.clear();
  dims_ = buckets_ = 0;
  hash_.clear();
  range_hashes_.clear();
  samples_.clear();
  leading_.clear();
  pad_rows_.clear();
}

}  // namespace convtrace::format
