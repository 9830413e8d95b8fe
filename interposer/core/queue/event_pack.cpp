#include "interposer/core/queue/event_pack.h"

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

namespace convtrace::engine {
namespace {

using format::Event;

constexpr size_t align_up(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

template <size_t I>
Event unpack_as(const std::byte* in) noexcept {
  using T = std::variant_alternative_t<I, Event>;
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
  static_assert(std::is_standard_layout_v<T> && offsetof(T, header) == 0);
  T event;
  std::memcpy(&event, in, sizeof event);
  const std::byte* cursor = in + align_up(sizeof event);
  format::each_borrowed(event, [&cursor](auto& borrowed) {
    using Pointer = decltype(borrowed.data());
    const size_t bytes = format::bytes_of_borrowed(borrowed);
    borrowed = std::remove_reference_t<decltype(borrowed)>(reinterpret_cast<Pointer>(cursor),
                                                           borrowed.size());
    cursor += align_up(bytes);
  });
  return event;
}

template <size_t... I>
constexpr auto unpackers(std::index_sequence<I...>) {
  return std::array{&unpack_as<I>...};
}
using Kinds = std::make_index_sequence<std::variant_size_v<Event>>;
constexpr auto kUnpackers = unpackers(Kinds{});

}  // namespace

size_t packed_bytes(const Event& event) noexcept {
  return format::visit_event(
      [](const auto& e) {
        size_t bytes = align_up(sizeof e);
        format::each_borrowed(e, [&bytes](const auto& borrowed) {
          bytes += align_up(format::bytes_of_borrowed(borrowed));
        });
        return bytes;
      },
      event);
}

void pack(const Event& event, std::byte* out) noexcept {
  format::visit_event(
      [out](const auto& e) {
        std::memcpy(out, &e, sizeof e);
        std::byte* cursor = out + align_up(sizeof e);
        format::each_borrowed(e, [&cursor](const auto& borrowed) {
          const size_t bytes = format::bytes_of_borrowed(borrowed);
          if (bytes != 0) std::memcpy(cursor, borrowed.data(), bytes);
          cursor += align_up(bytes);
        });
      },
      event);
}

Event unpack(size_t kind, const std::byte* in) noexcept { return kUnpackers[kind](in); }

}  // namespace convtrace::engine
