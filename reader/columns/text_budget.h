#pragma once
/// @file text_budget.h
/// Limits the total length of a payload's texts, because all offsets of a hostile payload may lead
/// to one long text.
///
/// Source:   format/FORMAT.md section 9, "sum of a payload's texts".

#include <flatbuffers/flatbuffers.h>

#include <cstddef>

namespace convtrace::reader {

class TextBudget {
 public:
  explicit TextBudget(size_t raw_bytes) : left_(raw_bytes) {}

  /// @return whether all texts so far, with another of `bytes`, are within the limit.
  [[nodiscard]] bool take(size_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  /// @param text  may be null.
  [[nodiscard]] bool take(const flatbuffers::String* text) {
    return text == nullptr || take(text->size());
  }
  using Texts = flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>;
  [[nodiscard]] bool take(const Texts* texts) {
    if (texts == nullptr) return true;
    for (const flatbuffers::String* text : *texts) {
      if (!take(text)) return false;
    }
    return true;
  }

 private:
  size_t left_;
};

}  // namespace convtrace::reader
