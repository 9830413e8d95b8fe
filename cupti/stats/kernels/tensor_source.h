#pragma once
/// @file tensor_source.h
/// Where the elements of a block's tensor lie, and how a thread loads them.
///
/// Alignment: any. Loads of a group where the tensor starts at a multiple of its bytes, loads of one
///            element where it is aligned for its type, bytes otherwise.

#include <cstdint>

#include "cupti/stats/kernels/device_layout.h"
#include "cupti/stats/tile/tiling.h"
#include "cupti/stats/tile/unpack.h"

namespace convtrace::stats {

/// A tensor, and where its dimensions are.
struct TensorInput {
  const DeviceTensor& tensor;
  const DeviceDim* dims;  ///< its tensor.rank dimensions, from tensor.first_dim on
};

/// One block of the grid: which tile of which tensor.
struct BlockInput : TensorInput {
  Tiling tiling;
  uint32_t tile;   ///< index of the tile in the tensor
  uint32_t place;  ///< the tensor's first place, counted from Batch::log
};

CONVTRACE_HD constexpr uint32_t bytes_of(uint8_t dtype) {
  return format::element_bytes(static_cast<DType>(dtype));
}

CONVTRACE_HD constexpr uint64_t values_of(const DeviceTensor& tensor) {
  return tensor.count * format::values_in_element(static_cast<DType>(tensor.dtype));
}

template <typename T>
CONVTRACE_HD T* pointer_to(uint64_t address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

/// @return raw bits of one element, zero-extended.
CONVTRACE_HD_COLD uint64_t read_element(uint64_t address, uint32_t size) {
  if (address % size == 0) {
    if (size == 1) return *pointer_to<const uint8_t>(address);
    if (size == 2) return *pointer_to<const uint16_t>(address);
    if (size == 4) return *pointer_to<const uint32_t>(address);
    return *pointer_to<const uint64_t>(address);
  }
  uint64_t bits = 0;
  for (uint32_t i = 0; i < size; ++i)
    bits |= uint64_t{*pointer_to<const uint8_t>(address + i)} << (8 * i);
  return bits;
}

/// Where an element lies.
struct Located {
  uint64_t address;
  uint64_t left;  ///< elements from it on, itself included, that are one innermost stride apart
};

CONVTRACE_HD_COLD Located locate(const TensorInput& in, uint64_t index) {
  const uint32_t size = bytes_of(in.tensor.dtype);
  if (in.tensor.rank == 0) return {in.tensor.data + index * size, in.tensor.count - index};
  Located found = {in.tensor.data, 0};
  for (uint32_t i = in.tensor.rank; i-- > 0;) {
    const DeviceDim& dim = in.dims[i];
    const uint64_t at = index % dim.extent;
    if (found.left == 0) found.left = dim.extent - at;
    index /= dim.extent;
    found.address += at * static_cast<uint64_t>(dim.stride) * size;  // mod 2^64: strides may be < 0
  }
  return found;
}

/// @return raw bits of one value, as samples have them.
CONVTRACE_HD_COLD uint64_t value_bits(const TensorInput& in, uint64_t index) {
  const auto dtype = static_cast<DType>(in.tensor.dtype);
  const uint32_t values = format::values_in_element(dtype);
  const uint64_t element =
      read_element(locate(in, index / values).address, bytes_of(in.tensor.dtype));
  return nth_value(element, dtype, index % values);
}

/// Gathers elements one by one: strided, unaligned or at the tensor's end.
CONVTRACE_HD_COLD Group gather_group(const TensorInput& in, uint64_t first, uint32_t valid) {
  const uint32_t size = bytes_of(in.tensor.dtype);
  uint64_t stride = size;
  if (in.tensor.rank != 0) stride *= static_cast<uint64_t>(in.dims[in.tensor.rank - 1u].stride);
  uint64_t halves[2] = {};
  Located at = {};
  CONVTRACE_ROLLED
  for (uint32_t e = 0; e < valid; ++e, at.address += stride, --at.left) {
    if (at.left == 0) at = locate(in, first + e);
    halves[e * size / 8] |= read_element(at.address, size) << (e * size % 8 * 8);
  }
  return {{static_cast<uint32_t>(halves[0]), static_cast<uint32_t>(halves[0] >> 32),
           static_cast<uint32_t>(halves[1]), static_cast<uint32_t>(halves[1] >> 32)}};
}

/// Source for thread_totals: elements as they are taken.
template <DType D>
class TensorSource {
 public:
  using Bits = typename Element<D>::Bits;

  CONVTRACE_HD explicit TensorSource(const TensorInput& in)
      : in_(in),
        data_(in.tensor.data),
        vector_(in.tensor.rank == 0 && in.tensor.data % kLoadBytes == 0) {}

  /// @pre D has a shift (kHasShift); such types are never unpacked.
  CONVTRACE_HD Bits element(uint64_t index) const {
    return static_cast<Bits>(value_bits(in_, index));
  }

  CONVTRACE_HD Group load(uint64_t first, uint32_t valid) const {
    const bool vector = vector_ && valid == kPerGroup<D>;
    return vector ? load_aligned(address_of(first)) : gather(first, valid);
  }

  CONVTRACE_HD Chunk load_chunk(uint64_t first) const {
    Chunk chunk;
    if (vector_) {
      for (uint32_t i = 0; i < kChunkGroups; ++i)
        chunk.group[i] = load_aligned(address_of(first) + i * (kRowBytes / kSpread<D>));
    } else {
      for (uint32_t i = 0; i < kChunkGroups; ++i)
        chunk.group[i] = gather(first + i * kPerRow<D>, kPerGroup<D>);
    }
    return chunk;
  }

 private:
  static constexpr uint32_t kLoadBytes = kGroupBytes / kSpread<D>;  ///< size of a group in memory
  static constexpr uint32_t kValues = format::values_in_element(D);

  CONVTRACE_HD uint64_t address_of(uint64_t first) const {
    return data_ + first / kValues * format::element_bytes(D);
  }

  CONVTRACE_HD Group gather(uint64_t first, uint32_t valid) const {
    const Group group = gather_group(in_, first / kValues, valid / kValues);
    if constexpr (!kUnpacked<D>)
      return group;
    else
      return first_of(unpack<D>(group.word[0], group.word[1]), valid * sizeof(Bits));
  }

  CONVTRACE_HD static Group load_aligned(uint64_t address) {
    if constexpr (kUnpacked<D>) {
#if defined(__CUDA_ARCH__)
      const uint2 words = __ldcs(pointer_to<const uint2>(address));
      return unpack<D>(words.x, words.y);
#else
      uint32_t words[2];
      __builtin_memcpy(words, pointer_to<const void>(address), sizeof(words));
      return unpack<D>(words[0], words[1]);
#endif
    } else {
#if defined(__CUDA_ARCH__)
      const uint4 words = __ldcs(pointer_to<const uint4>(address));
      return {{words.x, words.y, words.z, words.w}};
#else
      Group group;
      __builtin_memcpy(&group, pointer_to<const void>(address), sizeof(group));
      return group;
#endif
    }
  }

  const TensorInput in_;
  uint64_t data_;
  bool vector_;  ///< groups are whole and aligned in memory
};

}  // namespace convtrace::stats
