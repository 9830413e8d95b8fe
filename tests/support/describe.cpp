#include "tests/support/describe.h"

#include <bit>
#include <sstream>

namespace convtrace::test {
namespace {

using namespace format;

/// Writes fields one after another; floats by their bits.
class Text {
 public:
  template <typename... Fields>
  Text& fields(const Fields&... values) {
    (put(values), ...);
    return *this;
  }
  [[nodiscard]] std::string str() const { return out_.str(); }

 private:
  template <typename T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void put(T value) { out_ << ' ' << static_cast<uint64_t>(value); }
  void put(double value) { put(std::bit_cast<uint64_t>(value)); }
  void put(std::string_view value) { out_ << " '" << value << '\''; }
  template <typename Tag>
  void put(Id<Tag> id) {
    put(id.value);
  }
  void put(std::byte value) { put(static_cast<uint8_t>(value)); }
  void put(const Scalar& value) { put(value.bits); }
  void put(const WideScalar& value) { fields(value.lo, value.hi); }
  void put(const Device& value) { fields(value.type, value.index); }
  void put(const uint32_t (&value)[3]) { fields(value[0], value[1], value[2]); }
  template <typename T>
  void put(std::span<const T> values) {
    out_ << " [" << values.size() << ':';
    for (const T& value : values) put(value);
    out_ << " ]";
  }
  void put(const EventHeader& value) {
    const auto& [seq, t_ns, step, thread] = value;
    fields(seq, t_ns, step, thread);
  }
  void put(const Place& value) {
    const auto& [scope, call, phase] = value;
    fields(scope, call, phase);
  }
  void put(const Operand& value) {
    const auto& [param, word, confidence, address, generation, offset] = value;
    fields(param, word, confidence, address, generation, offset);
  }
  void put(const ValueId& value) {
    const auto& [storage, offset, generation, version] = value;
    fields(storage, offset, generation, version);
  }
  void put(const Stats& value) {
    const auto& [count, finite, nan, pos_inf, neg_inf, pos_zero, neg_zero, positive, negative,
                 subnormal, saturated, min, max, amax, amin_nonzero, sum, l1, l2, mean, std, hash,
                 sketch] = value;
    fields(count, finite, nan, pos_inf, neg_inf, pos_zero, neg_zero, positive, negative, subnormal,
           saturated, min, max, amax, amin_nonzero, sum, l1, l2, mean, std, hash);
    if (sketch.is_known()) put(sketch);
  }
  void put(const Sketch& value) {
    fields(value.exponent);
    for (const float bucket : value.bucket) put(std::bit_cast<uint32_t>(bucket));
  }

  std::ostringstream out_;
};

struct Describer {
  Text& text;
  void operator()(const Launch& e) {
    const auto& [header, place, kernel, grid, block, shared, stream, device, sampled, operands] = e;
    text.fields(header, place, kernel, grid, block, shared, stream, device, sampled, operands);
  }
  void operator()(const TensorStats& e) {
    const auto& [header, place, slot, op, kernel, device, dtype, extent, capture, value, address,
                 bytes, has_shape, shape, stats, variant, ranges, samples, leading, looks, changes,
                 padding, pad_index, pad_count, pad_rows, poisoned] = e;
    text.fields(header, place, slot, op, kernel, device, dtype, extent, capture, value, address,
                bytes, has_shape, shape, stats, variant, ranges, samples, leading);
    if (looks != 0 || changes != 0) text.fields(looks, changes);  // not in the oldest traces
    if (padding != Padding::kNone) text.fields(padding, pad_index, pad_count, pad_rows);
    if (poisoned != 0) text.fields(poisoned);
  }
  void memory(const auto& e) {
    const auto& [header, address, bytes, generation, source, device, stream, stack] = e;
    text.fields(header, address, bytes, generation, source, device, stream, stack);
  }
  void operator()(const Alloc& e) { memory(e); }
  void operator()(const Free& e) { memory(e); }
  void operator()(const Copy& e) {
    const auto& [header, kind, destination, source, bytes, stream] = e;
    text.fields(header, kind, destination, source, bytes, stream);
  }
  void operator()(const Scope& e) {
    const auto& [header, place, enter] = e;
    text.fields(header, place, enter);
  }
  void operator()(const Step& e) {
    const auto& [header, index] = e;
    text.fields(header, index);
  }
  void operator()(const Finding& e) {
    const auto& [header, place, kind, level, suppressed, op, kernel, slot, other, address, bytes,
                 value, alloc_stack, launch_stack, free_stack, message] = e;
    text.fields(header, place, kind, level, suppressed, op, kernel, slot, other, address, bytes,
                value, alloc_stack, launch_stack, free_stack, message);
  }
  void operator()(const Diagnostic& e) {
    const auto& [header, level, site, message] = e;
    text.fields(header, level, site, message);
  }
  void operator()(const Loss& e) {
    const auto& [header, reason, count] = e;
    text.fields(header, reason, count);
  }
  void operator()(const Cost& e) {
    const auto& [header, host_ns, device_ns, bytes] = e;
    text.fields(header, host_ns, device_ns, bytes);
  }
  void operator()(const Sync& e) {
    const auto& [header, kind, device, stream, event, flags] = e;
    text.fields(header, kind, device, stream, event, flags);
  }
  void operator()(const Op& e) {
    const auto& [header, place, moment, declares, schema, written, reported, borrows, op, slot,
                 device, address, bytes, value, storage_bytes, stack] = e;
    text.fields(header, place, moment, declares, schema, written, reported, borrows, op, slot,
                device, address, bytes, value, storage_bytes, stack);
  }
  void operator()(const Fact& e) {
    const auto& [header, scope, name, value] = e;
    text.fields(header, scope, name, value);
  }
};

}  // namespace

std::string describe(const Event& event) {
  Text text;
  std::visit(Describer{text}, event);
  return std::string(event_name(event.index())) + text.str();
}

std::string describe_content(Event event) {
  header_of(event).seq = 0;
  return describe(event);
}

}  // namespace convtrace::test
