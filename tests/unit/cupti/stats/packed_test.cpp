// What a device computes with several elements at once (packed_bytes.h, packed_halves.h and what is
// made of them), against one element after the other. The host has its own code for the device's
// instructions alone.

#include "cupti/stats/thread/chunk_extremes.h"
#include "cupti/stats/thread/exact_sums.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

TEST_CASE("packed: chosen bytes and signs", "[stats][packed]") {
  // prmt: bytes are numbered from the lower end of `a` on.
  CHECK(chosen_bytes<0x3210>(0x33221100, 0x77665544) == 0x33221100);
  CHECK(chosen_bytes<0x7654>(0x33221100, 0x77665544) == 0x77665544);
  CHECK(chosen_bytes<0x0246>(0x33221100, 0x77665544) == 0x00224466);
  CHECK(chosen_bytes<0x4341>(0x33221100, 0) == 0x00330011);
  CHECK(chosen_bytes<0xBA98>(0x807FFF00, 0) == 0xFF00FF00);
  CHECK(chosen_bytes<0xFDB9>(0x80007FFF, 0xFFFF0000) == 0xFF00FF00);
  CHECK(chosen_bytes<0xBB99>(0x80007FFF, 0x80007FFF) == 0xFFFF0000);
}

TEST_CASE("packed: dot products", "[stats][packed]") {
  CHECK(dot<false, 1>(0xFF020304, 0x02010101, 5) == 510 + 2 + 3 + 4 + 5);
  CHECK(dot<true, 1>(0xFF80017F, 0x01010180, 0) == static_cast<uint32_t>(-1 - 128 + 1 - 127 * 128));
  CHECK(dot<false, 2>(0xFFFF0003, 0x9999FF02, 1) == 65535 * 255 + 6 + 1);
  CHECK(dot<true, 2>(0x8000FFFE, 0x99990180, 7) == static_cast<uint32_t>(-32768 + 2 * 128 + 7));
}

template <DType D>
void require_every_half_decodes() {
  using E = Element<D>;
  constexpr uint32_t kCount = 1U << 8 * sizeof(typename E::Bits);
  constexpr uint32_t kOfWord = 4 / sizeof(typename E::Bits);
  for (uint32_t pattern = 0; pattern < kCount; ++pattern) {
    for (uint32_t part = 0; part < kOfWord; ++part) {
      const uint32_t others = 0x5A5A5A5A & ~((kCount - 1) << 8 * sizeof(typename E::Bits) * part);
      const uint32_t word = others | pattern << 8 * sizeof(typename E::Bits) * part;
      const uint32_t halves = halves_of<D>(word, part % kHalvesOfWord<D>);
      const uint32_t high = part / kHalvesOfWord<D>;
      const auto half = static_cast<uint16_t>(halves >> 16 * high);
      if (bits_of_half<D>(half) != pattern) FAIL(std::hex << pattern << " in part " << part);
      const Decoded want = decode(D, pattern);
      if (want.kind != Decoded::Kind::kFinite) continue;
      const double got = static_cast<double>(half_value<D>(halves, high)) * kHalfUnit<D>;
      if (got != static_cast<double>(want.value) || std::signbit(got) != want.negative)
        FAIL(std::hex << pattern << " is " << got);
    }
  }
}

template <DType D>
void require_halves_are_ordered() {
  using E = Element<D>;
  const auto half_of = [](uint32_t pattern) {
    return sizeof(typename E::Bits) == 2 ? pattern : halves_of<D>(pattern << 8, 1) & 0xFFFF;
  };
  constexpr uint32_t kCount = 1U << 8 * sizeof(typename E::Bits);
  constexpr uint32_t kStep = kCount > 256 ? 97 : 1;  // coprime to the limits' places
  for (uint32_t a = 0; a < kCount; a += kStep) {
    for (uint32_t b = 0; b < kCount; b += kStep) {
      const auto x = static_cast<typename E::Bits>(a), y = static_cast<typename E::Bits>(b);
      const uint32_t one = half_of(a) | half_of(b) << 16, other = half_of(b) | half_of(a) << 16;
      const uint32_t least = least_halves<D>(one, other), most = most_halves<D>(one, other);
      const auto key_of = [](uint32_t half) {
        return E::key(bits_of_half<D>(static_cast<uint16_t>(half)));
      };
      bool sound = least >> 16 == (least & 0xFFFF) && most >> 16 == (most & 0xFFFF);
      if (E::nan(x) || E::nan(y)) {
        // f8e4m3fn has none in halves: one is beyond the finite ones.
        sound = sound && E::reaches_limits(key_of(least), key_of(most));
      } else {
        sound = sound && key_of(least) == std::min(E::key(x), E::key(y)) &&
                key_of(most) == std::max(E::key(x), E::key(y));
      }
      if (!sound) FAIL(std::hex << a << " and " << b << ": " << least << ", " << most);
    }
  }
}

TEMPLATE_TEST_CASE_SIG("packed: each float of a word is itself as a half, and ordered as it was",
                       "[stats][packed]", ((DType D), D), DType::kF16, DType::kBF16,
                       DType::kF8E4M3FN, DType::kF8E5M2) {
  require_every_half_decodes<D>();
  require_halves_are_ordered<D>();
  SUCCEED();
}

/// @return a chunk of `usual` with another element at one place.
template <DType D>
Chunk chunk_with(typename Element<D>::Bits usual, typename Element<D>::Bits other, uint32_t place) {
  constexpr uint32_t kCount = kChunkGroups * kPerGroup<D>;
  typename Element<D>::Bits elements[kCount];
  for (auto& element : elements) element = usual;
  elements[place % kCount] = other;
  Chunk chunk;
  std::memcpy(&chunk, elements, sizeof chunk);
  return chunk;
}

template <DType D>
void require_extremes_of_elements(const Chunk& chunk, const ChunkExtremes<D>& got) {
  using E = Element<D>;
  typename Element<D>::Bits elements[kChunkGroups * kPerGroup<D>];
  std::memcpy(elements, &chunk, sizeof chunk);
  ChunkExtremes<D> want = {E::key(elements[0]), E::key(elements[0]), E::magnitude(elements[0])};
  for (const auto bits : elements) {
    want.lowest = std::min(want.lowest, E::key(bits));
    want.highest = std::max(want.highest, E::key(bits));
    want.smallest = std::min(want.smallest, E::magnitude(bits));
  }
  REQUIRE(got.lowest == want.lowest);
  REQUIRE(got.highest == want.highest);
  REQUIRE(got.smallest == want.smallest);
}

TEMPLATE_TEST_CASE_SIG("packed: a zero of either sign or a limit is in its order at every place",
                       "[stats][packed]", ((DType D), D), DType::kF64, DType::kF32, DType::kF16,
                       DType::kBF16, DType::kF8E4M3FN, DType::kF8E5M2, DType::kI8, DType::kU8,
                       DType::kI16, DType::kU16, DType::kI32, DType::kU32, DType::kI64, DType::kU64,
                       DType::kBool) {
  using E = Element<D>;
  using Bits = typename E::Bits;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  constexpr Bits kPatterns[] = {0,
                                kSign,
                                1,
                                kSign | 1,
                                kSign | 5,
                                kSign / 2,
                                kSign | kSign / 2,
                                kSign - 1,
                                static_cast<Bits>(~Bits{0})};
  for (const Bits usual : kPatterns) {
    for (const Bits other : kPatterns) {
      if (!E::finite(usual) || !E::finite(other)) continue;
      for (uint32_t place = 0; place < kChunkGroups * kPerGroup<D>; ++place) {
        INFO(std::hex << +other << " among " << +usual << " at " << place);
        const Chunk chunk = chunk_with<D>(usual, other, place);
        require_extremes_of_elements<D>(chunk, chunk_extremes<D>(chunk));
        RawExtremes<D> raw;
        for (const Group& group : chunk.group) {
          for (uint32_t e = 0; e < kPerGroup<D>; ++e)
            raw.add(RawExtremes<D>::number(element_of<D>(group, e)));
        }
        require_extremes_of_elements<D>(chunk, raw.extremes());
      }
    }
  }
}

template <DType D>
void require_chunk_is_its_elements(const Chunk& chunk) {
  using E = Element<D>;
  RawExtremes<D> raw;
  uint32_t negative = 0;
  bool finite = true;
  for (const Group& group : chunk.group) {
    for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
      const auto bits = element_of<D>(group, e);
      raw.add(RawExtremes<D>::number(bits));
      negative += E::negative(bits);
      finite = finite && E::finite(bits);
    }
  }
  const ChunkExtremes<D> got = chunk_extremes<D>(chunk), want = raw.extremes();
  bool sound = negatives<D>(chunk) == negative;
  if (finite) {
    sound = sound && got.lowest == want.lowest && got.highest == want.highest &&
            got.smallest == want.smallest;
  } else {
    sound = sound && E::reaches_limits(got.lowest, got.highest);
  }
  if constexpr (kHasExactSums<D>) {
    ExactSums<D> sums, elements;
    sums.add_usual(chunk);
    elements.add_any(chunk, UINT32_MAX);
    ThreadTotals a, b;
    sums.put_into(a);
    elements.put_into(b);
    sound = sound && a.int_sum.low == b.int_sum.low && a.int_l1.low == b.int_l1.low &&
            a.int_squares == b.int_squares;
  }
  if (!sound) FAIL(format::to_string(D) << ", a chunk of " << std::hex << chunk.group[0].word[0]);
}

/// Chunks of any two elements; of 16-bit types, of every one with some.
template <DType D>
void require_chunks_are_their_elements() {
  using Bits = typename Element<D>::Bits;
  constexpr uint32_t kCount = 1U << 8 * sizeof(Bits);
  constexpr uint32_t kStep = kCount > 256 ? 6551 : 1;
  for (uint32_t a = 0; a < kCount; ++a) {
    for (uint32_t b = a % 5; b < kCount; b += kStep)
      require_chunk_is_its_elements<D>(
          chunk_with<D>(static_cast<Bits>(a), static_cast<Bits>(b), a * 3 + b));
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    Chunk chunk;
    for (Group& group : chunk.group) {
      for (uint32_t& word : group.word) word = static_cast<uint32_t>(random());
    }
    require_chunk_is_its_elements<D>(chunk);
  }
}

TEMPLATE_TEST_CASE_SIG("packed: extremes, signs and sums of a chunk are those of its elements",
                       "[stats][packed]", ((DType D), D), DType::kF16, DType::kBF16,
                       DType::kF8E4M3FN, DType::kF8E5M2, DType::kI8, DType::kU8, DType::kI16,
                       DType::kU16) {
  require_chunks_are_their_elements<D>();
  SUCCEED();
}

}  // namespace
}  // namespace convtrace::stats::test
