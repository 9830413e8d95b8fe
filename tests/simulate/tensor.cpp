#include "tests/simulate/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <span>

#include "cupti/stats/compute.h"

namespace convtrace::simulate {

float rounded(format::DType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype != format::DType::kBF16) return single;
  const auto bits = std::bit_cast<uint32_t>(single);
  if (std::isnan(single)) return std::bit_cast<float>((bits | 0x400000) & 0xFFFF0000);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);  // ties to even
}

void summarize(const Tensor& tensor) {
  std::vector<uint16_t> halves;
  const void* data = tensor.elements.data();
  if (tensor.dtype == format::DType::kBF16) {
    for (const float element : tensor.elements)
      halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(element) >> 16));
    data = halves.data();
  }
  stats::StatsResult result;
  const auto view = stats::dense_view(data, tensor.dtype, tensor.elements.size());
  if (!stats::compute_on_cpu(view, format::Capture::kStats, result).ok()) abort();
  auto summary = std::make_unique<Summary>();
  summary->stats = result.stats;
  summary->variant = result.variant;
  summary->sample_bytes = result.sample_bytes;
  std::copy_n(result.samples, result.sample_bytes, summary->samples.begin());
  tensor.summary = std::move(summary);
}

Value Maker::make(format::DType dtype, std::vector<float> elements) {
  if (dtype == format::DType::kBF16)
    for (float& element : elements) element = rounded(dtype, element);
  auto tensor = std::make_shared<Tensor>();
  tensor->id = ++made_count_;
  tensor->dtype = dtype;
  tensor->elements = std::move(elements);
  return tensor;
}

}  // namespace convtrace::simulate
