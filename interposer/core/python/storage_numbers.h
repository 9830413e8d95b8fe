#pragma once
/// @file storage_numbers.h
/// Numbers of storages, of which no storage ever has another's.
///
/// Place:    under tensor_reader.h. base/storage_numbers.py is the reference.
/// Threads:  those that hold the GIL.
/// Source:   torch keeps the Python object of a storage, and so the dictionary of its attributes, exactly as
///           long as the owner of the memory lives (2.1 and later; before, each look gives a new number). While
///           that dictionary is kept here, no other storage has it. Nothing is written into it.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "interposer/core/python/api.h"

namespace convtrace::python {

class StorageNumbers {
 public:
  StorageNumbers() = default;
  ~StorageNumbers();
  StorageNumbers(const StorageNumbers&) = delete;
  StorageNumbers& operator=(const StorageNumbers&) = delete;

  /// @param next  an iterator over the numbers that are not given yet
  void count_with(Ref next) { next_ = std::move(next); }
  /// @return the number of a storage; 0 with Python's error set.
  uint64_t of(PyObject* storage);
  /// Releases the dictionaries of storages that no longer exist, if any were met since the last sweep: a
  /// program may have put attributes on them. Checks those met since then, most of which live for one
  /// step, and some of the others in turn, so that its time does not grow with their number.
  void sweep();

 private:
  static constexpr size_t kSweptFirst = 64;  // as in base/storage_numbers.py
  static constexpr size_t kInTurn = 64;      // buckets of a sweep

  void forget_dead();
  void forget(const std::vector<PyObject*>& dead);

  Ref next_;
  std::unordered_map<PyObject*, uint64_t> known_;  ///< from its dictionary, which is owned here
  size_t most_ = kSweptFirst;   ///< above this size, entries of dead storages are searched for
  std::vector<PyObject*> met_;  ///< since the last sweep
  size_t bucket_ = 0;           ///< that was looked at last
};

}  // namespace convtrace::python
