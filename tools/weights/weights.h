#pragma once
/// @file weights.h
/// The parameters of a program as its traces have them: by name, version and rank.
///
/// Place:    compare.h holds two of them against each other.
/// Threads:  plain values.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "format/model/events.h"

namespace convtrace::weights {

/// One rank's record of a parameter.
struct Value {
  uint32_t rank = 0;
  format::DType dtype = format::DType::kUnknown;
  format::Capture capture = format::Capture::kHash;
  format::Stats stats;
};

/// The time of a parameter's value: at the first forward pass of a step, or after the update of a
/// step.
struct Version {
  uint32_t step = 0;
  bool updated = false;
  auto operator<=>(const Version&) const = default;
};

/// The values that a parameter had, on each rank that recorded it.
using History = std::map<Version, std::vector<Value>>;

struct Weights {
  std::string path;
  std::map<std::string, History> parameters;  ///< by qualified name: "h.0.mlp.weight"
  std::vector<uint32_t> ranks;
  bool lacks_ranks = false;             ///< there are fewer traces than the program had ranks
  bool hashed_anew = true;              ///< by version 2 of the hash, on all ranks
  std::vector<std::string> incomplete;  ///< lines about traces, escaped
};

/// A parameter as a whole: of one rank, of several that have it alike, or in pieces.
struct Whole {
  bool known = false;        ///< false: its pieces cannot be put together
  bool exact = false;        ///< one tensor: its hash and its sketch hold
  size_t pieces = 1;         ///< unlike tensors that were put together
  uint64_t piece_count = 0;  ///< elements of each piece, if all have as many
  format::DType dtype = format::DType::kUnknown;
  bool measured = false;  ///< more than a hash is known
  format::Stats stats;
};

/// Joins what ranks hold of one parameter, or parameters that another program has as one: equal
/// tensors are copies of one, unlike ones are pieces of a whole, whose counts, sums and extrema are
/// made of theirs.
[[nodiscard]] Whole joined(const std::vector<Value>& values);

/// Joins parameters that another program has as one.
[[nodiscard]] Whole fused(const std::vector<Whole>& parts);

/// Reads the parameters of a program out of its traces.
/// @param path  a trace, or a folder of traces, one a rank.
/// @return false with `error`, one escaped line, where nothing could be read.
[[nodiscard]] bool read_weights(const std::string& path, Weights& weights, std::string& error);

}  // namespace convtrace::weights
