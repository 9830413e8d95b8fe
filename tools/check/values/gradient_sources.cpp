#include "tools/check/values/gradient_sources.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "tools/check/model/check.h"
#include "tools/common/element.h"

namespace convtrace::check {
namespace {

using format::DType;

constexpr size_t kLeastChanged = 3;
/// Values of one step times those of the other.
constexpr size_t kMostPairs = 10'000;

bool is_float(DType dtype) { return format::number_class(dtype) == format::NumberClass::kFloat; }

Source kept(const StepValues& step, const Value& value, const Value& measured) {
  const auto samples = step.samples_of(measured);
  const auto extents = step.extents_of(value);
  return {.value = measured,
          .samples = {samples.begin(), samples.end()},
          .extents = {extents.begin(), extents.end()}};
}

/// Inputs of the module's own calls of a number, of any phase: a training in evaluation mode counts
/// its calls apart.
void add_inputs(const StepValues& step, const MeasuredValues& measured, format::StringId module,
                const std::set<uint32_t>& reached, GradientSources& sources) {
  for (auto call = step.calls.lower_bound(CallKey{module, {}, {}, 0});
       call != step.calls.end() && call->first.scope == module && !call->first.op; ++call) {
    if (!reached.contains(call->first.call)) continue;
    for (const Value* input : call->second.inputs) {
      if (!is_float(input->dtype)) continue;
      const auto known = measured.find(input->stats.hash);
      const Value* const value =
          input->measured() || known == measured.end() ? input : known->second;
      sources.known &= value->finite();
      sources.inputs.push_back(kept(step, *input, *value));
    }
  }
}

/// @return whether a value shares no element with an earlier one, and its elements have unlike
/// magnitudes.
bool is_another(const Source& now, std::span<const Source> before) {
  const DType dtype = now.value.dtype;
  const size_t size = format::element_bytes(dtype);
  if (!is_plain_float(dtype)) return false;
  const size_t count = now.samples.size() / size;
  std::vector<uint64_t> sizes;
  for (size_t i = 0; i < count; ++i)
    if (const uint64_t magnitude = magnitude_bits(now.samples, dtype, i); magnitude != 0)
      sizes.push_back(magnitude);
  const size_t known = sizes.size();
  std::ranges::sort(sizes);
  if (known < kLeastChanged || std::ranges::adjacent_find(sizes) != sizes.end()) return false;
  return std::ranges::none_of(before, [&](const Source& earlier) {
    if (earlier.value.stats.hash == now.value.stats.hash) return true;
    if (earlier.value.dtype != dtype || earlier.value.stats.count != now.value.stats.count ||
        earlier.samples.size() != now.samples.size())
      return false;
    for (size_t i = 0; i < count; ++i)
      if (magnitude_bits(now.samples, dtype, i) != 0 &&
          element_bits(now.samples, dtype, i) == element_bits(earlier.samples, dtype, i))
        return true;
    return false;
  });
}

}  // namespace

bool GradientSources::takes_zeros() const {
  return !inputs.empty() &&
         std::ranges::all_of(inputs, [](const Source& input) { return input.value.zero(); });
}

MeasuredValues measured_values(const StepValues& step) {
  MeasuredValues measured;
  measured.reserve(step.values.size());
  for (const Value& value : step.values)
    if ((value.role == Role::kInput || value.role == Role::kOutput) && value.measured())
      measured.emplace(value.stats.hash, &value);
  return measured;
}

GradientSources sources_of(const StepValues& step, const MeasuredValues& measured,
                           format::StringId module) {
  GradientSources sources;
  const auto outputs = step.grad_outputs.find(module);
  if (outputs == step.grad_outputs.end()) return sources;
  std::set<uint32_t> reached;
  for (const Value* output : outputs->second) {
    if (output->op) continue;  // the gradient of an op's output
    sources.known &= output->finite();
    if (output->zero()) continue;
    sources.gradients.push_back(kept(step, *output, *output));
    reached.insert(output->place.call);
  }
  add_inputs(step, measured, module, reached, sources);
  return sources;
}

bool all_changed(std::span<const Source> now, std::span<const Source> before) {
  if (now.empty() || before.empty() || now.size() * before.size() > kMostPairs) return false;
  return std::ranges::all_of(now, [&](const Source& value) { return is_another(value, before); });
}

double nearest_distance(std::span<const Source> now, std::span<const Source> before) {
  double nearest = 1;
  for (const Source& value : now)
    for (const Source& earlier : before)
      if (earlier.value.stats.count == value.value.stats.count)
        nearest = std::min(nearest, relative_distance(value.value, earlier.value));
  return nearest;
}

double roundoff(const Value& value, std::span<const std::byte> samples) {
  const format::Stats& stats = value.stats;
  std::vector<double> known = tools::decode_elements(value.dtype, samples);
  for (const format::Scalar number : {stats.min, stats.max, stats.amax, stats.amin_nonzero})
    known.push_back(number.as_f64());
  constexpr int kDigits = std::numeric_limits<double>::digits;
  int digits = 0, step = std::numeric_limits<double>::max_exponent;
  for (const double number : known) {
    if (number == 0 || !std::isfinite(number)) continue;
    int exponent = 0;
    const double fraction = std::abs(std::frexp(number, &exponent));
    const auto bits = static_cast<uint64_t>(std::ldexp(fraction, kDigits));
    const int significant = kDigits - std::countr_zero(bits);
    digits = std::max(digits, significant);
    step = std::min(step, exponent - significant);
  }
  const double size = stats.l2 / std::sqrt(static_cast<double>(stats.positive + stats.negative));
  return std::max(std::ldexp(1.0, -digits), std::ldexp(0.5, step) / size);
}

uint64_t element_bits(std::span<const std::byte> samples, DType dtype, size_t i) {
  const size_t size = format::element_bytes(dtype);
  uint64_t bits = 0;
  if ((i + 1) * size <= samples.size() && size <= sizeof bits)
    std::memcpy(&bits, samples.data() + i * size, size);
  return bits;
}

uint64_t magnitude_bits(std::span<const std::byte> samples, DType dtype, size_t i) {
  const uint64_t sign = uint64_t{1} << (8 * format::element_bytes(dtype) - 1);
  return element_bits(samples, dtype, i) & ~sign;
}

uint64_t sample_position(uint64_t count, size_t i) {
  if (count <= format::kMaxWhole) return i;
  // i * count / 8 without an overflow.
  return count / 8 * i + count % 8 * i / 8;
}

bool is_plain_float(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

Channels channels_of(std::span<const uint64_t> extents, size_t weight_rank) {
  if (weight_rank < 2 || extents.size() + 1 < weight_rank) return {};
  Channels channels{.count = extents[extents.size() + 1 - weight_rank]};
  for (const uint64_t extent : extents.last(weight_rank - 2)) {
    if (extent == 0 || channels.inner > std::numeric_limits<uint64_t>::max() / extent) return {};
    channels.inner *= extent;
  }
  return channels;
}

}  // namespace convtrace::check
