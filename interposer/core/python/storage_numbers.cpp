#include "interposer/core/python/storage_numbers.h"

#include <algorithm>
#include <vector>

namespace convtrace::python {

StorageNumbers::~StorageNumbers() {
  for (const auto& [token, number] : known_) api.Py_DecRef(token);
}

uint64_t StorageNumbers::of(PyObject* storage) {
  static PyObject* const dict = api.PyUnicode_InternFromString("__dict__");
  Ref token = dict != nullptr ? attribute(storage, dict) : Ref();
  if (!token) return 0;
  const auto found = known_.find(token.get());
  if (found != known_.end()) return found->second;
  const uint64_t number = word(Ref(api.PyIter_Next(next_.get())));
  if (failed(number)) return 0;
  known_.emplace(token.get(), number);
  met_ = true;
  static_cast<void>(token.release());
  if (known_.size() > most_) forget_dead();
  return number;
}

/// A dictionary to which nothing else refers has no storage. What it holds may run code of the program when
/// it goes, which may ask for a number: so it goes last.
void StorageNumbers::forget_dead() {
  std::vector<Ref> dead;
  for (auto at = known_.begin(); at != known_.end();) {
    const bool is_alone = static_cast<uint32_t>(at->first->refcount) == 1;  // 3.14 has flags above
    if (is_alone) dead.emplace_back(at->first);
    at = is_alone ? known_.erase(at) : std::next(at);
  }
  most_ = std::max(kSweptFirst, 2 * known_.size());
  met_ = false;
}

}  // namespace convtrace::python
