#pragma once
/// @file kind_columns.h
/// Collects the events of one kind in a chunk, into the columns that the kind's list of fields
/// defines.
///
/// Place:    event_encoder.cpp; reader/columns/kind_rows.h is its mirror. Every class here, and
///           LaunchColumns and StatsColumns, has put(), packed_bytes(), write() and clear().
/// Threads:  one owner thread.
/// Source:   format/FORMAT.md sections 6.5 and 6.6.

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "format/file/columns/row_columns.h"
#include "format/file/columns/table_writer.h"
#include "format/file/columns/words.h"
#include "format/model/definitions.h"

namespace convtrace::format {

/// The columns of one kind of event.
template <typename Kind>
class KindColumns {
 public:
  void put(const Kind& event) {
    Words<Kind> words(event);
    each_column(event, [&]<Stored kHow, size_t kId, size_t kMore>(Where<kHow, kId, kMore>,
                                                                  const char*, const auto&) {
      if constexpr (kHow == Stored::kCounting) {
        uint64_t& word = words.varying[kPlaces.place[kId]];
        word -= std::exchange(last_[kPlaces.place[kId]], word);
      }
    });
    rows_.put(words.fixed, words.varying);
  }
  [[nodiscard]] size_t packed_bytes() const { return rows_.packed_bytes(); }
  /// @return nothing when there are no events.
  [[nodiscard]] TableWriter::Offset write(flatbuffers::FlatBufferBuilder& builder) const {
    if (rows_.row_count() == 0) return {};
    TableWriter table(builder);
    rows_.write(table, kPlaces);
    return table.finish();
  }
  void clear() {
    rows_.clear();
    last_ = {};
  }

 private:
  static constexpr const Columns& kPlaces = kColumns<Kind>;
  RowColumns<kPlaces.fixed, kPlaces.varying> rows_;
  /// Previous row of the columns that store differences.
  std::array<uint64_t, kPlaces.varying> last_{};
};

/// Collects the events of a kind that is too rare for columns: a table for each event.
template <typename Kind>
class KindTables {
 public:
  /// Truncates texts to kMaxStringBytes.
  void put(const Kind& event) {
    bytes_ += kTableBytes;
    each_borrowed(events_.emplace_back(event), [this](std::string_view& text) {
      bytes_ += text.size();
      text = texts_.emplace_back(text.substr(0, kMaxStringBytes));
    });
  }
  /// @return an estimate of the bytes that the tables take.
  [[nodiscard]] size_t packed_bytes() const { return bytes_; }
  [[nodiscard]] TableWriter::Offset write(flatbuffers::FlatBufferBuilder& builder) const {
    if (events_.empty()) return {};
    std::vector<TableWriter::Offset> tables;
    for (const Kind& event : events_) {
      TableWriter table(builder);
      each_column(event, [&table]<Stored kHow, size_t kId, size_t kMore>(
                             Where<kHow, kId, kMore>, const char*, const auto& value) {
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::string_view>) {
          table.text(kId, value);
        } else {
          using Number =
              std::conditional_t<sizeof(Value) == 1, uint8_t,
                                 std::conditional_t<sizeof(Value) == 4, uint32_t, uint64_t>>;
          table.number(kId, static_cast<Number>(word_of(value)));
        }
      });
      tables.push_back(table.finish());
    }
    return builder.CreateVector(tables).Union();
  }
  void clear() {
    events_.clear();
    texts_.clear();
    bytes_ = 0;
  }

 private:
  /// Size of a FlatBuffers table without its texts: an estimate, which decides when a chunk is
  /// closed.
  static constexpr size_t kTableBytes = 160;
  std::vector<Kind> events_;  ///< their texts are in texts_
  std::deque<std::string> texts_;
  size_t bytes_ = 0;
};

/// A column of the chunk itself: the step of each event, as the difference to the event before.
class StepColumn {
 public:
  void put(const Step& event) {
    index_.put(count_++, event.index - std::exchange(last_, event.index));
  }
  [[nodiscard]] size_t packed_bytes() const { return index_.packed_bytes(count_); }
  [[nodiscard]] TableWriter::Offset write(flatbuffers::FlatBufferBuilder& builder) const {
    const std::vector<uint8_t> packed = index_.pack(count_);
    return packed.empty() ? TableWriter::Offset() : builder.CreateVector(packed).Union();
  }
  void clear() {
    index_.clear();
    count_ = last_ = 0;
  }

 private:
  PackedColumn index_;
  size_t count_ = 0;
  uint32_t last_ = 0;
};

}  // namespace convtrace::format
