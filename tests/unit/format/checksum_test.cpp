#include "format/base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <vector>

#include "tests/support/catch.h"

namespace convtrace {

TEST_CASE("checksum: it is XXH3-64 at every length and alignment", "[format]") {
  std::vector<std::byte> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i % 251);
  for (size_t length = 0; length < 4900; length += length < 300 ? 1 : 61) {
    const Bytes part = Bytes(bytes).subspan(length % 17, length);
    CAPTURE(length);
    CHECK(checksum64(part) == XXH3_64bits(part.data(), part.size()));
  }
  CHECK(checksum64({}) == 0x2D06800538D394C2);
}

}  // namespace convtrace
