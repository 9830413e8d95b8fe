#include "tests/support/event_generator.h"

#include <bit>
#include <type_traits>
#include <utility>

namespace convtrace::test {

using namespace format;

/// Fills fields by type; the bindings in make() do not compile when a field is added and forgotten.
class EventGenerator::Filler {
 public:
  explicit Filler(EventGenerator& from) : from_(from) {}

  template <typename... Fields>
  void operator()(Fields&... values) {
    (fill(values), ...);
  }

  template <typename Enum>
  void choose(Enum& value, uint64_t count) {
    value = static_cast<Enum>(from_.below(count));
  }
  void fill(uint8_t& value) { value = static_cast<uint8_t>(bits()); }
  void fill(uint16_t& value) { value = static_cast<uint16_t>(bits()); }
  void fill(uint32_t& value) { value = static_cast<uint32_t>(bits()); }
  void fill(uint64_t& value) { value = bits(); }
  void fill(double& value) { value = std::bit_cast<double>(bits()); }
  void fill(bool& value) { value = from_.below(2) == 1; }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void fill(Enum& value) {
    static_assert(kEnumCount<Enum> > 0);
    choose(value, kEnumCount<Enum>);
  }
  void fill(Scalar& value) { fill(value.bits); }
  void fill(WideScalar& value) { (*this)(value.lo, value.hi); }
  void fill(int64_t& value) { value = static_cast<int64_t>(bits()); }
  void fill(Device& value) {
    fill(value.type);
    fill(value.index);
  }
  void fill(StringId& id) {
    id = from_.below(4) == 0 ? StringId{}
                             : from_.definitions_.intern("name" + std::to_string(from_.below(40)));
  }
  void fill(KernelId& id) {
    KernelDef kernel;
    (*this)(kernel.name, kernel.family);
    id = from_.below(4) == 0 ? KernelId{} : from_.definitions_.intern_kernel(kernel);
  }
  void fill(StackId& id) {
    std::vector<StringId> frames(from_.below(5));
    for (StringId& frame : frames) fill(frame);
    id = from_.below(4) == 0 ? StackId{} : from_.definitions_.intern_stack(frames);
  }
  void fill(std::string_view& text) {
    std::string& owned = from_.texts_.emplace_back(from_.below(40), ' ');
    for (char& c : owned) c = static_cast<char>(bits());
    text = owned;
  }
  void fill(EventHeader& header) {
    auto& [seq, t_ns, step, thread] = header;
    (*this)(t_ns, thread);
    seq = 0;
    step = from_.below(8) == 0 ? kNoStep : static_cast<uint32_t>(from_.below(1000));
  }
  void fill(Place& place) {
    auto& [scope, call, phase] = place;
    (*this)(scope, call, phase);
  }
  void fill(ValueId& value) {
    auto& [storage, offset, generation, version] = value;
    (*this)(storage, offset, generation, version);
  }
  void fill(Operand& operand) {
    auto& [param, word, confidence, address, generation, offset] = operand;
    (*this)(param, word, confidence, address, generation, offset);
  }
  void fill(uint32_t (&axes)[3]) { (*this)(axes[0], axes[1], axes[2]); }
  template <typename T>
  std::span<const T> vector_in(std::deque<std::vector<T>>& owner, size_t limit) {
    std::vector<T>& owned = owner.emplace_back(from_.below(limit + 1));
    for (T& value : owned) fill(value);
    return owned;
  }
  void fill(std::byte& value) { value = static_cast<std::byte>(bits()); }
  void fill(std::span<const Operand>& value) { value = vector_in(from_.operands_, 6); }
  void fill(std::span<const std::byte>& value) { value = vector_in(from_.bytes_, 90); }
  void fill_words(std::span<const uint64_t>& value, size_t limit) {
    value = vector_in(from_.words_, limit);
  }
  void fill(Stats& stats) {
    auto& [count, finite, nan, pos_inf, neg_inf, pos_zero, neg_zero, positive, negative, subnormal,
           saturated, min, max, amax, amin_nonzero, sum, l1, l2, mean, std, hash, sketch] = stats;
    (*this)(count, finite, nan, pos_inf, neg_inf, pos_zero, neg_zero, positive, negative, subnormal,
            saturated, min, max, amax, amin_nonzero, sum, l1, l2, mean, std, hash, sketch);
  }

  void fill(Sketch& sketch) {
    sketch = {};
    if (from_.below(2) == 0) return;
    sketch.exponent = static_cast<int16_t>(bits() | 1);
    for (float& bucket : sketch.bucket) {
      bucket = std::bit_cast<float>(static_cast<uint32_t>(bits()));
    }
  }

  void fill(Launch& e) {
    auto& [header, place, kernel, grid, block, shared, stream, device, sampled, operands] = e;
    (*this)(header, place, kernel, grid, block, shared, stream, device, sampled, operands);
  }
  void fill(TensorStats& e) {
    auto& [header, place, slot, op, kernel, device, dtype, extent, capture, value, address, bytes,
           has_shape, shape, stats, variant, ranges, samples, leading, looks, changes, padding,
           pad_index, pad_count, pad_rows, poisoned] = e;
    (*this)(header, place, slot, op, kernel, device, dtype, extent, capture, value, address, bytes,
            has_shape, variant, samples, leading, looks, changes, padding, pad_index, pad_count,
            poisoned);
    fill_words(pad_rows, 8);
    if (has_shape) fill_words(shape, kMaxDims);
    fill_words(ranges, kMaxRanges);
    fill(stats);
    // All that a hash-only record holds.
    if (capture == Capture::kHash) {
      const Stats whole = std::exchange(stats, Stats{});
      stats.count = whole.count;
      stats.hash = whole.hash;
    }
  }
  void memory(auto& e) {
    auto& [header, address, bytes, generation, source, device, stream, stack] = e;
    (*this)(header, address, bytes, generation, source, device, stream, stack);
  }
  void fill(Alloc& e) { memory(e); }
  void fill(Free& e) { memory(e); }
  void fill(Copy& e) {
    auto& [header, kind, destination, source, bytes, stream] = e;
    (*this)(header, kind, destination, source, bytes, stream);
  }
  void fill(Scope& e) {
    auto& [header, place, enter] = e;
    (*this)(header, place, enter);
  }
  void fill(Step& e) {
    auto& [header, index] = e;
    (*this)(header, index);
  }
  void fill(Finding& e) {
    auto& [header, place, kind, level, suppressed, op, kernel, slot, other, address, bytes, value,
           alloc_stack, launch_stack, free_stack, message] = e;
    (*this)(header, place, kind, level, suppressed, op, kernel, slot, other, address, bytes, value,
            alloc_stack, launch_stack, free_stack, message);
  }
  void fill(Diagnostic& e) {
    auto& [header, level, site, message] = e;
    (*this)(header, level, site, message);
  }
  void fill(Loss& e) {
    auto& [header, reason, count] = e;
    (*this)(header, reason, count);
  }
  void fill(Cost& e) {
    auto& [header, host_ns, device_ns, bytes] = e;
    (*this)(header, host_ns, device_ns, bytes);
  }
  void fill(Sync& e) {
    auto& [header, kind, device, stream, event, flags] = e;
    (*this)(header, kind, device, stream, event, flags);
  }
  void fill(Op& e) {
    auto& [header, place, moment, declares, schema, written, reported, borrows, op, slot, device,
           address, bytes, value, storage_bytes, stack] = e;
    (*this)(header, place, moment, declares, schema, written, reported, borrows, op, slot, device,
            address, bytes, value, storage_bytes, stack);
  }
  void fill(Fact& e) {
    auto& [header, scope, name, value] = e;
    (*this)(header, scope, name, value);
  }

 private:
  uint64_t bits() {
    // Small values as well as any: both ends matter.
    return from_.below(3) == 0 ? from_.below(3) : from_.random_();
  }

  EventGenerator& from_;
};

Event EventGenerator::make(size_t kind) {
  static const Event kAll[] = {Launch{},  TensorStats{}, Alloc{}, Free{}, Copy{}, Scope{}, Step{},
                               Finding{}, Diagnostic{},  Loss{},  Cost{}, Sync{}, Op{},    Fact{}};
  static_assert(std::size(kAll) == std::variant_size_v<Event>);
  Event event = kAll[kind];
  Filler filler(*this);
  std::visit([&](auto& e) { filler.fill(e); }, event);
  return event;
}

}  // namespace convtrace::test
