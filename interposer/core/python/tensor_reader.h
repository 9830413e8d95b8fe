#pragma once
/// @file tensor_reader.h
/// From a torch tensor to a TENSOR message, through DLPack's exchange where torch has it (2.10), else
/// through the attributes that Python programs read.
///
/// Place:    under hot_path.h. base/values.py is the reference: what this reader cannot describe, it
///           leaves to that.
/// Threads:  those that hold the GIL. No operator of torch runs and no Python code.
/// Source:   torch.Tensor's documented attributes; torch._C._data_address for the storage's address,
///           since data_ptr() materializes a copy-on-write tensor; dlpack.h 1.2 of DLPack.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/model/events.h"
#include "interposer/abi/observer_abi.h"
#include "interposer/core/python/api.h"
#include "interposer/core/python/storage_numbers.h"

namespace convtrace::python {

/// A TENSOR message without its place.
struct TensorMessage {
  convtrace_tensor fixed{};
  int64_t dims[2 * format::kMaxDims];
  [[nodiscard]] size_t bytes() const { return sizeof fixed + 2 * sizeof(int64_t) * fixed.rank; }
};

/// DLTensor of dlpack.h.
struct DlTensor {
  void* data;
  int32_t device_type, device_index, rank;
  uint8_t type_code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

/// DLPackExchangeAPI of dlpack.h.
struct DlExchange {
  uint32_t major, minor;
  const DlExchange* older;
  void *allocate, *own, *wrap;
  /// Fills in what lives as long as the tensor. @return not 0 with Python's error set.
  int (*describe)(void* tensor, DlTensor* out);
  void* stream;
};

class TensorReader {
 public:
  enum class Outcome : uint8_t {
    kRead,
    kLeft,   ///< not plain strided memory, or not known to be, or torch raised: values.py decides
    kFailed  ///< Python's error is set; it is no Exception (an interrupt)
  };

  /// @param config  what native.py passes. @return false with Python's error set, if something is
  /// missing.
  bool configure(PyObject* config);

  /// @return whether a type is torch.Tensor or torch.nn.Parameter itself.
  [[nodiscard]] bool is_plain(const PyObject* tensor) const {
    return tensor->type == tensor_.get() || tensor->type == parameter_.get();
  }
  /// @param tensor  is_plain().
  Outcome read(PyObject* tensor, TensorMessage& message);
  /// @param tensor  is_plain(). @return whether the tensor lies in host memory that torch has allocated:
  /// other storages cannot be resized. False also for an older torch, which does not provide this.
  bool is_torchs(PyObject* tensor, const TensorMessage& message);
  StorageNumbers& numbers() { return numbers_; }

 private:
  bool find_exchange(PyObject* config);
  Outcome read_exchange(PyObject* tensor, TensorMessage& message);
  Outcome read_attributes(PyObject* tensor, TensorMessage& message);
  Outcome read_base(PyObject* tensor, convtrace_tensor& fixed);
  Outcome read_memory(PyObject* tensor, TensorMessage& message);
  Outcome read_layout(PyObject* tensor, TensorMessage& message);
  Outcome read_device(PyObject* tensor, convtrace_tensor& fixed);
  Outcome read_stream(PyObject* index, convtrace_tensor& fixed);
  Outcome is_as_stored(PyObject* tensor, format::DType dtype);
  [[nodiscard]] uint8_t dtype_of(const PyObject* dtype) const;

  const DlExchange* exchange_ =
      nullptr;  ///< null also once a tensor was met that it cannot describe
  Ref tensor_, parameter_, strided_, is_wrapped_, is_cow_, data_address_, raw_stream_;
  std::vector<std::pair<Ref, uint8_t>> dtypes_;
  Ref layout_, is_nested_, is_cpu_, is_cuda_, get_device_, shape_, stride_, dtype_, version_;
  StorageNumbers numbers_;
  CMethod is_neg_, is_conj_, storage_offset_, untyped_storage_, nbytes_, resizable_;
};

}  // namespace convtrace::python
