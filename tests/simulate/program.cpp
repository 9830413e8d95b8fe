#include "tests/simulate/program.h"

#include <algorithm>

namespace convtrace::simulate {
namespace {

using format::Phase;

constexpr uint32_t kMostGathered = 64;

class Builder {
 public:
  Builder(const Model& model, const Layout& layout, uint32_t stage)
      : model_(model), layout_(layout), stage_(stage), last_(stage + 1 == layout.stages) {}

  Program build(bool first) {
    if (first) initial();
    for (uint16_t micro = 0; micro < model_.micro_batches; ++micro) forward(micro);
    if (last_) call_if(layout_.data > 1, {.use = Use::kLoss});
    add({.what = Do::kBackwardBegin});
    for (uint16_t micro = 0; micro < model_.micro_batches; ++micro) backward(micro);
    add({.what = Do::kBackwardEnd});
    add({.what = Do::kNorm});
    call_if(layout_.ranks > 1, {.use = Use::kNorm});
    add({.what = Do::kClip});
    for (uint16_t b = 0; model_.sharded && b < model_.buckets.size(); ++b)
      call_if(true,
              {.use = Use::kParameters, .layer = model_.buckets[b].layers.back(), .bucket = b});
    add({.what = Do::kUpdate});
    if (last_) call_if(layout_.data > 1, {.use = Use::kMetric});
    call_if(layout_.ranks > 1, {.use = Use::kTimes});
    call_if(layout_.ranks > 1, {.use = Use::kBarrier});
    return std::move(program_);
  }

 private:
  void add(Instruction instruction) { program_.push_back(instruction); }
  void call_if(bool made, Instruction instruction) {
    instruction.what = Do::kCollective;
    if (made) add(instruction);
  }

  void initial() {
    for (uint16_t b = 0; b < model_.buckets.size(); ++b)
      call_if(layout_.data > 1, {.use = Use::kInitial, .bucket = b});
    add({.what = Do::kInitial});
  }

  void forward(uint16_t micro) {
    if (stage_ == 0) add({.what = Do::kInput, .micro = micro});
    call_if(stage_ > 0, {.use = Use::kReceiveOn, .micro = micro});
    for (uint16_t layer = 0; layer < model_.layers; ++layer) {
      add({.what = Do::kPartial, .layer = layer, .micro = micro});
      call_if(layout_.tensor > 1, {.use = Use::kForward, .layer = layer, .micro = micro});
      add({.what = Do::kFinish, .layer = layer, .micro = micro});
    }
    call_if(!last_, {.use = Use::kSendOn, .micro = micro});
    if (!last_) return;
    add({.what = Do::kHead, .micro = micro});
    call_if(layout_.tensor > 1, {.use = Use::kLogits, .micro = micro});
    add({.what = Do::kLoss, .micro = micro});
  }

  void backward(uint16_t micro) {
    call_if(!last_, {.use = Use::kReceiveBack, .micro = micro});
    if (last_) {
      add({.what = Do::kLossGradient, .micro = micro});
      call_if(layout_.tensor > 1, {.use = Use::kHeadBackward, .micro = micro});
      add({.what = Do::kHeadFinish, .micro = micro});
    }
    for (uint16_t b = 0; b < model_.buckets.size(); ++b) {
      for (const uint16_t layer : model_.buckets[b].layers) {
        add({.what = Do::kBackward, .layer = layer, .micro = micro});
        call_if(layout_.tensor > 1, {.use = Use::kBackward, .layer = layer, .micro = micro});
        add({.what = Do::kBackwardFinish, .layer = layer, .micro = micro});
      }
      if (micro + 1U < model_.micro_batches) continue;
      const uint16_t layer = model_.buckets[b].layers.back();
      add({.what = Do::kPack, .layer = layer, .bucket = b});
      call_if(layout_.data > 1, {.use = Use::kBucket, .layer = layer, .micro = micro, .bucket = b});
    }
    call_if(stage_ > 0, {.use = Use::kSendBack, .micro = micro});
  }

  const Model& model_;
  const Layout& layout_;
  uint32_t stage_;
  bool last_;
  Program program_;
};

}  // namespace

Model Model::of(const Options& options, const Layout& layout) {
  Model model;
  model.sharded = options.sharded && layout.data > 1;
  model.types = options.types;
  model.micro_batches = options.micro_batches != 0 ? options.micro_batches
                        : layout.stages > 1        ? 2
                                                   : 1;
  const uint32_t per_bucket = layout.tensor > 1 ? 2 : 1;
  // Twice: what a bucket has of each layer is 1 or 1/2.
  const uint32_t twice_a_layer = (layout.tensor > 1 ? 4 * model.micro_batches : 0) +
                                 (layout.data > 1 ? (model.sharded ? 4 : 2) / per_bucket : 0);
  const uint32_t others = (layout.stages > 1 ? 4 * model.micro_batches : 0) + 3;
  model.layers = 4;
  if (options.collectives > others && twice_a_layer > 0)
    model.layers = std::max(1U, 2 * (options.collectives - others) / twice_a_layer);
  model.elements = options.elements != 0 ? options.elements : options.cheap ? 64 : 256;
  if (options.cheap) model.recorded_every = 8;
  for (uint32_t layer = model.layers; layer-- > 0;) {
    if (model.buckets.empty() || model.buckets.back().layers.size() == per_bucket)
      model.buckets.emplace_back();
    Bucket& bucket = model.buckets.back();
    bucket.layers.push_back(static_cast<uint16_t>(layer));
    bucket.elements += model.elements * (model.has_bias(layer) ? 2 : 1);
  }
  for (Bucket& bucket : model.buckets)
    if (model.sharded)
      bucket.elements = (bucket.elements + layout.data - 1) / layout.data * layout.data;
  return model;
}

format::DType Model::type_of(uint32_t layer) const {
  const bool is_half = types == Types::kMixed ? layer % 2 == 1 : types == Types::kBF16;
  return is_half ? format::DType::kBF16 : format::DType::kF32;
}

UseInfo info_of(Use use, const Model& model, const Layout& layout) {
  using enum GroupKind;
  switch (use) {
    case Use::kInitial: return {"broadcast", "", kData, Phase::kCommunication};
    case Use::kForward: return {"all_reduce", "sum", kTensor, Phase::kForward, true};
    case Use::kLogits: return {"all_gather", "", kTensor, Phase::kForward};
    case Use::kHeadBackward: return {"all_reduce", "sum", kTensor, Phase::kBackward};
    case Use::kBackward: return {"all_reduce", "sum", kTensor, Phase::kBackward, true};
    case Use::kSendOn: return {"send", "", kPipeline, Phase::kForward};
    case Use::kReceiveOn: return {"recv", "", kPipeline, Phase::kForward};
    case Use::kSendBack: return {"send", "", kPipeline, Phase::kBackward};
    case Use::kReceiveBack: return {"recv", "", kPipeline, Phase::kBackward};
    case Use::kLoss: return {"all_reduce", "avg", kData, Phase::kLoss};
    case Use::kBucket:
      return {model.sharded ? "reduce_scatter" : "all_reduce", "sum", kData, Phase::kBackward,
              true};
    case Use::kNorm: return {"all_reduce", "sum", kWorld, Phase::kOptimizer};
    case Use::kParameters: return {"all_gather", "", kData, Phase::kOptimizer, true};
    case Use::kMetric: return {"reduce", "sum", kData, Phase::kCommunication};
    case Use::kTimes:
      if (layout.ranks > kMostGathered) return {"reduce", "sum", kWorld, Phase::kCommunication};
      return {"gather", "", kWorld, Phase::kCommunication};
    case Use::kBarrier:
    case Use::kNone: break;
  }
  return {"barrier", "", kWorld, Phase::kCommunication};
}

Program program_of(const Model& model, const Layout& layout, uint32_t stage, bool first) {
  return Builder(model, layout, stage).build(first);
}

}  // namespace convtrace::simulate
