#include "reader/columns/rare_rows.h"

#include <algorithm>

#include "format/definitions.h"
#include "reader/columns/enums.h"
#include "reader/columns/text_budget.h"

namespace convtrace::reader {
namespace {

std::string_view text(const flatbuffers::String* string) {
  return string != nullptr ? std::string_view(string->c_str(), string->size()) : std::string_view();
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

bool rare_texts_fit(const wire::Chunk& chunk, size_t raw_bytes) {
  TextBudget budget(raw_bytes);
  const auto fits = [&budget](const flatbuffers::String* string) {
    return text(string).size() <= format::kMaxStringBytes && budget.take(string);
  };
  if (chunk.finding() != nullptr) {
    for (const wire::Finding* row : *chunk.finding()) {
      if (!fits(row->message())) return false;
    }
  }
  if (chunk.diagnostic() != nullptr) {
    for (const wire::Diagnostic* row : *chunk.diagnostic()) {
      if (!fits(row->site()) || !fits(row->message())) return false;
    }
  }
  return true;
}

bool findings_resolved_by(const DefinitionCheck& check, const wire::Chunk& chunk) {
  if (chunk.finding() == nullptr) return true;
  return std::ranges::all_of(*chunk.finding(), [&check](const wire::Finding* row) {
    format::Finding finding;
    return !read(*row, finding) || check.resolves(finding);
  });
}

}  // namespace convtrace::reader
