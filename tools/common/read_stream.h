#pragma once
/// @file read_stream.h
/// Numbers and bytes from a stream that is not trusted.
///
/// Threads:  one.

#include <algorithm>
#include <cstdint>
#include <istream>

namespace convtrace::tools {

/// The most bytes that one length may promise.
inline constexpr uint64_t kMostRead = uint64_t{1} << 31;

/// @return false at the end of the stream.
template <typename T>
[[nodiscard]] bool read_number(std::istream& in, T& number) {
  return static_cast<bool>(in.read(reinterpret_cast<char*>(&number), sizeof number));
}

/// Reads `length` bytes in pieces, so that a length takes no more memory than there are bytes.
/// @param bytes  a container of bytes or of char, replaced.
/// @return false if the length is above kMostRead, or the stream ends before.
template <typename Container>
[[nodiscard]] bool read_bytes(std::istream& in, uint64_t length, Container& bytes) {
  constexpr uint64_t kPiece = 1 << 20;
  bytes.clear();
  if (length > kMostRead) return false;
  while (bytes.size() < length) {
    const size_t had = bytes.size();
    bytes.resize(had + std::min(kPiece, length - had));
    if (!in.read(reinterpret_cast<char*>(bytes.data() + had),
                 static_cast<std::streamsize>(bytes.size() - had)))
      return false;
  }
  return true;
}

}  // namespace convtrace::tools
