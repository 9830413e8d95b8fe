#include "tests/support/event_generator.h"

#include <array>
#include <bit>
#include <type_traits>
#include <utility>

namespace convtrace::test {

using namespace format;

/// Fills fields by type.
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
  /// A part of an event, as its list of fields in events.h says.
  template <Listed Part>
  void fill(Part& part) {
    Part::fields(part,
                 [this](auto, const char*, auto& member, bool = true) { this->fill(member); });
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
  void fill(std::span<const uint64_t>& value) { value = vector_in(from_.words_, kMaxDims); }
  void fill(int16_t& /*exponent*/) {}  // of a sketch: filled with its buckets

  void fill(Sketch& sketch) {
    sketch = {};
    if (from_.below(2) == 0) return;
    sketch.exponent = static_cast<int16_t>(bits() | 1);
    for (float& bucket : sketch.bucket)
      bucket = std::bit_cast<float>(static_cast<uint32_t>(bits()));
  }

  template <typename Kind>
  void event(Kind& e) {
    fill(e.header);
    fill(e);
    if constexpr (std::is_same_v<Kind, TensorStats>) complete(e);
  }

 private:
  /// What the fields of a record have to do with each other.
  void complete(TensorStats& e) {
    if (!e.has_shape) e.shape = {};
    e.range_hashes = vector_in(from_.words_, kMaxRanges);
    fill(e.stats.hash);
    fill(e.stats.sketch);
    if (e.capture != Capture::kHash) return;
    const Stats whole = std::exchange(e.stats, Stats{});
    e.stats.count = whole.count;
    e.stats.hash = whole.hash;
  }

  uint64_t bits() {
    // Small values as well as any: both ends matter.
    return from_.below(3) == 0 ? from_.below(3) : from_.random_();
  }

  EventGenerator& from_;
};

namespace {
template <typename... Kinds>
std::array<Event, kKinds> one_of_each(std::variant<Kinds...>* /*of*/) {
  return {Kinds{}...};
}
}  // namespace

Event EventGenerator::make(size_t kind) {
  static const auto kAll = one_of_each(static_cast<Event*>(nullptr));
  Event event = kAll[kind];
  Filler filler(*this);
  visit_event([&](auto& e) { filler.event(e); }, event);
  return event;
}

}  // namespace convtrace::test
