// A grid's blocks and their threads, which are fibers; shared memory, and memory that nobody has written.
#include <deque>

#include "emulator.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {

constexpr size_t STACK_BYTES = 256 << 10;
size_t shared_room = MOST_SHARED;

[[noreturn]] void stop(const char* words, int line)
{
    std::fflush(stdout);
    std::fprintf(stderr, line ? "\nemulator: %s at line %d\n" : "\nemulator: %s\n", words, line);  // a driver launches at none
    std::abort();
}

[[noreturn]] void beyond(const char* what, int line)
{
    std::fflush(stdout);
    std::fprintf(stderr, "\nbeyond the emulator: %s, line %d\n", what, line);
    std::abort();
}

unsigned long* finished_blocks;
std::string noted;
void note(const std::string& words, int line)
{
    if (noted.empty()) noted = words + " at line " + std::to_string(line);
}

// Memory that nobody has written, by the number that its NaN bears: arithmetic keeps it, and half precision the upper part.
static std::vector<std::string> unwritten(1, "memory");

unsigned unwritten_word(const std::string& what, int line, size_t most)
{
    const std::string named = line ? what + " at line " + std::to_string(line) : what;
    size_t place = std::find(unwritten.begin(), unwritten.end(), named) - unwritten.begin();
    if (place == unwritten.size()) {
        if (place < most) unwritten.push_back(named);
        else place = 0;
    }
    return 0x7FC07F80 | unsigned(place << 16 | place);  // either half of it is a NaN of half precision too
}

// The number in a NaN that was such a word, or half of one, before arithmetic; 0 for any other.
static unsigned unwritten_place(unsigned word)
{
    if ((word & 0x7FC00000) != 0x7FC00000) return 0;
    const unsigned upper = word >> 16 & 63, kept = word >> 13 & 511;
    unsigned place = 0;
    if ((word & 0xFFFF) == (0x7F80 | upper)) place = upper;
    else if (word & 0x1FFF) return 0;
    else if (kept >> 6 >= 6) place = kept & 63;  // one half, read as such
    else if ((kept & 7) == 3 || (kept & 7) == 4) place = kept >> 3;  // cut off, or rounded
    return place < unwritten.size() ? place : 0;
}

unsigned large;
unsigned filled(unsigned word) { return large == ALL_LARGE || large == unwritten_place(word) ? LARGE : word; }

// Note where the first such NaN of an output comes from.
EMULATOR_UNWATCHED void explain(const float* y, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        unsigned word;
        std::memcpy(&word, y + i, 4);
        if (const unsigned place = unwritten_place(word)) {
            if (noted.empty()) noted = "what nobody had written reached the output, from " + unwritten[place];
            return;
        }
    }
}

Fiber fibers[MOST_THREADS];
static std::vector<char*> stacks;  // those that are free
static char* all_stacks;
constexpr size_t MOST_STACKS = 64 * MOST_THREADS;  // of blocks that wait for each other
constexpr size_t ALL_STACKS_BYTES = STACK_BYTES * (MOST_STACKS + 1);
static void* scheduler;
Fiber* current;
unsigned threads;
static unsigned live, ready;
static unsigned long progress;  // counts whenever a thread begins or ends to wait, or ends
static unsigned ready_in[MOST_THREADS / WARP];  // of each warp
static void (*body)(void*);
static void* body_given;

bool is_local(const void* place)
{
    const auto* byte = static_cast<const char*>(place);
    return byte >= all_stacks && byte < all_stacks + ALL_STACKS_BYTES;
}

// Changes stacks: what a function must keep for its caller is saved on the one that is left.
#if defined(__x86_64__)
extern "C" void emulator_switch(void** left, void* taken);
asm(R"(
    .pushsection .text
    .weak emulator_switch
    .hidden emulator_switch
    .type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulator_switch, .-emulator_switch
    .popsection
)");
EMULATOR_UNWATCHED static void* fresh(char* stack, void (*entry)())
{
    void** top = reinterpret_cast<void**>(stack + STACK_BYTES - 64);
    *--top = nullptr;  // where the entry would return to
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    return top;
}
#else
void emulator_switch(void** left, void* taken)
{
    ucontext_t mine;
    *left = &mine;
    swapcontext(&mine, static_cast<ucontext_t*>(taken));
}
EMULATOR_UNWATCHED static void* fresh(char* stack, void (*entry)())
{
    auto* context = reinterpret_cast<ucontext_t*>(stack + STACK_BYTES - sizeof(ucontext_t) - 64);
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = STACK_BYTES - sizeof(ucontext_t) - 128;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return context;
}
#endif

static unsigned position;  // in a pass over the threads
bool backwards = false;

EMULATOR_UNWATCHED static Fiber& at(unsigned place) { return fibers[backwards ? threads - 1 - place : place]; }

// The next thread of this pass that can run; none where the pass is over.
EMULATOR_UNWATCHED static Fiber* upcoming()
{
    for (++position; position < threads; ++position)
        if (at(position).state == State::READY) return &at(position);
    return nullptr;
}

EMULATOR_UNWATCHED static void taken(Fiber* fiber)
{
    current = fiber;
    threadIdx = fiber->index;
}

EMULATOR_UNWATCHED static unsigned& ready_beside(const Fiber& fiber) { return ready_in[unsigned(&fiber - fibers) / WARP]; }

EMULATOR_UNWATCHED static void made_ready(Fiber& fiber)
{
    fiber.state = State::READY;
    ++ready, ++ready_beside(fiber), ++progress;
}

static void fiber_main();

// Leave what runs for a thread, on its own stack, or where there is none for the scheduler.
EMULATOR_UNWATCHED static void leave_for(Fiber* next, void** left)
{
    if (!next) return emulator_switch(left, scheduler);
    if (!next->stack_pointer) {
        next->stack = stacks.back();
        stacks.pop_back();
        next->stack_pointer = fresh(next->stack, fiber_main);
    }
    taken(next);
    emulator_switch(left, next->stack_pointer);
}

// Threads that never wait follow one another on one stack.
EMULATOR_UNWATCHED static void fiber_main()
{
    for (;;) {
        body(body_given);
        current->state = State::DONE;
        --live, --ready, --ready_beside(*current), ++progress;
        char* const stack = current->stack;
        Fiber* const next = upcoming();
        if (next && !next->stack_pointer) {
            next->stack = stack;
            next->stack_pointer = stack;  // it has begun
            taken(next);
            continue;
        }
        stacks.push_back(stack);
        void* never;
        leave_for(next, &never);
    }
}

EMULATOR_UNWATCHED static void wait(State state, int line)
{
    Fiber* const mine = current;
    mine->state = state;
    mine->line = line;
    --ready, --ready_beside(*mine), ++progress;
    leave_for(upcoming(), &mine->stack_pointer);
}

unsigned rounds;
static bool in_kernel;
EMULATOR_UNWATCHED bool let_others_run()
{
    if (in_kernel) leave_for(upcoming(), &current->stack_pointer);
    return true;
}

void barrier(int line) { wait(State::BARRIER, line); }

// Of the running block's barriers that have a number: threads that have come, and that it is of.
static struct { unsigned come, count; } numbered[16];

EMULATOR_UNWATCHED void meet(unsigned number, unsigned count, bool waits, int line)
{
    if (number >= std::size(numbered)) stop("a barrier of a number above 15", line);
    if (count % WARP || count > threads) stop("a barrier of threads that are no whole warps of the block", line);
    auto& here = numbered[number];
    if (here.come && here.count != count) stop("threads come to one barrier and say different numbers of threads", line);
    here.count = count;
    races::arrive_at(number);
    if (++here.come < count) {
        current->number = number;
        if (waits) wait(State::NAMED, line), races::leave(number);
        return;
    }
    races::complete(number);
    if (waits) races::leave(number);
    here.come = 0;
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i].state == State::NAMED && fibers[i].number == number) made_ready(fibers[i]);
}

static const unsigned MARK = 0x6d626172u & ~1u;

void begin_phases(Phases& here, unsigned of) { here = {(unsigned short)of, (unsigned short)of, MARK}; }

static unsigned parity_of(const Phases& here, int line)
{
    if ((here.mark & ~1u) != MARK) stop("an mbarrier that no mbarrier.init has made", line);
    return here.mark & 1;
}

EMULATOR_UNWATCHED void complete_tx(Phases& here, int line)
{
    parity_of(here, line);
    races::arrive_at(&here);
    if (here.missing || ptx::tx_count(here)) return;
    here.missing = here.of;
    here.mark ^= 1;
    ptx::phase_ended(here);
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i].state == State::PHASE && fibers[i].given == &here) made_ready(fibers[i]);
}

EMULATOR_UNWATCHED void arrive(Phases& here, int line)
{
    --here.missing;
    complete_tx(here, line);
}

// A phase of that parity is over when the other one runs.
EMULATOR_UNWATCHED void wait_for_phase(Phases& here, unsigned parity, int line)
{
    while (parity_of(here, line) == parity) {
        current->given = &here;
        wait(State::PHASE, line);
    }
    races::leave(&here);
    ptx::make_bulk_copies(here);
}

EMULATOR_UNWATCHED unsigned lanes_of(unsigned first, bool (*is)(const Fiber&))
{
    unsigned bits = 0;
    for (unsigned i = 0; i < WARP && first + i < threads; ++i) bits |= unsigned(is(fibers[first + i])) << i;
    return bits;
}

// Does what lanes of a warp wait for, where all that are asked have come; whether it was done.
EMULATOR_UNWATCHED static bool all_have_come(const Fiber& last)
{
    const unsigned number = unsigned(&last - fibers), first = number / WARP * WARP;
    const unsigned alive = lanes_of(first, [](const Fiber& each) { return each.state != State::DONE; });
    unsigned come = 1u << number % WARP;
    for (unsigned i = 0; i < WARP && first + i < threads; ++i) {
        const Fiber& other = fibers[first + i];
        if (other.state == State::WARP && other.mask == last.mask && other.line == last.line) come |= 1u << i;
    }
    if ((come & last.mask & alive) != (last.mask & alive)) return false;
    last.work(Lanes{fibers + first, come}, last.line);
    races::meet_in_warp(first, come, last.orders_memory);
    for (unsigned i = 0; i < WARP && first + i < threads; ++i)
        if (come >> i & 1 && fibers[first + i].state == State::WARP) made_ready(fibers[first + i]);
    return true;
}

// Wait for the lanes of a mask. Whoever comes last does `work` for all. Lanes that left the kernel are not waited for.
void together(unsigned mask, int line, void* given, void (*work)(Lanes, int line), bool orders_memory)
{
    if (mask && !(mask >> lane() & 1)) stop("a lane takes part in a warp's operation whose mask leaves it out", line);
    current->mask = mask;
    current->given = given;
    current->line = line;
    current->work = work;
    current->orders_memory = orders_memory;
    const bool early = !mask || (mask == ~0u && ready_beside(*current) > 1);  // others of the warp are yet to run
    if (early || !all_have_come(*current)) wait(State::WARP, line);
}

unsigned long block_number;
Votes votes;
static size_t shared_total, dynamic_bytes;  // of the running block

static void poisoned(char* memory, size_t bytes, unsigned word)
{
    word = filling(word);
    for (size_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(memory + i, &word, 4);
}

// Arrays of fixed size, and where each begins behind dynamic shared memory.
struct FixedArray { char* memory; size_t bytes, begin; };
static std::vector<FixedArray> fixed;
static std::vector<std::pair<char*, size_t>> renewed_here;  // those that the running block has come to

// A declaration's memory for another block.
void renewed(char*& memory, unsigned& word, size_t bytes, const char* name, int line)
{
    if (std::find(renewed_here.begin(), renewed_here.end(), std::pair(memory, bytes)) != renewed_here.end()) return;  // it has been away
    shared_total += bytes;
    if (shared_total > LEAST_SHARED) {
        std::fprintf(stderr, "\nemulator: shared arrays of %zu bytes a block, and CUDA allows %zu; take smaller tiles\n", shared_total, LEAST_SHARED);
        std::abort();
    }
    if (shared_total + dynamic_bytes > shared_room) {
        const std::string both = std::to_string(shared_total) + " bytes of shared arrays and " + std::to_string(dynamic_bytes) + " of dynamic shared memory: CUDA refuses more than ";
        stop((both + std::to_string(shared_room) + (shared_room == LEAST_SHARED ? " without cudaFuncSetAttribute, in the launch" : ", in the launch")).c_str(), launch_line);
    }
    if (!memory) {
        memory = static_cast<char*>(std::malloc(bytes));
        const size_t begin = fixed.empty() ? 0 : fixed.back().begin + fixed.back().bytes;
        fixed.push_back({memory, bytes, (begin + 255) / 128 * 128});  // never side by side: what passes an end is seen
        word = unwritten_word("shared memory declared", line);
        races::watch(memory, bytes, name, line, true);
    }
    poisoned(memory, bytes, word);
    renewed_here.emplace_back(memory, bytes);
}

char* dynamic_base;
int launch_line;  // where the host launches; 0 where a driver does

char* dynamic_shared(const char* name, int line)
{
    races::watch(dynamic_base, dynamic_bytes, name, line, true);
    if (!dynamic_bytes && launch_line) {
        const std::string declared = "dynamic shared memory is declared in line " + std::to_string(line);
        stop((declared + ", and the launch asks for none, with a third value between <<< and >>>,").c_str(), launch_line);
    }
    if (!dynamic_bytes) stop("dynamic shared memory is used, and the launch asks for none (`shared_bytes`)", line);
    return dynamic_base;
}

static size_t first_fixed() { return (dynamic_bytes + 1023) / 1024 * 1024; }

static const FixedArray* fixed_array_of(const void* place)
{
    const auto* byte = static_cast<const char*>(place);
    for (const FixedArray& each : fixed)
        if (byte >= each.memory && byte < each.memory + each.bytes) return &each;
    return nullptr;
}

static bool is_dynamic(const void* place)
{
    const auto* byte = static_cast<const char*>(place);
    return byte >= dynamic_base && byte < dynamic_base + dynamic_bytes;
}

bool is_shared(const void* place) { return is_dynamic(place) || fixed_array_of(place); }

size_t offset_in_shared(const void* place, int line)
{
    const auto* byte = static_cast<const char*>(place);
    if (is_dynamic(place)) return size_t(byte - dynamic_base);
    const FixedArray* array = fixed_array_of(place);
    if (!array) stop("an address that is not in shared memory is taken for one that is", line);
    return first_fixed() + array->begin + size_t(byte - array->memory);
}

char* at_offset(size_t offset, size_t bytes, int line)
{
    if (offset + bytes <= dynamic_bytes) return dynamic_base + offset;
    for (const FixedArray& each : fixed) {
        const size_t begin = first_fixed() + each.begin;
        if (offset >= begin && offset + bytes <= begin + each.bytes) return each.memory + (offset - begin);
    }
    std::string words = "an address " + std::to_string(offset + bytes - dynamic_bytes) + " bytes beyond the block's dynamic shared memory";
    stop(fixed.empty() ? words.c_str() : "an address beyond the block's arrays in shared memory", line);
}

static void new_dynamic()
{
    static size_t bytes;
    if (bytes != dynamic_bytes) {
        races::forget(dynamic_base);
        std::free(dynamic_base);
        dynamic_base = dynamic_bytes ? static_cast<char*>(std::malloc(dynamic_bytes)) : nullptr;
        bytes = dynamic_bytes;
        races::watch(dynamic_base, dynamic_bytes, "", launch_line, true);
    }
    if (dynamic_bytes) poisoned(dynamic_base, dynamic_bytes, unwritten_word("dynamic shared memory of the launch", launch_line));
}

EMULATOR_UNWATCHED static uint3 index_of(unsigned thread)
{
    return {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
}

// Nobody can go on: all that are left wait at one barrier, or something is wrong.
EMULATOR_UNWATCHED static void release()
{
    const Fiber* one = nullptr;
    // Lanes that a mask names may have left since.
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i].state == State::WARP && all_have_come(fibers[i])) return;
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i].state == State::WARP) stop("lanes of a warp wait for others that do not come", fibers[i].line);
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i].state == State::NAMED) stop("threads wait at a barrier with a number for others that do not come", fibers[i].line);
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i].state == State::PHASE) {
            const bool all_arrived = !static_cast<const Phases*>(fibers[i].given)->missing;
            stop(all_arrived ? "threads wait at an mbarrier for other bytes than copies bring" : "threads wait at an mbarrier where others do not arrive", fibers[i].line);
        }
    for (unsigned i = 0; i < threads; ++i) {
        if (fibers[i].state != State::BARRIER) continue;
        if (one && fibers[i].line != one->line) {
            std::string words = "threads of one block wait at different barriers, at line " + std::to_string(one->line) + " and";
            stop(words.c_str(), fibers[i].line);
        }
        one = &fibers[i];
    }
    if (live < threads) {
        // CUDA counts the threads that have not returned, since Volta: what these did is missing, or nothing is.
        note("some threads wait at a barrier that others have returned before", one->line);
    }
    races::barrier();
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i].state == State::BARRIER) made_ready(fibers[i]);
}

static unsigned long blocks_begun;  // each block has a number of its own

EMULATOR_UNWATCHED static void begin_block()
{
    races::new_block();  // what the last one wrote last is of that block still
    block_number = ++blocks_begun;
    shared_total = 0;
    renewed_here.clear();
    new_dynamic();
    live = threads, ready = 0;
    std::memset(ready_in, 0, sizeof ready_in);
    std::memset(numbered, 0, sizeof numbered);
    for (unsigned i = 0; i < threads; ++i) {
        made_ready(fibers[i]);
        fibers[i].index = index_of(i);
        fibers[i].stack_pointer = nullptr;
    }
}

// A thread may wait in a loop for what another block does. After so many rounds of all threads in which none came further,
// another block runs meanwhile.
constexpr unsigned IDLE_ROUNDS = 1024;
constexpr unsigned MULTIPROCESSORS = 160;  // more than a GPU of today has; each holds 32 blocks, or 2048 threads
constexpr int IDLE_S = 2;  // where races are looked for, which judge blocks one after another alone

// Whether the running block has ended, or waits perhaps for others.
EMULATOR_UNWATCHED static bool ends(bool others)
{
    unsigned long before = progress, idle = 0;
    const std::clock_t began = std::clock();
    while (live) {
        if (!ready) release();
        position = ~0u;
        leave_for(upcoming(), &scheduler);
        if (std::exchange(before, progress) != progress) idle = 0;
        if (++idle % IDLE_ROUNDS || !others) continue;
        if (!races::looks && !waits_for_copies()) return false;
        if (races::looks && std::clock() - began > IDLE_S * CLOCKS_PER_SEC) beyond("blocks that wait for each other", launch_line);
    }
    return true;
}

// A block that waits, while others run.
struct Waiting {
    uint3 index = blockIdx;
    unsigned long number = block_number;
    unsigned alive = live, able = ready, able_in[MOST_THREADS / WARP];
    decltype(numbered) barriers;
    size_t total = shared_total;
    std::vector<std::pair<char*, size_t>> arrays = renewed_here;
    std::vector<char> shared, dynamic{dynamic_base, dynamic_base + dynamic_bytes};
    std::vector<Fiber> held{fibers, fibers + threads};
    Votes said = votes;

    Waiting()
    {
        std::memcpy(able_in, ready_in, sizeof ready_in);
        std::memcpy(barriers, numbered, sizeof numbered);
        for (auto [memory, bytes] : arrays) shared.insert(shared.end(), memory, memory + bytes);
    }
    void go_on() const
    {
        blockIdx = index, block_number = number, live = alive, ready = able, shared_total = total, renewed_here = arrays, votes = said;
        std::memcpy(ready_in, able_in, sizeof ready_in);
        std::memcpy(numbered, barriers, sizeof numbered);
        std::copy(held.begin(), held.end(), fibers);
        std::copy(dynamic.begin(), dynamic.end(), dynamic_base);
        const char* from = shared.data();
        for (auto [memory, bytes] : arrays) std::memcpy(memory, from, bytes), from += bytes;
    }
};

unsigned sampled, launches;
bool blocks_met;
static unsigned images;  // of the call whose launches are sampled
constexpr unsigned MANY_LAUNCHES = 64, SOME_LAUNCHES = 101, LAST_IMAGES = 16;

// Whether blocks of this launch run. Of many, one for each image perhaps, or as many for each: those of the last images, where
// an index may overflow, and of others some.
static bool is_sampled()
{
    return launches <= MANY_LAUNCHES || launches % SOME_LAUNCHES == 0 || (launches - 1) % images + LAST_IMAGES >= images;
}

// Where races are looked for, no result counts: once this has taken so long, of each launch only the first blocks run, and
// none after a launch whose blocks count each other: it leaves a count that no whole launch leaves.
constexpr size_t LEAST_BLOCKS = 16;
static bool stopped_counting;
constexpr int RACES_S = 8;

// How many blocks of another launch run.
size_t blocks_to_run(size_t blocks)
{
    if (++launches == MANY_LAUNCHES && sampled) sampled = std::min(sampled, 4u);
    return !sampled ? blocks : is_sampled() ? std::min<size_t>(blocks, sampled) : 0;
}

// The number of the block that runs as so manieth of a launch: all in order, or some of the first, the last and others.
size_t block_at(size_t place, size_t blocks)
{
    if (!sampled || blocks <= sampled) return backwards ? blocks - 1 - place : place;
    if (place < sampled / 4) return place;
    if (place < sampled / 2) return blocks - 1 - (place - sampled / 4);
    return size_t((place * 0x9E3779B97F4A7C15ull) % blocks);
}

size_t (*written)();
unsigned long left_out;
bool atomic_ran;

// Which of a launch's blocks run, in their order. Those of a chunk all do, until some chunks wrote nothing; then one of so
// many, and what is near the beginning of its row: where a row is too long, its beginning is what has work.
class Places {
    static constexpr size_t CHUNK = 64, QUIET = 4, ONE_OF = 16;
    const size_t count, row;
    size_t place = 0, begin = 0, length = CHUNK, quiet = 0, before = 0;
    enum { ALL, SOME, OTHERS } which = ALL;  // OTHERS: those that were left out of a chunk, since one of some wrote
    bool looks;

    bool is_wanted() const
    {
        if (which == ALL) return true;
        const bool of_some = place % ONE_OF == 0 || block_at(place, count) % row <= row / ONE_OF;
        return of_some == (which == SOME);
    }
    void end_chunk()
    {
        const bool wrote = std::exchange(before, written()) != before;
        quiet = wrote ? 0 : quiet + 1;
        if (wrote && which == SOME) {
            which = OTHERS, place = begin;
            return;
        }
        begin = place;
        length = wrote ? std::min(2 * length, 16 * CHUNK) : which == SOME ? std::min(2 * length, 4 * CHUNK) : CHUNK;
        which = quiet >= QUIET && begin + length < count ? SOME : ALL;  // the last all run
    }

public:
    Places(size_t blocks, size_t in_row, bool may_leave_out)
        : count(blocks), row(in_row), looks(may_leave_out && written && !atomic_ran && blocks > 16 * CHUNK)
    {
        if (looks) before = written();
    }
    bool are_left() const { return place < count; }
    size_t reached() const { return place; }
    // The next; `alone` where no block waits for another.
    size_t take(bool alone)
    {
        if (looks && (atomic_ran || !alone)) looks = false, which = ALL;
        for (;; ++place) {
            if (looks && place >= begin + length) end_chunk();
            if (is_wanted()) break;
            left_out += which == SOME;
        }
        left_out -= which == OTHERS;
        return place++;
    }
};

EMULATOR_UNWATCHED void run_grid(dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(void*), void* given)
{
    if (stacks.empty()) {
        void* all = mmap(nullptr, ALL_STACKS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) std::perror("emulator: no memory for stacks"), std::abort();
        all_stacks = static_cast<char*>(all);
        // Not all at the same place of a page: they would displace each other in the processor's cache.
        for (unsigned i = MOST_STACKS; i-- > 0;) stacks.push_back(all_stacks + (i + 1) * STACK_BYTES - i % 32 * 448);
    }
    gridDim = grid;
    blockDim = block;
    dynamic_bytes = shared_bytes;
    body = kernel;
    body_given = given;
    threads = block.x * block.y * block.z;
    races::begin_launch();
    in_kernel = true;
    const size_t blocks = (size_t)grid.x * grid.y * grid.z;
    const size_t run = blocks_to_run(blocks);
    std::deque<Waiting> waiting;
    const size_t fit = MULTIPROCESSORS * std::min(32u, 2048 / ((threads + WARP - 1) / WARP * WARP));
    Places places(run, grid.x, !sampled && !races::looks);
    while (places.are_left() || !waiting.empty()) {
        if (races::looks && places.reached() >= (stopped_counting ? 0 : LEAST_BLOCKS) && std::clock() > RACES_S * CLOCKS_PER_SEC) {
            stopped_counting = blocks_met;
            break;
        }
        const bool begins = places.are_left() && stacks.size() >= threads;
        if (begins) {
            const size_t b = block_at(places.take(waiting.empty()), blocks);
            blockIdx = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / grid.x / grid.y)};
            begin_block();
        } else {
            if (places.are_left()) beyond("blocks that wait for each other", launch_line);  // more than there is room for
            waiting.back().go_on();
            waiting.pop_back();
        }
        if (ends(places.are_left() || !waiting.empty())) {
            if (finished_blocks) ++*finished_blocks;
            continue;
        }
        waiting.emplace(begins ? waiting.end() : waiting.begin());
        if (waiting.size() <= fit) continue;
        stop((std::to_string(blocks) + " blocks are launched that wait for each other, and a GPU holds " + std::to_string(fit) + " of them at a time").c_str(), launch_line);
    }
    in_kernel = false;
    races::end_launch();
}

}  // namespace emulator

// What may explain a wrong result, with one output, of what was called since this was asked last.
extern "C" const char* emulator_explain(const float* y, size_t count)
{
    static std::string explained;
    emulator::explain(y, count);
    explained = std::exchange(emulator::noted, "");
    return explained.c_str();
}

// What memory that nobody has written holds from now on: numbers that are large in all of it, or in that of one number; 0: none.
// The name of that memory; null where there are not so many.
extern "C" const char* emulator_fill_large(unsigned number)
{
    emulator::large = number;
    return number < emulator::unwritten.size() ? emulator::unwritten[number].c_str() : nullptr;
}

// Fill memory between launches, which nobody has written.
extern "C" void emulator_fill_scratch(void* memory, size_t bytes)
{
    emulator::poisoned(static_cast<char*>(memory), bytes, emulator::unwritten_word("scratch memory", 0));
}

extern "C" void emulator_sample(unsigned blocks, unsigned images)
{
    emulator::sampled = blocks, emulator::launches = 0, emulator::images = std::max(1u, images);
}
// Launches since then; -1 where their blocks met.
extern "C" int emulator_launches() { return emulator::blocks_met ? -1 : int(emulator::launches); }
