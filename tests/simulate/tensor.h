#pragma once
/// @file tensor.h
/// Tensors of a made-up job: never changed once they are made, so that ranks share equal ones and
/// their statistics.
///
/// Threads:  a Maker has one; summarize() of different tensors may run at the same time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/model/dtype.h"
#include "format/model/stats.h"
#include "tests/simulate/numbers.h"

namespace convtrace::simulate {

/// What a trace says of a tensor.
struct Summary {
  format::Stats stats;
  uint32_t variant = 0;
  uint32_t sample_bytes = 0;
  std::array<std::byte, format::kMaxWhole * sizeof(float)> samples;
};

struct Tensor {
  uint64_t id = 0;  ///< of no other tensor of the job
  format::DType dtype = format::DType::kF32;
  std::vector<float> elements;  ///< those of bf16 are rounded
  mutable bool wanted = false;  ///< somebody will summarize it
  mutable std::unique_ptr<const Summary> summary;
};
using Value = std::shared_ptr<const Tensor>;

/// @return the nearest number that the type has: f32 or bf16.
[[nodiscard]] float rounded(format::DType dtype, double value);

/// Fills in tensor.summary, as the product computes it.
void summarize(const Tensor& tensor);

/// Which function of which tensors, or numbers, a tensor is.
struct Recipe {
  uint64_t function = 0, a = 0, b = 0, c = 0;
  bool operator==(const Recipe&) const = default;
};

/// Makes tensors. What two ranks compute of the same tensors is one tensor, computed once.
class Maker {
 public:
  /// @param elements  of bf16: not rounded yet.
  [[nodiscard]] Value make(format::DType dtype, std::vector<float> elements);

  /// @return what `compute` gave when this recipe was first asked for in the step, or gives now.
  template <typename Compute>
  [[nodiscard]] Value once(const Recipe& recipe, Compute&& compute) {
    const auto found = made_.find(recipe);
    if (found != made_.end()) return found->second;
    Value value = std::forward<Compute>(compute)();
    made_.emplace(recipe, value);
    return value;
  }

  /// A step has ended.
  void forget() { made_.clear(); }

 private:
  struct Hash {
    size_t operator()(const Recipe& r) const { return seed_of({r.function, r.a, r.b, r.c}); }
  };
  uint64_t made_count_ = 0;
  std::unordered_map<Recipe, Value, Hash> made_;
};

}  // namespace convtrace::simulate
