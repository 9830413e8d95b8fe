/* What the Python reader takes from C: zstd frames and XXH3. tools/python/convtrace/codec.py loads it by ctypes. */
#define XXH_INLINE_ALL
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>
#include <zstd.h>

/** The 64-bit XXH3, seed 0, of `size` bytes. */
uint64_t convtrace_xxh3_64(const void* data, size_t size) { return XXH3_64bits(data, size); }

/** Decompresses the one frame that `stored` bytes hold, which must state and give `size` bytes.
 *
 * @param out  of `size` bytes; undefined after an error.
 * @return what is wrong, as a literal, or NULL.
 */
const char* convtrace_unzstd(const void* frame, size_t stored, void* out, size_t size) {
  if (ZSTD_getFrameContentSize(frame, stored) != size) return "the frame states another size";
  if (ZSTD_findFrameCompressedSize(frame, stored) != stored) return "not one whole frame";
  const size_t result = ZSTD_decompress(out, size, frame, stored);
  if (ZSTD_isError(result)) return ZSTD_getErrorName(result);
  return result == size ? NULL : "the frame gives another size";
}
