#pragma once
/// @file catalog.h
/// All checks, and the ids of their findings.
///
/// Place:    the one list: `--only`, `--skip` and the documents go by it. A test compares
///           docs/checks.md with it.

#include <span>
#include <string_view>

#include "tools/check/model/check.h"

namespace convtrace::check {

struct CatalogRow {
  std::string_view id;
  std::string_view what;     ///< the fault that it looks for, in a few words
  MakeCheck make = nullptr;  ///< null: made by the check of another row, or across ranks
  bool by_default = true;
  MakeCheck also = nullptr;  ///< a second check with this id
};

/// Ordered from causes to effects: findings of one level and step are reported in this order.
[[nodiscard]] std::span<const CatalogRow> catalog();
/// @return the position of an id, or the number of rows for kinds of findings about memory.
[[nodiscard]] size_t catalog_position(std::string_view id);

}  // namespace convtrace::check
