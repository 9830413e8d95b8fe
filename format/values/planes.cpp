#include "format/values/planes.h"

#include <bit>

namespace convtrace::format {
namespace {

template <typename Word>
Word load(const std::byte* from, size_t i) {
  return load_le<Word>(from + i * sizeof(Word));
}

/// Elements in a block: an array that the compiler keeps in registers, so that the loop of each
/// plane is vectorised.
constexpr size_t kBlock = 32;

template <typename Word, bool kRotate, bool kXor>
[[gnu::always_inline]] inline void split_block(const std::byte* __restrict raw,
                                               const std::byte* __restrict base, size_t count,
                                               size_t plane_bytes, std::byte* __restrict planes) {
  Word words[kBlock];
  for (size_t i = 0; i < count; ++i) {
    Word word = load<Word>(raw, i);
    if constexpr (kXor) word = static_cast<Word>(word ^ load<Word>(base, i));
    words[i] = kRotate ? std::rotl(word, 1) : word;
  }
  for (size_t p = 0; p < sizeof(Word); ++p) {
    for (size_t i = 0; i < count; ++i)
      planes[p * plane_bytes + i] = static_cast<std::byte>(words[i] >> (8 * p));
  }
}

template <typename Word, bool kRotate, bool kXor>
void split(const std::byte* raw, const std::byte* base, size_t count, std::byte* planes) {
  const auto base_at = [&](size_t i) { return kXor ? base + i * sizeof(Word) : nullptr; };
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock)
    split_block<Word, kRotate, kXor>(raw + i * sizeof(Word), base_at(i), kBlock, count, planes + i);
  split_block<Word, kRotate, kXor>(raw + i * sizeof(Word), base_at(i), count - i, count,
                                   planes + i);
}

template <typename Word, bool kRotate, bool kXor>
void join(std::span<const std::byte* const> planes, const std::byte* __restrict base, size_t count,
          std::byte* __restrict raw) {
  const std::byte* from[sizeof(Word)];
  for (size_t p = 0; p < sizeof(Word); ++p) from[p] = planes[p];
  for (size_t i = 0; i < count; ++i) {
    Word word = 0;
    for (size_t p = 0; p < sizeof(Word); ++p)
      word = static_cast<Word>(word | Word{static_cast<uint8_t>(from[p][i])} << (8 * p));
    if constexpr (kRotate) word = std::rotr(word, 1);
    if constexpr (kXor) word = static_cast<Word>(word ^ load<Word>(base, i));
    store_le(raw + i * sizeof(Word), word);
  }
}

/// Calls `f.template operator()<Word, rotate, xor>()` for the form.
template <typename Word, typename Function>
void with_word(bool rotate, bool with_base, Function&& f) {
  if (rotate) {
    with_base ? f.template operator()<Word, true, true>()
              : f.template operator()<Word, true, false>();
  } else {
    with_base ? f.template operator()<Word, false, true>()
              : f.template operator()<Word, false, false>();
  }
}

template <typename Function>
void with_form(ElementForm form, bool with_base, Function&& f) {
  switch (form.width) {
    case 1: return with_word<uint8_t>(form.rotate, with_base, f);
    case 2: return with_word<uint16_t>(form.rotate, with_base, f);
    case 4: return with_word<uint32_t>(form.rotate, with_base, f);
    default: return with_word<uint64_t>(form.rotate, with_base, f);
  }
}

}  // namespace

void split_planes(Bytes raw, Bytes base, ElementForm form, std::span<std::byte> planes) noexcept {
  with_form(form, !base.empty(), [&]<typename Word, bool kRotate, bool kXor>() {
    split<Word, kRotate, kXor>(raw.data(), base.data(), raw.size() / sizeof(Word), planes.data());
  });
}

void join_planes(std::span<const std::byte* const> planes, Bytes base, ElementForm form,
                 std::span<std::byte> raw) noexcept {
  with_form(form, !base.empty(), [&]<typename Word, bool kRotate, bool kXor>() {
    join<Word, kRotate, kXor>(planes, base.data(), raw.size() / sizeof(Word), raw.data());
  });
}

}  // namespace convtrace::format
