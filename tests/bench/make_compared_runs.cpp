// Writes two traces to compare: BASE and CAND, the same program run twice. Each step is one of
// training_steps.h, and each of its 50 modules has three values more: a hash of its input,
// statistics of its output and of the output's gradient. From step PARTS on, every value of CAND
// differs by 1e-7 of its size, which is rounding.
//
// usage: make_compared_runs BASE CAND STEPS PARTS [TEXT]
//
// With TEXT, also BASE.txt and CAND.txt: for each launch and value a line of what it is and comes
// to, without what differs from run to run (times, addresses). Prints the number of events, of
// lines and of values of one run as JSON.

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "format/file/file_sink.h"
#include "format/file/trace_writer.h"
#include "tests/bench/training_steps.h"

namespace {

using namespace convtrace;

constexpr size_t kScopes = 50, kSamples = 8;
constexpr uint64_t kCount = 8 * 128 * 768;
constexpr double kRounding = 1e-7;

struct Counts {
  uint64_t events = 0, lines = 0, values = 0;
};

class RunWriter {
 public:
  RunWriter(const std::string& path, bool is_cand, uint32_t parts, bool text)
      : steps_(definitions_, 1), is_cand_(is_cand), parts_(parts) {
    auto sink = format::FileSink::create(path.c_str());
    if (!sink.ok()) std::abort();
    auto writer = format::TraceWriter::create(std::move(sink).value(), {}, definitions_);
    if (!writer.ok()) std::abort();
    writer_ = std::move(writer).value();
    if (text) text_ = fopen((path + ".txt").c_str(), "w");
    input_ = definitions_.intern("input:0");
    output_ = definitions_.intern("output:0");
    gradient_ = definitions_.intern("grad_output:0");
  }

  Counts write(uint32_t steps) {
    constexpr size_t kEvery = bench::TrainingSteps::kLaunches / (3 * kScopes);
    for (uint64_t launch = 0; launch < uint64_t{steps} * bench::TrainingSteps::kLaunches;
         ++launch) {
      for (const format::Event& event : steps_.next()) {
        append(event);
        if (const auto* made = std::get_if<format::Launch>(&event)) last_ = *made;
      }
      line_of_launch();
      if (launch % kEvery == kEvery - 1) append_value(launch);
    }
    if (!writer_->close().ok()) std::abort();
    if (text_ != nullptr && fclose(text_) != 0) std::abort();
    return counts_;
  }

 private:
  void append(const format::Event& event) {
    if (!writer_->append(event).ok()) std::abort();
    ++counts_.events;
  }

  void append_value(uint64_t launch) {
    format::TensorStats value;
    value.header = last_.header;
    value.place = last_.place;
    value.slot = launch % 3 == 0 ? input_ : launch % 3 == 1 ? output_ : gradient_;
    value.capture = launch % 3 == 0 ? format::Capture::kHash : format::Capture::kStats;
    value.place.call = static_cast<uint32_t>(launch % bench::TrainingSteps::kLaunches);
    value.device = {format::Device::Type::kCuda, 0};
    value.dtype = format::DType::kF32;
    value.has_shape = true;
    value.shape = shape_;
    value.bytes = kCount * sizeof(float);
    const bool parted = is_cand_ && value.header.step >= parts_;
    make_statistics(value, std::mt19937_64(launch)(), parted);
    append(value);
    ++counts_.values;
    line_of_value(value);
  }

  void make_statistics(format::TensorStats& value, uint64_t seed, bool parted) {
    format::Stats& s = value.stats;
    const auto part = [&](unsigned shift) { return static_cast<double>(seed >> shift & 0xFFFF); };
    const double factor = (1 + part(48) * 1e-6) * (parted ? 1 + kRounding : 1);
    s.count = kCount;
    s.hash = seed + (parted ? 1 : 0);
    if (value.capture == format::Capture::kHash) return;
    s.finite = kCount;
    s.mean = 0.01 * factor;
    s.std = factor;
    s.l1 = format::WideScalar::f64(6.3e5 * factor);
    s.l2 = std::sqrt(static_cast<double>(kCount)) * factor;
    s.sum = format::WideScalar::f64(0.01 * static_cast<double>(kCount) * factor);
    s.min = format::Scalar::f64(-4.5 * factor);
    s.max = format::Scalar::f64(4.7 * factor);
    s.amax = s.max;
    for (unsigned i = 0; i < kSamples; ++i)
      samples_[i] = static_cast<float>(part(i) * 1e-5 * factor);
    value.samples = std::as_bytes(std::span(samples_));
  }

  void line_of_launch() {
    ++counts_.lines;
    if (text_ == nullptr) return;
    fprintf(text_, "launch step %u %s %s grid %u block %u\n", last_.header.step,
            name(last_.place.scope).c_str(), name(definitions_.kernel(last_.kernel).name).c_str(),
            last_.grid[0], last_.block[0]);
  }

  void line_of_value(const format::TensorStats& value) {
    ++counts_.lines;
    if (text_ == nullptr) return;
    const format::Stats& s = value.stats;
    fprintf(text_, "value step %u %s %s call %u hash %016lx mean %.9g std %.9g l2 %.9g\n",
            value.header.step, name(value.place.scope).c_str(), name(value.slot).c_str(),
            value.place.call, s.hash, s.mean, s.std, s.l2);
  }

  [[nodiscard]] std::string name(format::StringId id) const {
    return std::string(definitions_.text(id));
  }

  format::Definitions definitions_;
  bench::TrainingSteps steps_;
  bool is_cand_;
  uint32_t parts_;
  std::unique_ptr<format::TraceWriter> writer_;
  FILE* text_ = nullptr;
  format::StringId input_, output_, gradient_;
  std::vector<uint64_t> shape_ = {8, 128, 768};
  std::array<float, kSamples> samples_{};
  format::Launch last_;
  Counts counts_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("usage: make_compared_runs BASE CAND STEPS PARTS [TEXT]\n", stderr);
    return 2;
  }
  const auto steps = static_cast<uint32_t>(std::stoul(argv[3]));
  const auto parts = static_cast<uint32_t>(std::stoul(argv[4]));
  const Counts counts = RunWriter(argv[1], false, parts, argc > 5).write(steps);
  (void)RunWriter(argv[2], true, parts, argc > 5).write(steps);
  std::printf("{\"events\": %lu, \"lines\": %lu, \"values\": %lu}\n", counts.events, counts.lines,
              counts.values);
  return 0;
}
