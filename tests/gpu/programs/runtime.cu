// A program for the CUDA runtime that makes each of its calls a few times, for the probe of
// callbacks to see what the driver is asked for.
//
// usage: gpu_runtime
//
// Prints a JSON object: how many calls there were. Exit code: 77 no device, 1 a call failed.

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace {

__global__ void fill(float* out, float value) { out[threadIdx.x] = value; }

int calls = 0;

void check(cudaError_t result, const char* what) {
  ++calls;
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

void launch_in_all_ways(float* out, cudaStream_t stream) {
  float value = 1;
  void* params[] = {&out, &value};
  const dim3 one(1), block(64);
  fill<<<one, block, 0, stream>>>(out, value);
  check(cudaGetLastError(), "<<<>>>");
  const auto function = reinterpret_cast<const void*>(&fill);
  check(cudaLaunchKernel(function, one, block, params, 0, stream), "cudaLaunchKernel");
  cudaLaunchConfig_t config{};
  config.gridDim = one, config.blockDim = block, config.stream = stream;
  check(cudaLaunchKernelExC(&config, function, params), "cudaLaunchKernelExC");
  check(cudaLaunchCooperativeKernel(function, one, block, params, 0, stream),
        "cudaLaunchCooperativeKernel");
}

void allocate_in_all_ways(cudaStream_t stream) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, 4096), "cudaMalloc");
  check(cudaFree(memory), "cudaFree");
  check(cudaMallocAsync(&memory, 4096, stream), "cudaMallocAsync");
  check(cudaFreeAsync(memory, stream), "cudaFreeAsync");
  check(cudaMallocManaged(&memory, 4096), "cudaMallocManaged");
  check(cudaFree(memory), "cudaFree");
  check(cudaHostAlloc(&memory, 4096, cudaHostAllocDefault), "cudaHostAlloc");
  check(cudaFreeHost(memory), "cudaFreeHost");
}

void copy_in_all_ways(float* out, cudaStream_t stream) {
  float host[64] = {};
  check(cudaMemcpy(out, host, sizeof host, cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemcpyAsync(out + 64, out, sizeof host, cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync");
  check(cudaMemset(out, 0, sizeof host), "cudaMemset");
  check(cudaMemsetAsync(out, 0, sizeof host, stream), "cudaMemsetAsync");
}

void replay(float* out, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  fill<<<1, 64, 0, stream>>>(out, 2);
  check(cudaGetLastError(), "<<<>>>");
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "no CUDA device\n");
    return 77;
  }
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  float* out = nullptr;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  check(cudaEventCreate(&event), "cudaEventCreate");
  check(cudaMalloc(&out, 4096), "cudaMalloc");
  launch_in_all_ways(out, stream);
  allocate_in_all_ways(stream);
  copy_in_all_ways(out, stream);
  replay(out, stream);
  check(cudaEventRecord(event, stream), "cudaEventRecord");
  check(cudaStreamWaitEvent(nullptr, event, 0), "cudaStreamWaitEvent");
  check(cudaEventSynchronize(event), "cudaEventSynchronize");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::printf("{\"calls\": %d}\n", calls);
  return 0;
}
