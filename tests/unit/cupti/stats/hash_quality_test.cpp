// What the hash tells apart: families of inputs that all differ, in the ways in which tensors differ.
// As in SMHasher (https://github.com/rurban/smhasher), collisions of the whole hash and of parts of it
// are counted, and compared with those of as many random numbers.

#include <algorithm>
#include <numeric>

#include "cupti/stats/tile/hash.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {
namespace {

using format::DType;
using Bytes = std::vector<uint8_t>;

/// @return how many pairs of the numbers are equal.
template <typename T>
uint64_t equal_pairs(std::vector<T> numbers) {
  std::ranges::sort(numbers);
  uint64_t pairs = 0;
  for (size_t i = 1, run = 0; i < numbers.size(); ++i) {
    run = numbers[i] == numbers[i - 1] ? run + 1 : 0;
    pairs += run;
  }
  return pairs;
}

/// @return the least count that a Poisson variable of this mean exceeds with a probability below 1e-6.
uint64_t largest_by_chance(double mean) {
  double probability = std::exp(-mean), below = 0;
  for (uint64_t count = 0;; ++count) {
    below += probability;
    if (1 - below < 1e-6) return count;
    probability *= mean / static_cast<double>(count + 1);
  }
}

/// Requires that hashes of different inputs differ, and that of their lowest, middle and highest 32 bits
/// no more pairs are equal than of 32 random bits. The first word is multiplied by y^0 = 1, so a change
/// of it alone reaches the lowest bits alone: parts are taken of what the hash is behind 16 other words.
void require_told_apart(const std::vector<uint64_t>& hashes) {
  constexpr double kFewestPairs = 1e8;
  const auto count = static_cast<double>(hashes.size());
  const double pairs = count * (count - 1) / 2;
  REQUIRE(pairs >= kFewestPairs);
  CHECK(equal_pairs(hashes) == 0);
  const uint64_t most = largest_by_chance(pairs / 0x1p32);
  const uint64_t behind = hash_factor(16);
  for (const int shift : {0, 16, 32}) {
    std::vector<uint32_t> part;
    part.reserve(hashes.size());
    for (const uint64_t hash : hashes)
      part.push_back(static_cast<uint32_t>(residue_product(hash, behind) >> shift));
    INFO("bits " << shift << " to " << shift + 31 << " of " << count << " hashes");
    CHECK(equal_pairs(std::move(part)) <= most);
  }
}

/// Normal numbers in bf16, as weights are.
Bytes bf16_weights(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  Bytes made(bytes);
  for (size_t at = 0; at + 1 < bytes; at += 2) {
    const auto bits = std::bit_cast<uint32_t>(normal(random)) >> 16;
    made[at] = static_cast<uint8_t>(bits);
    made[at + 1] = static_cast<uint8_t>(bits >> 8);
  }
  return made;
}

void flip(Bytes& bytes, size_t bit) { bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8); }

/// @return the hashes of the bytes and of all that differ from them in every `step`-th bit.
std::vector<uint64_t> hashes_of_flips(Bytes bytes, size_t step = 1) {
  std::vector<uint64_t> hashes = {hash_of(bytes)};
  for (size_t bit = 0; bit < bytes.size() * 8; bit += step) {
    flip(bytes, bit);
    hashes.push_back(hash_of(bytes));
    flip(bytes, bit);
  }
  return hashes;
}

TEST_CASE("hash quality: one flipped bit, everywhere", "[stats][hash]") {
  for (const size_t size : {2048u, 5003u, 16384u}) {  // words of 4 bytes, a rest, a whole tile
    require_told_apart(hashes_of_flips(bf16_weights(size, size)));
    require_told_apart(hashes_of_flips(Bytes(size)));
    require_told_apart(hashes_of_flips(Bytes(size, 0xFF)));
  }
  require_told_apart(hashes_of_flips(bf16_weights(200'000, 1), 37));  // tiles and ranges
}

TEST_CASE("hash quality: two flipped bits", "[stats][hash]") {
  for (const bool zeros : {false, true}) {
    Bytes bytes = zeros ? Bytes(64) : bf16_weights(64, 2);
    std::vector<uint64_t> hashes;
    for (size_t a = 0; a < 512; ++a) {
      flip(bytes, a);
      for (size_t b = a + 1; b < 512; ++b) {
        flip(bytes, b);
        hashes.push_back(hash_of(bytes));
        flip(bytes, b);
      }
      flip(bytes, a);
    }
    require_told_apart(hashes);
  }
  // The same bit of two elements of a tensor: a sign, an exponent.
  Bytes bytes = bf16_weights(1024, 3);
  std::vector<uint64_t> hashes;
  for (const size_t bit : {15u, 14u, 7u}) {
    for (size_t a = 0; a < 512; ++a) {
      for (size_t b = a + 1; b < 512; ++b) {
        flip(bytes, a * 16 + bit);
        flip(bytes, b * 16 + bit);
        hashes.push_back(hash_of(bytes));
        flip(bytes, a * 16 + bit);
        flip(bytes, b * 16 + bit);
      }
    }
  }
  require_told_apart(hashes);
}

TEST_CASE("hash quality: permuted blocks of 64 bytes", "[stats][hash]") {
  constexpr size_t kBlock = 64;
  const auto hashes_of_orders = [](const Bytes& bytes, auto next) {
    std::vector<size_t> order(bytes.size() / kBlock);
    std::iota(order.begin(), order.end(), 0);
    Bytes permuted(bytes.size());
    std::vector<uint64_t> hashes;
    do {
      for (size_t i = 0; i < order.size(); ++i)
        std::memcpy(&permuted[i * kBlock], &bytes[order[i] * kBlock], kBlock);
      hashes.push_back(hash_of(permuted));
    } while (next(order));
    return hashes;
  };
  // All orders of eight blocks: of weights, and of blocks that differ in one small integer.
  const auto next_order = [](auto& order) { return std::ranges::next_permutation(order).found; };
  Bytes small(8 * kBlock);
  for (size_t i = 0; i < 8; ++i) small[i * kBlock] = static_cast<uint8_t>(i);
  require_told_apart(hashes_of_orders(bf16_weights(8 * kBlock, 4), next_order));
  require_told_apart(hashes_of_orders(small, next_order));
  // Any two blocks of 512 exchanged.
  constexpr size_t kBlocks = 512;
  size_t a = 0, b = 0;
  const auto next_exchange = [&](auto& order) {
    std::swap(order[a], order[b]);
    if (++b == kBlocks) b = ++a + 1;
    if (b >= kBlocks) return false;
    std::swap(order[a], order[b]);
    return true;
  };
  require_told_apart(hashes_of_orders(bf16_weights(kBlocks * kBlock, 5), next_exchange));
}

TEST_CASE("hash quality: each pattern of bf16, repeated", "[stats][hash]") {
  std::vector<uint64_t> hashes;
  for (const size_t count : {1u, 2u, 3u, 8u, 512u, 1000u}) {
    std::vector<uint16_t> values(count);
    for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
      std::ranges::fill(values, static_cast<uint16_t>(pattern));
      hashes.push_back(hash_of(values));
    }
  }
  require_told_apart(hashes);
}

TEST_CASE("hash quality: zeros of every length", "[stats][hash]") {
  const Bytes zeros(65536);
  std::vector<uint64_t> hashes;
  for (size_t size = 0; size <= zeros.size(); ++size) {
    const TensorView view = dense_view(zeros.data(), DType::kU8, size);
    hashes.push_back(compute(view, format::Capture::kHash).stats.hash);
  }
  require_told_apart(hashes);
}

TEST_CASE("hash quality: one value among zeros, at every position", "[stats][hash]") {
  const auto of_values = []<typename T>(size_t count, std::initializer_list<T> patterns) {
    std::vector<T> values(count);
    std::vector<uint64_t> hashes = {hash_of(values)};
    for (auto& value : values) {
      for (const T pattern : patterns) {
        value = pattern;
        hashes.push_back(hash_of(values));
      }
      value = 0;
    }
    return hashes;
  };
  // 1, -1, 2, 0.5, the least and the largest of bf16.
  require_told_apart(of_values(
      16384, std::initializer_list<uint16_t>{0x3F80, 0xBF80, 0x4000, 0x3F00, 0x0001, 0x7F7F}));
  require_told_apart(of_values(16384, {1.0F, -1.0F}));
  require_told_apart(of_values(16384, std::initializer_list<uint8_t>{1, 2, 255}));
  require_told_apart(of_values(8192, std::initializer_list<int64_t>{1, -1}));
}

TEST_CASE("hash quality: few small integers", "[stats][hash]") {
  // All tensors of four integers below 18, and all tensors of up to two bytes.
  const auto of_four = [](auto zero) {
    std::vector<uint64_t> hashes;
    for (int i = 0; i < 18 * 18 * 18 * 18; ++i) {
      std::vector<decltype(zero)> values;
      for (int rest = i, k = 0; k < 4; ++k, rest /= 18)
        values.push_back(static_cast<decltype(zero)>(rest % 18));
      hashes.push_back(hash_of(values));
    }
    return hashes;
  };
  require_told_apart(of_four(int64_t{}));
  require_told_apart(of_four(int32_t{}));
  require_told_apart(of_four(uint8_t{}));
  require_told_apart(of_four(0.0F));
  std::vector<uint64_t> hashes = {hash_of(Bytes{})};
  for (uint32_t i = 0; i < 256; ++i) hashes.push_back(hash_of(Bytes{static_cast<uint8_t>(i)}));
  for (uint32_t i = 0; i < 65536; ++i)
    hashes.push_back(hash_of(std::vector{static_cast<uint16_t>(i)}));
  require_told_apart(hashes);
}

TEST_CASE("hash quality: ramps", "[stats][hash]") {
  // begin, begin + step, ..., as indices and positions have it.
  const auto of_ramps = [](auto zero) {
    using T = decltype(zero);
    std::vector<T> values(256);
    std::vector<uint64_t> hashes;
    for (int begin = 0; begin < 320; ++begin) {
      for (int step = 0; step < 320; ++step) {
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<T>(begin + step * static_cast<int>(i));
        hashes.push_back(hash_of(values));
      }
    }
    return hashes;
  };
  require_told_apart(of_ramps(int64_t{}));
  require_told_apart(of_ramps(int32_t{}));
  require_told_apart(of_ramps(0.0F));
}

// A change of one word adds the same to the hash whatever the others are: the word's difference times
// y^i, modulo the prime. So a given change does not flip each bit of the hash in half of all tensors,
// as SMHasher's avalanche test asks of a hash: the lowest bit it flips nearly always or nearly never.
// What is asked here is that changes at different places flip each bit in half of the cases.
TEST_CASE("hash quality: a change adds what depends on its place alone", "[stats][hash]") {
  std::mt19937_64 random(6);
  for (const size_t bit : {0u, 31u, 32u, 4096u, 39'999u}) {
    INFO("bit " << bit);
    const uint64_t power = hash_factor(bit / 32);
    const uint64_t added = residue_product(power, uint64_t{1} << bit % 32);
    for (int i = 0; i < 20; ++i) {
      Bytes bytes = random_bytes(DType::kU8, 5000, random());
      bytes[bit / 8] &= static_cast<uint8_t>(~(1 << bit % 8));
      const uint64_t before = hash_of(bytes);
      flip(bytes, bit);
      REQUIRE(hash_of(bytes) == residue_sum(before, added));
    }
  }
}

TEST_CASE("hash quality: changes at different places flip each bit of the hash in half of them",
          "[stats][hash]") {
  for (const bool zeros : {false, true}) {
    const Bytes bytes = zeros ? Bytes(16384) : bf16_weights(16384, 7);
    const auto hashes = hashes_of_flips(bytes);
    const auto changes = static_cast<double>(hashes.size() - 1);
    const double deviation = std::sqrt(changes) / 2;
    for (int bit = 0; bit < 64; ++bit) {
      INFO("bit " << bit << (zeros ? " of zeros" : " of weights"));
      const auto flipped = std::ranges::count_if(
          hashes, [&](uint64_t hash) { return ((hash ^ hashes[0]) >> bit) % 2 != 0; });
      CHECK(std::fabs(static_cast<double>(flipped) - changes / 2) < 5 * deviation);
    }
  }
}

/// @return word differences a and b, below 2^32, with a + b y^distance = 0 modulo the prime; zeros if
/// there are none. Source: Lagrange and Gauss's reduction of a lattice of two dimensions.
std::pair<int64_t, int64_t> cancelling(uint64_t distance) {
  // The lattice of all such pairs, integers without a bound, has these two for a basis.
  Int128 a[2] = {Int128{kHashPrime}, -Int128{hash_factor(distance)}};
  Int128 b[2] = {0, 1};
  const auto length = [&](int i) {
    const auto x = static_cast<long double>(a[i]), y = static_cast<long double>(b[i]);
    return x * x + y * y;
  };
  while (true) {
    if (length(0) < length(1)) std::swap(a[0], a[1]), std::swap(b[0], b[1]);
    const long double along = (static_cast<long double>(a[0]) * static_cast<long double>(a[1]) +
                               static_cast<long double>(b[0]) * static_cast<long double>(b[1])) /
                              length(1);
    const auto times = static_cast<Int128>(std::round(along));
    if (times == 0) break;
    a[0] -= times * a[1];
    b[0] -= times * b[1];
  }
  const auto fits = [](Int128 x) { return x > -(Int128{1} << 32) && x < Int128{1} << 32; };
  if (!fits(a[1]) || !fits(b[1])) return {};
  return {static_cast<int64_t>(a[1]), static_cast<int64_t>(b[1])};
}

TEST_CASE("hash quality: who wants a collision makes one", "[stats][hash]") {
  // Why equal hashes prove nothing against an adversary.
  int made = 0;
  for (uint64_t distance = 1; distance < 100; ++distance) {
    const auto [a, b] = cancelling(distance);
    if (a == 0) continue;
    std::vector<uint32_t> one(200), other(200);
    const auto put = [&](size_t at, int64_t difference) {
      (difference > 0 ? one : other)[at] = static_cast<uint32_t>(std::abs(difference));
    };
    put(10, a);
    put(10 + distance, b);
    REQUIRE(one != other);
    REQUIRE(hash_of(one) == hash_of(other));
    ++made;
  }
  CHECK(made > 10);
}

}  // namespace
}  // namespace convtrace::stats::test
