#pragma once
/// @file stats.h
/// The definition of every statistic of a tensor, compiled for the host and for devices.
///
/// Elements are taken in row-major logical order, whatever the strides. The same input gives the
/// same bits on every machine:
///
///   tile/dtype_decode.h    what an element's bits mean: value, class, order
///   tile/unpack.h          elements that are taken wider than they lie in memory
///   tile/hash.h            the hash of the logical bytes
///   tile/tiling.h          which thread of which tile an element belongs to, and the trees
///   tile/sketch_index.h    the bucket and the sign of an element in a sketch
///   tile/sketch.h          a tile's sketch, lane by lane
///   tile/partial.h         how consecutive tiles merge
///   thread/thread_tile.h   the loop of one thread over its part of a tile
///   thread/accumulator.h   what it gathers there, and a tile's result
///   thread/thread_hash.h   the hash, by a warp
///   thread/thread_sketch.h the sketch, by a warp
///   thread/tally.h         counts and extremes
///   thread/wide_sums.h     sums in f64: types of 32 and 64 bits
///   thread/chunk_sums.h    sums of floats of 16 bits and less
///   thread/exact_sums.h    sums of integers of 8 and 16 bits
///   thread/narrow_sums.h   sums of f32 in pairs of f32: for GPUs with slow f64
///   finalize.h             divisions and square roots, on the host
///
/// Counts, extremes, hashes and integer sums do not depend on order at all; floating sums are equal
/// because the order is fixed and every operation is an explicit IEEE operation (arith.h).
///
/// Source:   docs/recording.md "Statistics".

#include "cupti/stats/finalize.h"
#include "cupti/stats/thread/accumulator.h"
#include "cupti/stats/tile/arith.h"
#include "cupti/stats/tile/dtype_decode.h"
#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/sketch.h"
#include "cupti/stats/tile/tiling.h"
