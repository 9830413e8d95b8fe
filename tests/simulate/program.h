#pragma once
/// @file program.h
/// The network of a made-up job, and what a rank does in a step, one thing after another.
///
/// A layer is x + softsign(sum over tensor-parallel ranks of w * mix(x) + b). Layers follow one
/// another within a stage, stages within the pipeline: all forward passes of the micro-batches,
/// then all backward passes. Gradients are summed over replicas in buckets as soon as the last
/// micro-batch's are there.

#include <cstdint>
#include <string_view>
#include <vector>

#include "format/model/dtype.h"
#include "format/model/event_enums.h"
#include "tests/simulate/layout.h"
#include "tests/simulate/options.h"

namespace convtrace::simulate {

struct Bucket {
  std::vector<uint16_t> layers;  ///< as their gradients come: the last layer first
  uint32_t elements = 0;         ///< rounded up for shards
};

/// The same for all stages.
struct Model {
  uint32_t layers = 0;  ///< of a stage
  uint32_t micro_batches = 1;
  uint32_t elements = 0;
  uint32_t recorded_every = 1;  ///< layer whose values are recorded
  bool sharded = false;
  Types types = Types::kMixed;
  std::vector<Bucket> buckets;

  static Model of(const Options& options, const Layout& layout);

  [[nodiscard]] bool has_bias(uint32_t layer) const { return layer % 3 == 0; }
  [[nodiscard]] bool is_recorded(uint32_t layer) const { return layer % recorded_every == 0; }
  [[nodiscard]] format::DType type_of(uint32_t layer) const;
};

enum class Do : uint8_t {
  kInput,
  kPartial,
  kFinish,
  kHead,
  kLoss,
  kBackwardBegin,
  kLossGradient,
  kHeadFinish,
  kBackward,
  kBackwardFinish,
  kPack,
  kBackwardEnd,
  kNorm,
  kClip,
  kUpdate,
  kInitial,
  kCollective,
};

/// What a collective is for.
enum class Use : uint8_t {
  kNone,
  kInitial,       ///< parameters of the first replica to the others
  kForward,       ///< parts of a layer's output
  kLogits,        ///< parts of the head's output
  kHeadBackward,  ///< parts of the gradient behind it
  kBackward,      ///< parts of a layer's gradient
  kSendOn,
  kReceiveOn,
  kSendBack,
  kReceiveBack,
  kLoss,
  kBucket,
  kNorm,
  kParameters,  ///< updated shards
  kMetric,
  kTimes,  ///< of a job of more than 64 ranks their sum
  kBarrier,
};

struct UseInfo {
  std::string_view op, reduction;
  GroupKind group = GroupKind::kWorld;
  format::Phase phase = format::Phase::kForward;
  bool in_layer = false;  ///< its place is a layer
};
[[nodiscard]] UseInfo info_of(Use use, const Model& model, const Layout& layout);

struct Fault;

struct Instruction {
  Do what = Do::kCollective;
  Use use = Use::kNone;
  uint16_t layer = 0, micro = 0, bucket = 0;
  Fault* fault = nullptr;  ///< it goes wrong
};
using Program = std::vector<Instruction>;

/// @return what a rank of this stage does. @param first  in the job's first step
[[nodiscard]] Program program_of(const Model& model, const Layout& layout, uint32_t stage,
                                 bool first);

}  // namespace convtrace::simulate
