#include "reader/columns/rare_rows.h"

#include <algorithm>

#include "format/model/definitions.h"
#include "reader/columns/enums.h"
#include "reader/columns/text_budget.h"

namespace convtrace::reader {
namespace {

std::string_view text(const flatbuffers::String* string) {
  return string != nullptr ? std::string_view(string->c_str(), string->size()) : std::string_view();
}

/// Whether `holds` for each row of a table that may be absent.
template <typename Table, typename Holds>
bool all_rows(const flatbuffers::Vector<flatbuffers::Offset<Table>>* rows, const Holds& holds) {
  return rows == nullptr ||
         std::ranges::all_of(*rows, [&holds](const Table* row) { return holds(*row); });
}

}  // namespace

bool read(const wire::Finding& from, format::Finding& e) {
  Enums enums;
  e.place.scope = {from.scope()};
  e.place.call = from.call();
  enums.set(e.place.phase, from.phase());
  enums.set(e.kind, from.kind());
  enums.set(e.level, from.level());
  e.suppressed = from.suppressed();
  e.op = {from.op()};
  e.kernel = {from.kernel()};
  e.slot = {from.slot()};
  e.other = {from.other()};
  e.address = from.address();
  e.bytes = from.bytes();
  e.value = {from.storage(), from.storage_offset(), from.generation(), from.version()};
  e.alloc_stack = {from.alloc_stack()};
  e.launch_stack = {from.launch_stack()};
  e.free_stack = {from.free_stack()};
  e.message = text(from.message());
  return enums.known;
}

bool read(const wire::Diagnostic& from, format::Diagnostic& e) {
  Enums enums;
  enums.set(e.level, from.level());
  e.site = text(from.site());
  e.message = text(from.message());
  return enums.known;
}

bool read(const wire::Loss& from, format::Loss& e) {
  Enums enums;
  enums.set(e.reason, from.reason());
  e.count = from.count();
  return enums.known;
}

bool read(const wire::Cost& from, format::Cost& e) {
  e.host_ns = from.host_ns();
  e.device_ns = from.device_ns();
  e.bytes = from.bytes();
  return true;
}

bool read(const wire::Fact& from, format::Fact& e) {
  e.scope = {from.scope()};
  e.name = {from.name()};
  e.value = text(from.value());
  return true;
}

bool rare_texts_fit(const wire::Chunk& chunk, size_t raw_bytes) {
  TextBudget budget(raw_bytes);
  const auto fits = [&budget](const flatbuffers::String* string) {
    return text(string).size() <= format::kMaxStringBytes && budget.take(string);
  };
  return all_rows(chunk.finding(), [&](const auto& row) { return fits(row.message()); }) &&
         all_rows(chunk.diagnostic(),
                  [&](const auto& row) { return fits(row.site()) && fits(row.message()); }) &&
         all_rows(chunk.fact(), [&](const auto& row) { return fits(row.value()); });
}

bool rare_resolved_by(const DefinitionCheck& check, const wire::Chunk& chunk) {
  const auto resolves = [&check]<typename Event>(const auto& row, Event event) {
    return !read(row, event) || check.resolves(event);
  };
  return all_rows(chunk.finding(),
                  [&](const auto& row) { return resolves(row, format::Finding{}); }) &&
         all_rows(chunk.fact(), [&](const auto& row) { return resolves(row, format::Fact{}); });
}

}  // namespace convtrace::reader
