#include "reader/columns/sums_rows.h"

#include "format/file/layout.h"

namespace convtrace::reader {
namespace {

template <typename T>
bool holds(const flatbuffers::Vector<T>* column, size_t rows) {
  return column != nullptr && column->size() == rows &&
         reinterpret_cast<uintptr_t>(column->Data()) % alignof(T) == 0;
}

}  // namespace

bool append_sums(const format::wire::StepSums& from, std::vector<format::StepSums>& to) {
  const size_t rows = from.step() != nullptr ? from.step()->size() : 0;
  if (rows == 0) return true;
  const bool fits = rows <= format::kMaxSums && holds(from.step(), rows) &&
                    holds(from.launches(), rows) && holds(from.values(), rows) &&
                    holds(from.key_sum(), rows) && holds(from.value_sum(), rows);
  for (uint32_t i = 0; fits && i < rows; ++i) {
    to.push_back({.step = from.step()->Get(i),
                  .launches = from.launches()->Get(i),
                  .values = from.values()->Get(i),
                  .key_sum = from.key_sum()->Get(i),
                  .value_sum = from.value_sum()->Get(i)});
  }
  return fits;
}

}  // namespace convtrace::reader
