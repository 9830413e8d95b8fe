#pragma once
/// @file event_generator.h
/// Random events of every kind, every field set, for property tests that print their seed.

#include <deque>
#include <random>
#include <string>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::test {

/// Events borrow from the generator, which must outlive them. Names are interned in `definitions`.
class EventGenerator {
 public:
  EventGenerator(uint64_t seed, format::Definitions& definitions)
      : random_(seed), definitions_(definitions) {}

  /// @return a random event of alternative `kind` of format::Event.
  [[nodiscard]] format::Event make(size_t kind);
  /// @return a random event of a random kind.
  [[nodiscard]] format::Event make() { return make(below(std::variant_size_v<format::Event>)); }

  [[nodiscard]] uint64_t below(uint64_t limit) { return random_() % limit; }

 private:
  class Filler;

  std::mt19937_64 random_;
  format::Definitions& definitions_;
  std::deque<std::string> texts_;
  std::deque<std::vector<uint64_t>> words_;
  std::deque<std::vector<std::byte>> bytes_;
  std::deque<std::vector<format::Operand>> operands_;
};

}  // namespace convtrace::test
