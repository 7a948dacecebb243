"""CUPTI's callback numbers of the API functions that programs of the courses call: nvprof's files hold no names.
Numbers never change between versions of CUDA (they are enumerations of cupti_runtime_cbid.h and cupti_driver_cbid.h). A
function has several where its entry point was revised."""

_RUNTIME = """
1:cudaDriverGetVersion 2:cudaRuntimeGetVersion 3:cudaGetDeviceCount 4:cudaGetDeviceProperties 8:cudaConfigureCall
9:cudaSetupArgument 10:cudaGetLastError 11:cudaPeekAtLastError 13:cudaLaunch 14:cudaFuncSetCacheConfig
15:cudaFuncGetAttributes 16:cudaSetDevice 17:cudaGetDevice 20:cudaMalloc 21:cudaMallocPitch 22:cudaFree
25:cudaMallocHost 26:cudaFreeHost 27:cudaHostAlloc 28:cudaHostGetDevicePointer 30:cudaMemGetInfo 31:cudaMemcpy
32:cudaMemcpy2D 39:cudaMemcpyToSymbol 40:cudaMemcpyFromSymbol 41:cudaMemcpyAsync 44:cudaMemcpy2DAsync
47:cudaMemcpyToSymbolAsync 49:cudaMemset 51:cudaMemsetAsync 53:cudaGetSymbolAddress 55:cudaBindTexture
58:cudaUnbindTexture 126:cudaThreadSynchronize 129:cudaStreamCreate 130:cudaStreamDestroy 131:cudaStreamSynchronize
132:cudaStreamQuery 133:cudaEventCreate 134:cudaEventCreateWithFlags 135:cudaEventRecord 136:cudaEventDestroy
137:cudaEventSynchronize 138:cudaEventQuery 139:cudaEventElapsedTime 147:cudaStreamWaitEvent
151:cudaPointerGetAttributes 152:cudaHostRegister 153:cudaHostUnregister 164:cudaDeviceReset 165:cudaDeviceSynchronize
171:cudaProfilerStart 172:cudaProfilerStop 174:cudaDeviceGetPCIBusId 198:cudaStreamCreateWithFlags
200:cudaDeviceGetAttribute 201:cudaStreamDestroy 202:cudaStreamCreateWithPriority 203:cudaStreamGetPriority
204:cudaStreamGetFlags 205:cudaDeviceGetStreamPriorityRange 206:cudaMallocManaged
207:cudaOccupancyMaxActiveBlocksPerMultiprocessor 210:cudaOccupancyMaxActiveBlocksPerMultiprocessor
211:cudaLaunchKernel 213:cudaLaunch 214:cudaLaunchKernel 215:cudaMemcpy 216:cudaMemcpy2D 223:cudaMemcpyToSymbol
224:cudaMemcpyFromSymbol 225:cudaMemcpyAsync 228:cudaMemcpy2DAsync 231:cudaMemcpyToSymbolAsync 233:cudaMemset
235:cudaMemsetAsync 237:cudaStreamGetPriority 238:cudaStreamGetFlags 239:cudaStreamSynchronize 240:cudaStreamQuery
242:cudaEventRecord 247:cudaStreamWaitEvent 251:cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
252:cudaMemPrefetchAsync 253:cudaMemPrefetchAsync 269:cudaLaunchCooperativeKernel 270:cudaLaunchCooperativeKernel
273:cudaFuncSetAttribute 311:cudaGraphLaunch 312:cudaGraphLaunch 317:cudaStreamIsCapturing 318:cudaStreamIsCapturing
373:cudaMallocAsync 374:cudaMallocAsync 375:cudaFreeAsync 376:cudaFreeAsync 430:cudaLaunchKernelExC
431:cudaLaunchKernelExC 440:cudaGetDeviceProperties 449:cudaMemPrefetchAsync 450:cudaMemPrefetchAsync
486:cudaEventElapsedTime
"""

_DRIVER = """
1:cuInit 2:cuDriverGetVersion 3:cuDeviceGet 4:cuDeviceGetCount 5:cuDeviceGetName 6:cuDeviceComputeCapability
7:cuDeviceTotalMem 9:cuDeviceGetAttribute 10:cuCtxCreate 11:cuCtxDestroy 14:cuCtxPushCurrent 15:cuCtxPopCurrent
16:cuCtxGetDevice 17:cuCtxSynchronize 18:cuModuleLoad 19:cuModuleLoadData 20:cuModuleLoadDataEx 22:cuModuleUnload
23:cuModuleGetFunction 24:cuModuleGetGlobal 27:cuMemGetInfo 29:cuMemAlloc 33:cuMemFree 37:cuMemAllocHost
38:cuMemFreeHost 39:cuMemHostAlloc 43:cuMemcpyHtoD 45:cuMemcpyDtoH 47:cuMemcpyDtoD 60:cuMemcpyHtoDAsync
62:cuMemcpyDtoHAsync 64:cuMemcpyDtoDAsync 71:cuMemsetD8 75:cuMemsetD32 85:cuFuncGetAttribute 86:cuFuncSetCacheConfig
118:cuEventCreate 119:cuEventRecord 120:cuEventQuery 121:cuEventSynchronize 122:cuEventDestroy 123:cuEventElapsedTime
124:cuStreamCreate 126:cuStreamSynchronize 127:cuStreamDestroy 135:cuGetExportTable 216:cuMemsetD8Async
220:cuMemsetD32Async 235:cuCtxCreate 241:cuModuleGetGlobal 242:cuMemGetInfo 243:cuMemAlloc 245:cuMemFree 248:cuMemcpy
249:cuMemsetD8 251:cuMemsetD32 259:cuDeviceTotalMem 271:cuMemHostAlloc 276:cuMemcpyHtoD 277:cuMemcpyHtoDAsync
278:cuMemcpyDtoH 279:cuMemcpyDtoHAsync 280:cuMemcpyDtoD 281:cuMemcpyDtoDAsync 294:cuMemAllocHost 295:cuStreamWaitEvent
303:cuCtxSetCurrent 304:cuCtxGetCurrent 305:cuMemcpy 306:cuMemcpyAsync 307:cuLaunchKernel 322:cuCtxDestroy
323:cuCtxPushCurrent 324:cuCtxPopCurrent 325:cuEventDestroy 326:cuStreamDestroy 332:cuDeviceGetPCIBusId
362:cuLinkCreate 363:cuLinkAddData 365:cuLinkComplete 367:cuStreamCreateWithPriority 371:cuMemAllocManaged
374:cuOccupancyMaxActiveBlocksPerMultiprocessor 381:cuLinkCreate 382:cuLinkAddData 386:cuDevicePrimaryCtxRetain
387:cuDevicePrimaryCtxRelease 397:cuMemcpyHtoD 398:cuMemcpyDtoH 399:cuMemcpyDtoD 408:cuMemcpy 411:cuMemsetD8
413:cuMemsetD32 418:cuMemcpyAsync 421:cuMemcpyHtoDAsync 422:cuMemcpyDtoHAsync 423:cuMemcpyDtoDAsync
428:cuMemsetD8Async 430:cuMemsetD32Async 436:cuStreamWaitEvent 440:cuStreamSynchronize 441:cuEventRecord
442:cuLaunchKernel 481:cuFuncSetAttribute 482:cuDeviceGetUuid 544:cuDevicePrimaryCtxRelease 645:cuCtxCreate
647:cuDeviceGetUuid 652:cuLaunchKernelEx 653:cuLaunchKernelEx 757:cuCtxCreate 780:cuEventElapsedTime
795:cuCtxGetDevice 800:cuCtxSynchronize
"""


def _parse_ids(text: str) -> dict[int, str]:
    pairs = (pair.split(":") for pair in text.split())
    return {int(number): name for number, name in pairs}


RUNTIME = _parse_ids(_RUNTIME)
DRIVER = _parse_ids(_DRIVER)
