#pragma once
/// @file stats.h
/// The definition of every statistic of a tensor, compiled for the host and for devices.
///
/// Elements are taken in row-major logical order, whatever the strides. The same input gives the
/// same bits on every machine:
///
///   dtype_decode.h  what an element's bits mean: value, class, order
///   hash.h          the hash of the logical bytes
///   thread_hash.h   the same, by a warp
///   tiling.h        which thread of which tile an element belongs to, and the trees
///   wide_sums.h     the sums of a thread in f64: the reference
///   narrow_sums.h   the same in pairs of f32: another variant, for GPUs with slow f64
///   tally.h         counts and extremes of a thread
///   accumulator.h   what a thread gathers, and a tile's result
///   sketch_index.h  the bucket and the sign of an element in a sketch
///   sketch.h        a tile's sketch
///   partial.h       how consecutive tiles merge
///   finalize.h      divisions and square roots, on the host
///
/// Counts, extremes, hashes and integer sums do not depend on order at all; floating sums are equal
/// because the order is fixed and every operation is an explicit IEEE operation (arith.h).
///
/// Source:   docs/recording.md "Statistics".

#include "cupti/stats/finalize.h"
#include "cupti/stats/tile/accumulator.h"
#include "cupti/stats/tile/arith.h"
#include "cupti/stats/tile/dtype_decode.h"
#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/sketch.h"
#include "cupti/stats/tile/tiling.h"
