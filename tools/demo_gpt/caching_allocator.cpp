// A caching allocator for CPU tensors, as training frameworks bring (ONNX Runtime's arena) and
// PyTorch has for GPUs: a freed block goes to the next tensor of its size and never back to the
// system. So memory that is read after its release shows another tensor's values, never a crash,
// and the demo prints the same losses on a CPU as on a GPU's pool.
#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

constexpr size_t kAlignment = 512;  // block sizes are rounded up to it, as PyTorch does on GPUs

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    Block* block = take((bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (bytes != 0) c10::profiledCPUMemoryReporter().New(block->data, bytes);
    return {block->data, block, &release, c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  struct Block {
    size_t bytes;
    void* data;
  };

  static Block* take(size_t bytes) {
    const std::lock_guard lock(mutex);
    std::vector<Block*>& blocks = free_blocks[bytes];
    if (blocks.empty())
      return new Block{bytes, bytes == 0 ? nullptr : std::aligned_alloc(kAlignment, bytes)};
    Block* block = blocks.back();
    blocks.pop_back();
    return block;
  }

  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    if (block->data != nullptr) c10::profiledCPUMemoryReporter().Delete(block->data);
    const std::lock_guard lock(mutex);
    free_blocks[block->bytes].push_back(block);
  }

  // Leaked on purpose: tensors may be released after static objects are gone.
  static inline std::mutex& mutex = *new std::mutex;
  static inline auto& free_blocks = *new std::unordered_map<size_t, std::vector<Block*>>;
};

const bool installed = [] {
  c10::SetCPUAllocator(new CachingAllocator, /*priority=*/1);
  return true;
}();

}  // namespace
