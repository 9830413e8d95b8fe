#include "interposer/core/python/storage_numbers.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace convtrace::python {
namespace {

/// @return whether nothing else refers to a dictionary: its storage no longer exists then.
bool is_alone(const PyObject* token) {
  return static_cast<uint32_t>(token->refcount) == 1;  // 3.14 has flags above
}

}  // namespace

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
  met_.push_back(token.get());
  static_cast<void>(token.release());
  if (known_.size() > most_) forget_dead();
  return number;
}

/// Releases the dictionaries at the end: objects in them may run code of the program when they are
/// destroyed, and that code may ask for a number.
void StorageNumbers::forget(const std::vector<PyObject*>& dead) {
  std::vector<Ref> last;
  last.reserve(dead.size());
  for (PyObject* const token : dead)
    if (known_.erase(token) != 0) last.emplace_back(token);
}

void StorageNumbers::sweep() {
  if (met_.empty()) return;
  std::vector<PyObject*> dead;
  std::ranges::copy_if(std::exchange(met_, {}), std::back_inserter(dead), is_alone);
  for (size_t i = 0; i < std::min(kInTurn, known_.bucket_count()); ++i) {
    bucket_ = (bucket_ + 1) % known_.bucket_count();
    for (auto at = known_.begin(bucket_); at != known_.end(bucket_); ++at)
      if (is_alone(at->first)) dead.push_back(at->first);
  }
  forget(dead);
}

void StorageNumbers::forget_dead() {
  met_.clear();
  std::vector<PyObject*> dead;
  for (const auto& [token, number] : known_)
    if (is_alone(token)) dead.push_back(token);
  forget(dead);
  most_ = std::max(kSweptFirst, 2 * known_.size());
}

}  // namespace convtrace::python
