// What a rank computes.

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/simulate/rank.h"

namespace convtrace::simulate {
namespace {

using format::DType;
using format::Phase;

constexpr double kLearningRate = 0.05;

/// Of recipes.
enum Function : uint64_t {
  kData,
  kWeight,
  kLayer,
  kLayerBack,
  kSum,
  kScale,
  kSlice,
  kStepped,
  kTarget,
  kScalar
};

double mean_of(const Tensor& tensor) {
  const auto& e = tensor.elements;
  return std::accumulate(e.begin(), e.end(), 0.0) / static_cast<double>(e.size());
}

double slope_of(double sum) {
  const double root = 1 / (1 + std::fabs(sum));
  return root * root;
}

std::vector<float> random_elements(uint64_t count, uint64_t seed, float size) {
  Random random(seed);
  std::vector<float> elements(count);
  for (float& element : elements) element = size * random.unit();
  return elements;
}

}  // namespace

Rank::Rank(World& world, uint32_t rank)
    : world_(world),
      rank_(rank),
      tensor_(world.layout.tensor_of(rank)),
      data_(world.layout.data_of(rank)),
      stage_(world.layout.stage_of(rank)) {
  const Model& model = world.model;
  const auto depth = static_cast<double>(model.layers * world.layout.stages);
  const auto size = static_cast<float>(1.5 / std::sqrt(depth * world.layout.tensor));
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    const auto made = [&](uint64_t part, float most) {
      const uint64_t seed = seed_of({world.seed, kWeight, stage_, layer, part});
      return world.maker.once({kWeight, seed, 0, 0}, [&] {
        return world.maker.make(DType::kF32, random_elements(model.elements, seed, most));
      });
    };
    weights_.push_back(made(1 + tensor_, size));
    biases_.push_back(model.has_bias(layer) ? made(0, 0.1F) : nullptr);
  }
  weight_gradients_.resize(model.layers);
  bias_gradients_.resize(model.layers);
  buckets_.resize(model.buckets.size());
  micro_.resize(model.micro_batches);
  for (Micro& micro : micro_) {
    micro.x.resize(model.layers);
    micro.sum.resize(model.layers);
  }
}

void Rank::input(const Instruction& at) {
  const uint64_t seed = seed_of({world_.seed, kData, step_, at.micro, data_});
  x_ = world_.maker.once({kData, seed, 0, 0}, [&] {
    return world_.maker.make(DType::kF32, random_elements(world_.model.elements, seed, 1.7F));
  });
  if (at.fault != nullptr) strike(at, "the input of the model", &x_);
  record_value(Phase::kData, world_.names.of(""), at.micro, world_.names.of("input:0"), x_);
}

void Rank::partial(const Instruction& at) {
  const auto& w = weights_[at.layer]->elements;
  const auto& x = x_->elements;
  const double mean = mean_of(*x_);
  std::vector<float> part(w.size());
  for (size_t i = 0; i < w.size(); ++i)
    part[i] = static_cast<float>(w[i] * (x[(i + shift()) % x.size()] + mean));
  buffer_ = world_.maker.make(world_.model.type_of(at.layer), std::move(part));
  if (at.fault != nullptr)
    strike(at, ("what layer " + std::to_string(at.layer) + " of the stage computes").c_str(),
           &buffer_);
}

void Rank::finish(const Instruction& at) {
  const DType type = world_.model.type_of(at.layer);
  const Value bias = biases_[at.layer];
  Micro& micro = micro_[at.micro];
  micro.x[at.layer] = x_;
  micro.sum[at.layer] = buffer_;
  x_ = world_.maker.once({kLayer, x_->id, buffer_->id, bias ? bias->id : 0}, [&] {
    std::vector<float> y(x_->elements.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const double sum = double{buffer_->elements[i]} + (bias ? double{bias->elements[i]} : 0.0);
      y[i] = static_cast<float>(x_->elements[i] + sum / (1 + std::fabs(sum)));
    }
    return world_.maker.make(type, std::move(y));
  });
  if (!world_.model.is_recorded(at.layer)) return;
  const Name output = world_.names.of("output:0");
  record_value(Phase::kForward, layer_name(at.layer, true), at.micro, output, buffer_);
  record_value(Phase::kForward, layer_name(at.layer, false), at.micro, output, x_);
}

void Rank::head() { buffer_ = scaled(x_, 1.0 / (1 + 0.1 * tensor_)); }

void Rank::loss(const Instruction& at) {
  Micro& micro = micro_[at.micro];
  micro.logits = buffer_;
  record_value(Phase::kForward, world_.names.of("head"), at.micro, world_.names.of("output:0"),
               buffer_);
  double sum = 0;
  for (const float logit : buffer_->elements) sum += 0.5 * double{logit} * double{logit};
  const Value loss = scalar(sum / static_cast<double>(buffer_->elements.size()));
  losses_ = at.micro == 0 ? loss : sum_of(losses_, loss, DType::kF32);
  record_value(Phase::kLoss, 0, at.micro, world_.names.of("loss"), loss);
}

void Rank::loss_gradient(const Instruction& at) {
  const auto& logits = micro_[at.micro].logits->elements;
  const uint64_t n = world_.model.elements;
  const uint64_t own = logits.size() >= n * world_.layout.tensor ? tensor_ * n : 0;
  std::vector<float> g(n);
  for (uint64_t i = 0; i < n; ++i)
    g[i] = static_cast<float>(logits[own + i] / static_cast<double>(logits.size()) /
                              (1 + 0.1 * tensor_));
  buffer_ = world_.maker.make(x_->dtype, std::move(g));
}

void Rank::backward(const Instruction& at) {
  const DType type = world_.model.type_of(at.layer);
  const Micro& micro = micro_[at.micro];
  const Value& x = micro.x[at.layer];
  const Value& sum = micro.sum[at.layer];
  const Value& bias = biases_[at.layer];
  const size_t n = x->elements.size();
  layer_gradient_ =
      world_.maker.once({kLayerBack, gradient_->id, sum->id, bias ? bias->id : 0}, [&] {
        std::vector<float> g(n);
        for (size_t i = 0; i < n; ++i) {
          const double before = double{sum->elements[i]} + (bias ? double{bias->elements[i]} : 0.0);
          g[i] = static_cast<float>(gradient_->elements[i] * slope_of(before));
        }
        return world_.maker.make(type, std::move(g));
      });
  if (world_.model.is_recorded(at.layer)) {
    const Name slot = world_.names.of("grad_output:0");
    record_value(Phase::kBackward, layer_name(at.layer, false), at.micro, slot, gradient_);
    record_value(Phase::kBackward, layer_name(at.layer, true), at.micro, slot, layer_gradient_);
  }
  const auto& w = weights_[at.layer]->elements;
  const auto& g = layer_gradient_->elements;
  const double mean = mean_of(*x), share = 1.0 / (world_.model.micro_batches * world_.layout.data);
  std::vector<float> of_w(n), of_x(n);
  double common = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t j = (i + shift()) % n;
    of_w[i] = static_cast<float>(g[i] * (x->elements[j] + mean) * share);
    of_x[j] = g[i] * w[i];
    common += double{of_x[j]};
  }
  for (float& element : of_x)
    element = static_cast<float>(element + common / static_cast<double>(n));
  Value gradient = world_.maker.make(DType::kF32, std::move(of_w));
  if (at.fault != nullptr)
    strike(at, ("the gradient of a weight of layer " + std::to_string(at.layer)).c_str(),
           &gradient);
  Value& kept = weight_gradients_[at.layer];
  kept = kept ? sum_of(kept, gradient, DType::kF32) : gradient;
  if (bias) {
    Value& kept_bias = bias_gradients_[at.layer];
    const Value of_bias = scaled(layer_gradient_, share);
    kept_bias = kept_bias ? sum_of(kept_bias, of_bias, DType::kF32) : of_bias;
  }
  buffer_ = world_.maker.make(type, std::move(of_x));
}

void Rank::backward_finish(const Instruction& at) {
  gradient_ = sum_of(gradient_, buffer_, world_.model.type_of(at.layer));
}

void Rank::pack(const Instruction& at) {
  const Bucket& bucket = world_.model.buckets[at.bucket];
  std::vector<float> all;
  all.reserve(bucket.elements);
  for (const uint16_t layer : bucket.layers) {
    for (const Value* part : {&weight_gradients_[layer], &bias_gradients_[layer]})
      if (*part) all.insert(all.end(), (*part)->elements.begin(), (*part)->elements.end());
  }
  all.resize(bucket.elements);
  buckets_[at.bucket] = world_.maker.make(DType::kF32, std::move(all));
}

void Rank::norm() {
  double squares = 0;
  for (const Value& bucket : buckets_)
    for (const float element : bucket->elements) squares += double{element} * double{element};
  norm_ = scalar(world_.model.sharded ? squares : squares / world_.layout.data);
}

void Rank::clip() {
  const double norm = std::sqrt(double{norm_->elements[0]});
  coefficient_ = norm <= 1 ? 1 : 1 / norm;  // NaN stays
}

Value Rank::stepped(const Value& parameter, const Value& gradient) const {
  return world_.maker.once({kStepped, parameter->id, gradient->id, 0}, [&] {
    std::vector<float> elements = parameter->elements;
    for (size_t i = 0; i < elements.size(); ++i)
      elements[i] = static_cast<float>(elements[i] - kLearningRate * gradient->elements[i]);
    return world_.maker.make(DType::kF32, std::move(elements));
  });
}

void Rank::step_layers(uint16_t bucket) {
  const Model& model = world_.model;
  uint64_t begin = 0;
  for (const uint16_t layer : model.buckets[bucket].layers) {
    for (Value* parameter : {&weights_[layer], &biases_[layer]}) {
      if (!*parameter) continue;
      const Value gradient = scaled(slice(buckets_[bucket], begin, model.elements), coefficient_);
      begin += model.elements;
      const char* slot = parameter == &weights_[layer] ? "grad:weight" : "grad:bias";
      if (model.is_recorded(layer))
        record_value(Phase::kOptimizer, layer_name(layer, true), 0, world_.names.of(slot),
                     gradient);
      *parameter = stepped(*parameter, gradient);
    }
  }
}

void Rank::update(const Instruction& at) {
  const Model& model = world_.model;
  for (uint16_t b = 0; !model.sharded && b < model.buckets.size(); ++b) step_layers(b);
  if (at.fault != nullptr && at.fault->origin.kind == FaultKind::kStale) {
    weights_ = weights_before_;
    biases_ = biases_before_;
    strike(at, "its parameters");
  } else if (at.fault != nullptr) {
    const uint64_t recorded = (model.layers + model.recorded_every - 1) / model.recorded_every;
    const uint64_t layer = at.fault->element / model.elements % recorded * model.recorded_every;
    strike(at, ("a weight of layer " + std::to_string(layer) + " of the stage").c_str(),
           &weights_[layer]);
  }
  record_parameters(Phase::kOptimizer);
}

Value Rank::updated_shard(uint16_t bucket) const {
  const Value flat = packed_parameters(world_.model.buckets[bucket]);
  const uint64_t count = flat->elements.size() / world_.layout.data;
  const auto& gradient = buckets_[bucket]->elements;
  std::vector<float> shard(count);
  for (uint64_t i = 0; i < count; ++i)
    shard[i] = static_cast<float>(flat->elements[data_ * count + i] -
                                  kLearningRate * coefficient_ * gradient[i]);
  return world_.maker.make(DType::kF32, std::move(shard));
}

Value Rank::packed_parameters(const Bucket& bucket) const {
  std::vector<float> flat;
  flat.reserve(bucket.elements);
  for (const uint16_t layer : bucket.layers)
    for (const Value* part : {&weights_[layer], &biases_[layer]})
      if (*part) flat.insert(flat.end(), (*part)->elements.begin(), (*part)->elements.end());
  flat.resize(bucket.elements);
  return world_.maker.make(DType::kF32, std::move(flat));
}

void Rank::unpack(const Bucket& bucket, const Value& flat) {
  uint64_t begin = 0;
  for (const uint16_t layer : bucket.layers) {
    for (Value* part : {&weights_[layer], &biases_[layer]}) {
      if (!*part) continue;
      *part = slice(flat, begin, world_.model.elements);
      begin += world_.model.elements;
    }
  }
}

Value Rank::slice(const Value& whole, uint64_t begin, uint64_t count) const {
  return world_.maker.once({kSlice, whole->id, begin, count}, [&] {
    std::vector<float> part(count);
    for (uint64_t i = 0; i < count && begin + i < whole->elements.size(); ++i)
      part[i] = whole->elements[begin + i];
    return world_.maker.make(whole->dtype, std::move(part));
  });
}

Value Rank::scalar(double value) const {
  return world_.maker.make(DType::kF32, {static_cast<float>(value)});
}

Value Rank::sum_of(const Value& a, const Value& b, DType type) const {
  return world_.maker.once({kSum, a->id, b->id, static_cast<uint64_t>(type)}, [&] {
    std::vector<float> sum(a->elements);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += b->elements[i];
    return world_.maker.make(type, std::move(sum));
  });
}

Value Rank::scaled(const Value& value, double factor) const {
  return world_.maker.once({kScale, value->id, std::bit_cast<uint64_t>(factor), 0}, [&] {
    std::vector<float> product(value->elements);
    for (float& element : product) element = static_cast<float>(element * factor);
    return world_.maker.make(value->dtype, std::move(product));
  });
}

Value Rank::damaged(const Value& value, const Fault& fault) const {
  std::vector<float> elements = value->elements;
  float& element = elements[fault.element % elements.size()];
  if (fault.origin.kind == FaultKind::kNan) {
    element = std::numeric_limits<float>::quiet_NaN();
  } else {
    const bool half = value->dtype == DType::kBF16;
    const uint32_t bit = half ? 16 + fault.bit % 16 : fault.bit;
    element = std::bit_cast<float>(std::bit_cast<uint32_t>(element) ^ 1U << bit);
  }
  return world_.maker.make(value->dtype, std::move(elements));
}

}  // namespace convtrace::simulate
