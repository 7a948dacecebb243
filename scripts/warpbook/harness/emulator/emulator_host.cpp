// What CUDA's runtime does for host code, and what it refuses: memory of either side, copies, launches, and cuBLAS's product.
#include <memory>
#include <mutex>

#include "emulator_runtime.h"

namespace emulator {

// Several threads of the host may call: one call runs at a time.
static std::recursive_mutex calls;
using Call = std::lock_guard<std::recursive_mutex>;

struct Region { size_t bytes; bool reachable, sparse = false; };  // reachable from both sides: pinned or managed
static std::map<char*, Region> device_memory, host_arrays;
static cudaError_t last_error = cudaSuccess;
static std::map<std::string, size_t> allowed_shared;  // by kernel; through a pointer: of all
bool idle_device;  // kernels and products of matrices do nothing: what is right then, the host computed
bool other_inputs;  // the device gets the inputs doubled, and the host gets back what it gave: so it computed what is right then
static std::vector<std::pair<char*, size_t>> doubled;

Graph* recorded = nullptr;

const char* words_of(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidPitchValue: return "invalid pitch argument";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorHostMemoryAlreadyRegistered: return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered: return "pointer does not correspond to a registered memory region";
    default: return "unspecified error";
    }
}

cudaError_t refused(cudaError_t error, const std::string& what, int line)
{
    last_error = error;
    note(what + " (" + words_of(error) + ")", line);
    return error;
}

static std::pair<char* const, Region>* holding(std::map<char*, Region>& regions, const void* address)
{
    auto after = regions.upper_bound(static_cast<char*>(const_cast<void*>(address)));
    if (after == regions.begin()) return nullptr;
    auto& found = *std::prev(after);
    return static_cast<const char*>(address) < found.first + std::max<size_t>(found.second.bytes, 1) ? &found : nullptr;
}

static void closed(std::map<char*, Region>& regions, bool close)
{
    for (auto& [begin, region] : regions) {
        if (region.reachable || sampled) continue;  // closing what is that large takes long
        if (close) ASAN_POISON_MEMORY_REGION(begin, region.bytes);
        else ASAN_UNPOISON_MEMORY_REGION(begin, region.bytes);
    }
}

// While one lives the device's memory is open and the host's closed.
struct OnDevice {
    OnDevice() { closed(device_memory, false), closed(host_arrays, true); }
    ~OnDevice() { closed(host_arrays, false), closed(device_memory, true); }
};

EMULATOR_UNWATCHED static void copied(char* to, const char* from, size_t bytes)
{
    if (to < from || to >= from + bytes)
        for (size_t i = 0; i < bytes; ++i) { to[i] = from[i]; asm volatile("" ::: ); }
    else
        for (size_t i = bytes; i-- > 0;) to[i] = from[i];
}

// Copies the pages that were written. Memory that nobody wrote takes no page, and neither does its copy.
static void copied_by_page(char* to, const char* from, size_t bytes)
{
    static const char nothing[4096] = {};
    constexpr size_t PAGE = sizeof nothing;
    const auto address = reinterpret_cast<uintptr_t>(from), first = address / PAGE;
    std::vector<unsigned char> there((address + bytes - 1) / PAGE - first + 1);
    // Of a few pages, as a row of cudaMemcpy2D has, to ask takes longer than to read.
    const bool asks = there.size() > 16;
    if (!asks || mincore(reinterpret_cast<void*>(first * PAGE), there.size() * PAGE, there.data())) there.assign(there.size(), 1);
    // A whole array, the input: large pages are sooner there.
    if (asks && std::find(there.begin(), there.end(), 0) == there.end())
        madvise(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(to) / PAGE * PAGE), bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes;) {
        const size_t page = (address + at) / PAGE - first, count = std::min(bytes - at, (first + page + 1) * PAGE - address - at);
        if (there[page] && std::memcmp(from + at, nothing, count)) std::memcpy(to + at, from + at, count);
        at += count;
    }
}

EMULATOR_UNWATCHED static void filled(char* to, int value, size_t bytes)
{
    for (size_t i = 0; i < bytes; ++i) { to[i] = char(value); asm volatile("" ::: ); }
}

EMULATOR_UNWATCHED static void filled_with_nan(char* to, size_t bytes, unsigned word)
{
    for (size_t i = 0; i + 4 <= bytes; i += 4) *reinterpret_cast<volatile unsigned*>(to + i) = word;
}

// Why a range cannot be one side of a copy; empty where it can.
static std::string beyond_ends(const void* address, size_t bytes, bool device, const char* role)
{
    if (!address) return std::string(role) + " is no memory";
    auto* found = holding(device_memory, address);
    if (device) {
        if (!found) return std::string(role) + " is no memory of the device";
        const size_t left = found->first + found->second.bytes - static_cast<const char*>(address);
        if (bytes > left) return std::string(role) + " has " + std::to_string(left) + " bytes left, of " + std::to_string(bytes);
        return "";
    }
    if (found && !found->second.reachable) return std::string(role) + " is memory of the device";
    // Looking through an array that is as large takes long.
    if (auto* known = sampled ? holding(host_arrays, address) : nullptr)
        if (bytes <= known->first + known->second.bytes - static_cast<const char*>(address)) return "";
    // Only a sanitizer knows the ends of the host's memory.
#ifdef __SANITIZE_ADDRESS__
    if (bytes && __asan_region_is_poisoned(const_cast<void*>(address), bytes)) return std::string(role) + " is shorter than the " + std::to_string(bytes) + " bytes";
#endif
    return "";
}

// The same of a source. Where it is the device's and the call says that it is the host's, CUDA finds it all the same.
static std::string beyond_source(const char* name, const void* from, size_t bytes, bool device, int line)
{
    auto* found = holding(device_memory, from);
    if (!device && found && !found->second.reachable) {
        note(std::string(name) + " is told that its source is the host's, and it is the device's", line);
        device = true;
    }
    return beyond_ends(from, bytes, device, "the source");
}

// Memory of the host that a copy cannot use while the host goes on: its call takes it, or brings it, before it returns.
static bool pageable(const void* address)
{
    auto* registered = holding(host_arrays, address);
    return !holding(device_memory, address) && !(registered && registered->second.reachable);
}

EMULATOR_UNWATCHED static void scaled(char* values, size_t bytes, float factor)
{
    for (size_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float)) *reinterpret_cast<volatile float*>(values + i) *= factor;
}

// What a copy of an input, to the device and back, does where that is to be another one there.
static void exchange_input(char* to, const char* from, size_t bytes)
{
    if (holding(host_arrays, from)) {
        scaled(to, bytes, 2);
        doubled.emplace_back(to, bytes);
        return;
    }
    for (const auto& [first, size] : doubled)
        if (first <= from && from < first + size && !holding(device_memory, to)) return scaled(to, std::min<size_t>(bytes, first + size - from), 0.5f);
}

// Do a copy between two places, in a stream: all that it reads and writes is its own, but for the host's pageable memory.
// One place may be that of a `symbol`, which is the device's.
static void in_stream(const char* name, char* to, const char* from, size_t bytes, bool waits, cudaStream_t stream, int line, const char* symbol = nullptr)
{
    const bool source = from != symbol && pageable(from), destination = to != symbol && pageable(to);
    if (source) races::access(from, bytes, false, line);
    races::enqueue(number_of(stream), name, line);
    if (!source) races::access(from, bytes, false, line);
    if (!destination) races::access(to, bytes, true, line);
    if (sampled) copied_by_page(to, from, bytes);
    else copied(to, from, bytes);
    if (other_inputs) exchange_input(to, from, bytes);
    if (!waits && !destination) return races::finish();
    races::wait_for_stream(number_of(stream));
    if (destination) races::access(to, bytes, true, line);
}

cudaError_t copy(const char* name, void* to, const void* from, size_t bytes, cudaMemcpyKind kind, bool waits, cudaStream_t stream, int line)
{
    const Call one(calls);
    if (!bytes) return cudaSuccess;
    const auto on_device = [](const void* address) { return holding(device_memory, address) != nullptr; };
    const bool to_device = kind == cudaMemcpyDefault ? on_device(to) : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDefault ? on_device(from) : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    std::string reason = beyond_ends(to, bytes, to_device, "the destination");
    if (reason.empty()) reason = beyond_source(name, from, bytes, from_device, line);
    if (!reason.empty()) {
        // Past the ends of the host's memory a copy is no refused call but a fault.
        if (reason.find("is shorter than") != std::string::npos) stop((std::string(name) + ": " + reason).c_str(), line);
        return refused(cudaErrorInvalidValue, std::string(name) + ": " + reason, line);
    }
    const auto only_there = [](const void* address) { auto* found = holding(device_memory, address); return found && !found->second.reachable; };
    waits &= !(only_there(to) && only_there(from));  // the host waits for copies that it takes part in
    in_stream(name, static_cast<char*>(to), static_cast<const char*>(from), bytes, waits, stream, line);
    return cudaSuccess;
}

const char* allocated;
static std::string variable_allocated()
{
    std::string words = std::exchange(allocated, nullptr) ?: "";
    while (!words.empty() && words.back() == ')') words.pop_back();
    const size_t before = words.find_last_of("&*() ");
    return before == words.npos ? words : words.substr(before + 1);
}

cudaError_t allocate(void** address, size_t bytes, bool device, int line)
{
    const Call one(calls);
    if (bytes > (size_t)(sampled ? 80 : 6) << 30) return refused(cudaErrorMemoryAllocation, "memory of " + std::to_string(bytes) + " bytes is asked for", line);
    if (!bytes) { *address = nullptr; return cudaSuccess; }
    if (sampled && bytes > 1 << 20) {
        const size_t whole = (bytes / 4096 + 2) * 4096;
        void* pages = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED) return refused(cudaErrorMemoryAllocation, "memory of " + std::to_string(bytes) + " bytes is asked for", line);
        ASAN_POISON_MEMORY_REGION((char*)pages + bytes, whole - bytes);
        device_memory[static_cast<char*>(pages)] = {bytes, !device, true};
        *address = pages;
        return cudaSuccess;
    }
    char* memory = static_cast<char*>(std::malloc(bytes));
    if (!memory) return refused(cudaErrorMemoryAllocation, "memory of " + std::to_string(bytes) + " bytes is asked for", line);
    filled_with_nan(memory, bytes, filling(unwritten_word("memory allocated", line)));
    device_memory[memory] = {bytes, !device};
    races::watch(memory, bytes, variable_allocated(), line, false);
    if (device && !sampled) ASAN_POISON_MEMORY_REGION(memory, bytes);
    *address = memory;
    return cudaSuccess;
}

cudaError_t allocate_in(cudaStream_t stream, void** address, size_t bytes, int line)
{
    if (auto error = allocate(address, bytes, true, line)) return error;
    races::enqueue(number_of(stream), "cudaMallocAsync", line);
    races::access(*address, bytes, true, line);
    races::finish();
    return cudaSuccess;
}

cudaError_t release(void* address, int line, bool waits)
{
    const Call one(calls);
    if (!address) return cudaSuccess;
    auto found = device_memory.find(static_cast<char*>(address));
    if (found == device_memory.end()) return refused(cudaErrorInvalidValue, "memory is freed that is not the device's", line);
    if (waits) races::wait_for_device();
    races::forget(address);
    if (found->second.sparse) {
        const size_t whole = (found->second.bytes / 4096 + 2) * 4096;
        ASAN_UNPOISON_MEMORY_REGION(found->first, whole);
        munmap(address, whole);
        device_memory.erase(found);
        return cudaSuccess;
    }
    ASAN_UNPOISON_MEMORY_REGION(found->first, found->second.bytes);
    device_memory.erase(found);
    std::free(address);
    return cudaSuccess;
}

static const size_t* asked_for_shared(const std::string& kernel)
{
    const size_t* most = nullptr;
    for (const auto& [name, bytes] : allowed_shared)
        if ((name.empty() || kernel.empty() || name == kernel) && (!most || bytes > *most)) most = &bytes;
    return most;
}

static size_t most_shared(const std::string& kernel)
{
    const size_t* asked = asked_for_shared(kernel);
    return std::max(LEAST_SHARED, asked ? *asked : 0);
}

static void run_launch(const Config& config, void (*kernel)(void*), void* given)
{
    const Call one(calls);
    const auto& [line, grid, block, shared, stream, name] = config;
    std::string reason;
    const auto extents = [](dim3 e) { return std::to_string(e.x) + " x " + std::to_string(e.y) + " x " + std::to_string(e.z); };
    if ((uint64_t)block.x * block.y * block.z - 1 >= 1024 || block.x > 1024 || block.y > 1024 || block.z > 64) reason = "blocks of " + extents(block) + " threads";
    else if (!grid.x || !grid.y || !grid.z || grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535) reason = "a grid of " + extents(grid) + " blocks";
    else if (shared > most_shared(name)) reason = std::to_string(shared) + " bytes of dynamic shared memory";
    if (!reason.empty()) {
        refused(cudaErrorInvalidConfiguration, "a launch with " + reason, line);
        return;
    }
    if (idle_device) return;
    shared_room = asked_for_shared(name) ? MOST_SHARED : LEAST_SHARED;
    OnDevice open;
    launch_line = line;
    races::enqueue(number_of(stream), "the kernel", line);
    run_grid(grid, block, shared, kernel, given);
    races::finish();
}

void launch_called(const Config& config, void (*kernel)(void*), const void* given, size_t bytes)
{
    if (!recorded) return run_launch(config, kernel, const_cast<void*>(given));
    constexpr size_t ALIGNMENT = 128;
    std::shared_ptr<void> held(std::aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT), std::free);
    std::memcpy(held.get(), given, bytes);
    recorded->work.push_back([config = config, kernel, held](cudaStream_t stream) mutable { config.stream = stream, run_launch(config, kernel, held.get()); });
}

cudaError_t fill(void* to, int value, size_t bytes, cudaStream_t stream, int line)
{
    const Call one(calls);
    auto reason = beyond_ends(to, bytes, true, "the destination");
    if (bytes && !reason.empty()) return refused(cudaErrorInvalidValue, "cudaMemset: " + reason, line);
    races::enqueue(number_of(stream), "cudaMemset", line);
    races::access(to, bytes, true, line);
    if (!(sampled && !value)) filled(static_cast<char*>(to), value, bytes);  // sparse memory is zero
    races::finish();
    return cudaSuccess;
}

cudaError_t copy_symbol(char* symbol, size_t size, const void* other, size_t bytes, size_t offset, bool to_symbol, cudaMemcpyKind kind, bool waits, cudaStream_t stream, int line)
{
    const Call one(calls);
    const char* name = to_symbol ? "cudaMemcpyToSymbol" : "cudaMemcpyFromSymbol";
    if (offset + bytes > size)
        return refused(cudaErrorInvalidValue, std::string(name) + ": the symbol has " + std::to_string(size) + " bytes, and the copy ends at " + std::to_string(offset + bytes), line);
    const bool device = kind == cudaMemcpyDeviceToDevice || (kind == cudaMemcpyDefault && holding(device_memory, other));
    if (kind == (to_symbol ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice)) return refused(cudaErrorInvalidMemcpyDirection, name, line);
    auto reason = to_symbol ? beyond_source(name, other, bytes, device, line) : beyond_ends(other, bytes, device, "the destination");
    if (bytes && !reason.empty()) {
        if (reason.find("is shorter than") != std::string::npos) stop((std::string(name) + ": " + reason).c_str(), line);
        return refused(cudaErrorInvalidValue, std::string(name) + ": " + reason, line);
    }
    char* const mine = symbol + offset;
    if (to_symbol) in_stream(name, mine, static_cast<const char*>(other), bytes, waits, stream, line, mine);
    else in_stream(name, static_cast<char*>(const_cast<void*>(other)), mine, bytes, waits, stream, line, mine);
    return cudaSuccess;
}

void host_array(const void* address, size_t bytes, const char* name)
{
    host_arrays[static_cast<char*>(const_cast<void*>(address))] = {bytes, false};
    races::watch(address, bytes, name, 0, false);
}
void forget_host_arrays() { host_arrays.clear(); }

// What kernels write, but for variables of the device.
static size_t hash_of_written()
{
    size_t hash = 0;
    const auto add = [&hash](std::string_view memory) { hash = hash * 31 + std::hash<std::string_view>()(memory); };
    for (auto& [begin, region] : device_memory) add({begin, region.bytes});
    for (auto& [begin, region] : host_arrays)
        if (region.reachable) add({begin, region.bytes});
    return hash;
}

void begin_course(bool reversed, bool idle, bool others, bool whole, unsigned long* blocks)
{
    written = whole ? nullptr : hash_of_written;
    left_out = 0;
    races::wait_for_device();
    backwards = reversed;
    idle_device = idle;
    other_inputs = others;
    doubled.clear();
    finished_blocks = blocks;
    noted.clear();
    last_error = cudaSuccess;
}

bool inputs_were_copied() { return !doubled.empty(); }
bool is_of_device(const void* address) { return holding(device_memory, address); }
std::string beyond_device_memory(const void* address, size_t bytes, const char* name) { return bytes ? beyond_ends(address, bytes, true, name) : ""; }
void reachable(void* symbol, size_t bytes) { device_memory[static_cast<char*>(symbol)] = {bytes, true}; }
cudaError_t allow_shared(const char* kernel, int bytes, int line)
{
    if (size_t(bytes) > MOST_SHARED) return refused(cudaErrorInvalidValue, "cudaFuncSetAttribute: " + std::to_string(bytes) + " bytes of shared memory", line);
    auto& allowed = allowed_shared[kernel];
    allowed = std::max<size_t>(allowed, bytes);
    return cudaSuccess;
}

}  // namespace emulator

cudaError_t cudaHostRegister(const void* address, size_t bytes, unsigned, int line)
{
    if (auto* found = emulator::holding(emulator::host_arrays, address)) {
        if (found->second.reachable) return emulator::last_error = cudaErrorHostMemoryAlreadyRegistered;
        const size_t left = found->first + found->second.bytes - static_cast<const char*>(address);
        if (bytes > left + 4096) return emulator::refused(cudaErrorInvalidValue, "more memory is registered than there is", line);
        found->second.reachable = true;
    }
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(const void* address)
{
    if (auto* found = emulator::holding(emulator::host_arrays, address)) {
        if (!found->second.reachable) return emulator::last_error = cudaErrorHostMemoryNotRegistered;
        found->second.reachable = false;
    }
    return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream, int line)
{
    const emulator::Call one(emulator::calls);
    if (auto* found = emulator::holding(emulator::device_memory, address)) {
        emulator::races::enqueue(emulator::number_of(stream), "cudaFreeAsync", line);
        emulator::races::access(address, found->second.bytes, true, line);
        emulator::races::finish();
    }
    return emulator::release(address, line, false);
}
cudaError_t cudaDeviceReset()
{
    cudaDeviceSynchronize();
    emulator::closed(emulator::device_memory, true);
    emulator::device_memory.clear();  // whatever touches it later is refused, or a fault
    emulator::allowed_shared.clear();
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, int line)
{
    if (!emulator::recorded) return emulator::copy("cudaMemcpyAsync", to, from, bytes, kind, false, stream, line);
    emulator::recorded->work.push_back([=](cudaStream_t other) { emulator::copy("cudaMemcpyAsync", to, from, bytes, kind, false, other, line); });
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream, int line)
{
    if (!emulator::recorded) return emulator::fill(to, value, bytes, stream, line);
    emulator::recorded->work.push_back([=](cudaStream_t other) { emulator::fill(to, value, bytes, other, line); });
    return cudaSuccess;
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind, int line)
{
    if (width == to_pitch && width == from_pitch) width *= height, height = 1;
    for (size_t row = 0; row < height; ++row)
        if (auto error = emulator::copy("cudaMemcpy2D", (char*)to + row * to_pitch, (const char*)from + row * from_pitch, width, kind, true, nullptr, line)) return error;
    return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(emulator::last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return emulator::last_error; }
