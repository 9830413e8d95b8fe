#include "tests/support/describe.h"

#include <bit>
#include <map>
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
  void add(std::string_view text) { out_ << text; }
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
  template <Listed Part>
  void put(const Part& part) {
    Part::fields(part,
                 [this](auto, const char*, const auto& member, bool = true) { this->put(member); });
  }
  void put(const Operand& value) {
    const auto& [param, word, confidence, address, generation, offset] = value;
    fields(param, word, confidence, address, generation, offset);
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
  /// Members in the order in which the struct has them, which the golden readings have.
  template <typename Kind>
  void operator()(const Kind& e) {
    std::map<const void*, std::string> members;
    Kind::fields(e, [&members](auto, const char*, const auto& member, bool = true) {
      members[&member] = Text().fields(member).str();
    });
    text.fields(e.header);
    for (const auto& [place, member] : members) text.add(member);
  }
  void operator()(const TensorStats& e) {
    const auto& [header, place, slot, op, kernel, device, dtype, extent, capture, value, address,
                 bytes, has_shape, shape, stats, variant, ranges, samples, leading, looks, changes,
                 padding, pad_index, pad_count, pad_rows, poisoned, collective, layout] = e;
    text.fields(header, place, slot, op, kernel, device, dtype, extent, capture, value, address,
                bytes, has_shape, shape, stats, variant, ranges, samples, leading);
    if (looks != 0 || changes != 0) text.fields(looks, changes);  // not in the oldest traces
    if (padding != Padding::kNone) text.fields(padding, pad_index, pad_count, pad_rows);
    if (poisoned != 0) text.fields(poisoned);
    if (collective != 0) text.fields(collective);
    if (layout != 0) text.fields(layout);
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
