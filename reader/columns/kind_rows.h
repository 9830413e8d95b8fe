#pragma once
/// @file kind_rows.h
/// Decodes the events of one kind in a chunk one by one, from the columns that the kind's list of
/// fields defines.
///
/// Place:    event_decoder.cpp; format/file/columns/kind_columns.h is its mirror. Every class here,
///           and LaunchRows and StatsRows, has bind(), next() and resolved_by().
/// Errors:   bind() detects everything that can be wrong with a hostile chunk.
/// Source:   format/FORMAT.md sections 6.2, 6.5 and 6.6.

#include <algorithm>
#include <vector>

#include "format/file/columns/words.h"
#include "format/schema/conventions.h"
#include "reader/columns/definition_check.h"
#include "reader/columns/row_table.h"
#include "reader/columns/text_budget.h"

namespace convtrace::reader {

using format::Stored;
using format::Where;

/// Records whether all stored enumerators of an event are known: a newer writer may use others.
struct Enums {
  bool known = true;

  template <typename T>
  void set(T& to, uint64_t stored) {
    if constexpr (!std::is_enum_v<T>) {
      format::from_word(to, stored);
    } else {
      static_assert(format::kEnumCount<T> > 0);
      if (stored < format::kEnumCount<T>) {
        to = static_cast<T>(stored);
      } else {
        known = false;
      }
    }
  }
};

/// @return whether the ids in the list of a kind belong to fields of the same names in its table.
/// Fields are read by their ids.
template <typename Kind, typename Table>
constexpr bool agrees_with_schema() {
  bool agrees = true;
  format::each_column_of<Kind>([&agrees]<Stored kHow, size_t kId, size_t kMore>(
                                   Where<kHow, kId, kMore>, std::string_view name, const auto&) {
    if (kHow == Stored::kOwn) return;
    const std::string_view field = Table::Traits::field_names[kId];
    const bool is_part = field.starts_with(name) && field.substr(name.size()).starts_with('_');
    agrees &= kHow == Stored::kFlag ? field == "flags" : field == name || is_part;
  });
  return agrees;
}

/// Reads the fixed columns of a table.
/// @param visit  gets a BlockRow for each signature, for set_fixed() and fixed_at().
/// @return whether all of them have `count` rows.
template <typename Kind, typename Table, typename Visit>
[[nodiscard]] bool each_signature(const Table& table, size_t count, const Visit& visit) {
  static_assert(agrees_with_schema<Kind, Table>());
  std::array<StoredColumn, format::kColumns<Kind>.fixed> columns;
  format::each_column_of<Kind>([&]<Stored kHow, size_t kId, size_t kMore>(
                                   Where<kHow, kId, kMore>, const char*, const auto& value) {
    constexpr size_t kWidth = kHow == Stored::kCount ? kMore : sizeof(value);
    if constexpr (format::kColumns<Kind>.is_fixed(kId))
      columns[format::kColumns<Kind>.place[kId]] = {table.template get_field<kId>(), kWidth};
  });
  return each_row(columns, count, visit);
}

/// @return the value of a row of each_signature() in the column `kId`.
template <typename Kind, size_t kId>
[[nodiscard]] uint64_t fixed_at(const auto& row) {
  return row[format::kColumns<Kind>.place[kId]];
}

/// Sets the fixed fields of an event. @return whether all its enumerators are known.
template <typename Kind>
bool set_fixed(Kind& event, const auto& row) {
  Enums enums;
  format::each_column(event, [&]<Stored kHow, size_t kId, size_t kMore>(Where<kHow, kId, kMore>,
                                                                        const char*, auto& value) {
    if constexpr (kHow == Stored::kFlag) {
      value = (fixed_at<Kind, kId>(row) >> kMore & 1) != 0;
    } else if constexpr (kHow == Stored::kFixed) {
      enums.set(value, fixed_at<Kind, kId>(row));
    }
  });
  return enums.known;
}

/// The varying columns of a table.
template <typename Kind>
class VaryingOf : public VaryingTable<format::kColumns<Kind>.varying> {
 public:
  [[nodiscard]] bool bind(const auto& table, const LikeTable& rows) {
    std::array<StoredColumn, format::kColumns<Kind>.varying> columns;
    format::each_column_of<Kind>([&]<Stored kHow, size_t kId, size_t kMore>(
                                     Where<kHow, kId, kMore>, const char*, const auto&) {
      if constexpr (format::kColumns<Kind>.is_varying(kId))
        columns[format::kColumns<Kind>.place[kId]] = {table.template get_field<kId>()};
    });
    if (!VaryingTable<format::kColumns<Kind>.varying>::bind(columns, rows)) return false;
    for (size_t id = 0; id < format::kColumns<Kind>.ids; ++id) {
      if (format::kColumns<Kind>.how[id] == Stored::kCounting)
        this->add_up(format::kColumns<Kind>.place[id]);
    }
    return true;
  }

  /// Sets the varying fields of an event from `row`.
  void set(Kind& event, size_t row) const {
    const auto& values = (*this)[row];
    format::each_column(event, [&]<Stored kHow, size_t kId, size_t kMore>(
                                   Where<kHow, kId, kMore>, const char*, auto& value) {
      if constexpr (kHow == Stored::kVarying || kHow == Stored::kCounting)
        format::from_word(value, values[format::kColumns<Kind>.place[kId]]);
    });
  }
};

/// Decodes the columns of one kind.
template <typename Kind>
class KindRows {
 public:
  /// @return whether `table` holds exactly `row_count` events.
  template <typename Table>
  [[nodiscard]] bool bind(const Table* table, size_t row_count) {
    row_ = 0;
    signatures_.clear();
    varying_.clear();
    if (table == nullptr) return row_count == 0;
    const auto take = [this](const auto& row) {
      Signature& made = signatures_.emplace_back();
      made.known = set_fixed(made.event, row);
    };
    return rows_.bind(table->back(), row_count) &&
           each_signature<Kind>(*table, rows_.signature_count(), take) && bind_varying(*table);
  }

  /// Sets `event` to the next one.
  /// @return whether all its enumerators are known. @pre there is one
  bool next(format::EventHeader header, format::Event& event) {
    const size_t row = row_++;
    const Signature& signature = signatures_[rows_.signature(row)];
    Kind& made = event.emplace<Kind>(signature.event);
    made.header = header;
    if constexpr (kVaries) varying_.set(made, row);
    return signature.known;
  }

  /// @return whether every id (string, scope, kernel) in the events is defined. Events with an
  /// enumerator that this reader does not know are not checked.
  [[nodiscard]] bool resolved_by(const DefinitionCheck& check) const {
    return std::ranges::all_of(signatures_, [&check](const Signature& made) {
      return !made.known || check.resolves(made.event);
    });
  }

  /// @return the word in column `kId` of the last of the first `count` events; 0 if there is none.
  template <size_t kId>
  [[nodiscard]] uint64_t after(size_t count) const {
    return varying_.after(count)[format::kColumns<Kind>.place[kId]];
  }

 private:
  static constexpr bool kVaries = format::kColumns<Kind>.varying > 0;
  struct Signature {
    Kind event;
    bool known = true;
  };
  [[nodiscard]] bool bind_varying(const auto& table) {
    if constexpr (kVaries) return varying_.bind(table, rows_);
    return true;
  }
  LikeTable rows_;
  size_t row_ = 0;
  std::vector<Signature> signatures_;
  VaryingOf<Kind> varying_;
};

/// Decodes a kind that has one table for each event.
template <typename Kind>
class TableRows {
 public:
  using Tables = std::remove_pointer_t<
      decltype(std::declval<wire::Chunk>().get_field<wire::kFieldOf<Kind>>())>;
  using Table = std::remove_cvref_t<decltype(*std::declval<Tables>().Get(0))>;
  static_assert(agrees_with_schema<Kind, Table>());

  /// @param budget  for the texts of all kinds of a chunk.
  /// @return whether there are exactly `row_count` events, with texts within the limits.
  [[nodiscard]] bool bind(const Tables* tables, size_t row_count, TextBudget& budget) {
    tables_ = tables;
    row_ = 0;
    if (tables == nullptr) return row_count == 0;
    return tables->size() == row_count &&
           std::ranges::all_of(*tables, [&budget](const Table* table) {
             Kind event;
             read(*table, event);
             bool fits = true;
             format::each_borrowed(event, [&](std::string_view text) {
               fits &= text.size() <= format::kMaxStringBytes && budget.take(text.size());
             });
             return fits;
           });
  }
  /// As KindRows::next.
  bool next(format::EventHeader header, format::Event& event) {
    Kind& made = event.emplace<Kind>();
    made.header = header;
    return read(*tables_->Get(row_++), made);
  }
  /// As KindRows::resolved_by.
  [[nodiscard]] bool resolved_by(const DefinitionCheck& check) const {
    return tables_ == nullptr || std::ranges::all_of(*tables_, [&check](const Table* table) {
             Kind event;
             return !read(*table, event) || check.resolves(event);
           });
  }

 private:
  static bool read(const Table& table, Kind& event) {
    Enums enums;
    format::each_column(event, [&]<Stored kHow, size_t kId, size_t kMore>(
                                   Where<kHow, kId, kMore>, const char*, auto& value) {
      const auto stored = table.template get_field<kId>();
      if constexpr (std::is_pointer_v<decltype(stored)>) {
        value = stored != nullptr ? stored->string_view() : std::string_view();
      } else {
        static_assert(sizeof stored == sizeof value);
        enums.set(value, stored);
      }
    });
    return enums.known;
  }
  const Tables* tables_ = nullptr;
  flatbuffers::uoffset_t row_ = 0;
};

/// A column of the chunk itself.
class StepRows {
 public:
  /// @return whether there are exactly `row_count` events.
  [[nodiscard]] bool bind(const PackedBytes* index, size_t row_count) {
    row_ = last_ = 0;
    return index_.bind(index, row_count, sizeof last_);
  }
  bool next(format::EventHeader header, format::Event& event) {
    last_ += static_cast<uint32_t>(index_.at(row_++));
    event.emplace<format::Step>(format::Step{.header = header, .index = last_});
    return true;
  }
  [[nodiscard]] bool resolved_by(const DefinitionCheck& /*check*/) const { return true; }

 private:
  PackedColumn index_;
  size_t row_ = 0;
  uint32_t last_ = 0;
};

}  // namespace convtrace::reader
