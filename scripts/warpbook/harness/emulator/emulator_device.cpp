// What device code orders and does not wait for: products of warpgroups, and copies to shared memory.
#include <map>
#include "emulator_groups.h"

namespace emulator::ptx {

// The NaN in a register that a tensor core will write, a number in its last 12 bits.
constexpr unsigned AHEAD = 0xFFE80000;

struct Sum { float* to; float value; unsigned group; };
struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    unsigned group;
    int line;

    void tell_races() const
    {
        races::access(from, bytes, false, line);
        races::access(to, bytes, true, line);
    }
};

// Copies that wait, each made when its group has been waited for.
struct Copies {
    std::vector<Copy> waiting;
    unsigned group = 0;

    void wait(unsigned left)
    {
        size_t kept = 0;
        for (const Copy& each : waiting) {
            if (each.group + left >= group) {
                waiting[kept++] = each;
                continue;
            }
            each.tell_races();
            std::memcpy(each.to, each.from, each.bytes);
        }
        waiting.resize(kept);
    }
};

// Of a thread of the running block.
struct Ordered {
    unsigned long block = ~0ul;
    Copies inward, outward;  // to shared memory, and from there
    std::vector<Sum> sums;  // of which so many are on their way
    size_t pending = 0;
    unsigned group = 0;
};

// The word that stands where a copy ordered at a line has not yet arrived.
static unsigned word_of(int line)
{
    static int last = -1;
    static unsigned word;
    if (line != last) last = line, word = unwritten_word("a copy not waited for, ordered", line);
    return filling(word);
}

static Ordered& ordered(unsigned thread)
{
    static Ordered every[MOST_THREADS];
    Ordered& mine = every[thread];
    if (mine.block != block_number) {
        mine.block = block_number;
        mine.inward.waiting.clear(), mine.outward.waiting.clear(), mine.pending = 0;
    }
    return mine;
}

// Bulk copies to shared memory that an mbarrier counts, of the running block. They are made when a thread has waited.
struct Transactions {
    long tx_count = 0;          // bytes that are expected, less those that came
    std::vector<Copy> waiting;  // their group: whether the phase has ended
};
static std::map<const Phases*, Transactions> transactions;
static unsigned long transactions_block = ~0ul;

static Transactions* transactions_at(const Phases& here)
{
    if (transactions_block != block_number) return nullptr;
    const auto found = transactions.find(&here);
    return found == transactions.end() ? nullptr : &found->second;
}

long tx_count(const Phases& here)
{
    const Transactions* const mine = transactions_at(here);
    return mine ? mine->tx_count : 0;
}

void phase_ended(const Phases& here)
{
    if (Transactions* const mine = transactions_at(here))
        for (Copy& each : mine->waiting) each.group = 1;
}

void make_bulk_copies(const Phases& here)
{
    Transactions* const mine = transactions_at(here);
    if (!mine) return;
    size_t kept = 0;
    for (const Copy& each : mine->waiting) {
        if (each.group)
            std::memcpy(each.to, each.from, each.bytes);
        else
            mine->waiting[kept++] = each;
    }
    mine->waiting.resize(kept);
}

static Transactions& begun_transactions(const Phases& here)
{
    if (std::exchange(transactions_block, block_number) != block_number) transactions.clear();
    return transactions[&here];
}

void mbarrier_expect_tx_shared_cta_b64(unsigned place, unsigned bytes, int line)
{
    begun_transactions(phases_at(place, line)).tx_count += bytes;
}

void copy_for_phase(void* to, const void* from, size_t bytes, Phases& here, int line)
{
    make_bulk_copies(here);  // of earlier phases, to the same places perhaps
    races::access(from, bytes, false, line);
    races::access(to, bytes, true, line);
    if (!is_shared(to)) {
        std::memcpy(to, from, bytes);
        return;
    }
    const unsigned word = word_of(line);
    for (size_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(static_cast<char*>(to) + i, &word, 4);
    begun_transactions(here).waiting.push_back({to, from, bytes, 0, line});
    complete_tx(here, line);
}

void cp_async_bulk_shared_cta_global_mbarrier_complete_tx_bytes(unsigned place, const void* source, unsigned bytes, unsigned barrier, int line)
{
    if (place % 16 || bytes % 16 || reinterpret_cast<uintptr_t>(source) % 16) stop("cp.async.bulk of places or bytes that are no multiples of 16", line);
    Phases& here = phases_at(barrier, line);
    begun_transactions(here).tx_count -= bytes;
    copy_for_phase(at_offset(place, bytes, line), source, bytes, here, line);
}

}  // namespace emulator::ptx

bool emulator::waits_for_copies()
{
    if (ptx::transactions_block == block_number)
        for (const auto& [_, each] : ptx::transactions)
            if (each.tx_count || !each.waiting.empty()) return true;
    for (unsigned thread = 0; thread < threads; ++thread) {
        const ptx::Ordered& each = ptx::ordered(thread);
        if (!each.inward.waiting.empty() || !each.outward.waiting.empty() || !each.sums.empty()) return true;
    }
    return false;
}

namespace emulator::ptx {

void cp_async_cg_shared_global(unsigned place, const void* source, int bytes, int line)
{
    if (bytes != 16) beyond("cp.async.cg of other than 16 bytes", line);
    if (place % 16 || reinterpret_cast<uintptr_t>(source) % 16) stop("cp.async of 16 bytes between places that are no multiples of 16", line);
    char* const to = at_offset(place, 16, line);
    const unsigned word = word_of(line);
    for (int i = 0; i < 16; i += 4) std::memcpy(to + i, &word, 4);
    Copies& mine = ordered(thread_number()).inward;
    mine.waiting.push_back({to, source, 16, mine.group, line});
}

}  // namespace emulator::ptx

// Each piece of what a thread copies: until it is waited for, nobody has written there.
void emulator::copy_async(void* to, const void* from, size_t bytes, size_t zeros, int line)
{
    if (!is_shared(to)) {  // between other kinds of memory it is a copy like any other
        races::access(from, bytes, false, line);
        races::access(to, bytes, true, line);
        std::memcpy(to, from, bytes);
        return;
    }
    const size_t piece = bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 1;
    if (reinterpret_cast<uintptr_t>(to) % piece || reinterpret_cast<uintptr_t>(from) % piece) stop("an asynchronous copy between places that its size does not align", line);
    const unsigned word = ptx::word_of(line);
    races::access(to, bytes, true, line);  // it may write at once, though it is waited for later
    for (size_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(static_cast<char*>(to) + i, &word, 4);
    ptx::Copies& mine = ptx::ordered(thread_number()).inward;
    static const char nothing[16] = {};
    if (zeros > bytes || zeros > sizeof nothing) stop("an asynchronous copy fills more with zeros than it copies", line);
    mine.waiting.push_back({to, from, bytes - zeros, mine.group, line});
    if (zeros) mine.waiting.push_back({static_cast<char*>(to) + bytes - zeros, nothing, zeros, mine.group, line});
}

namespace emulator::ptx {

void cp_async_filled(unsigned place, const void* source, int bytes, int read, int line)
{
    if (bytes != 4 && bytes != 8 && bytes != 16) beyond("cp.async of other than 4, 8 or 16 bytes", line);
    copy_async(at_offset(place, size_t(bytes), line), source, size_t(bytes), size_t(std::max(0, bytes - read)), line);
}

void cp_async_mbarrier_arrive_noinc_shared_cta_b64(unsigned place, int line)
{
    Phases& here = phases_at(place, line);
    make_bulk_copies(here);  // of earlier phases, to the same places perhaps
    Transactions& all = begun_transactions(here);
    std::vector<Copy>& mine = ordered(thread_number()).inward.waiting;
    for (Copy& each : mine) {
        each.tell_races();
        each.group = 0;  // its phase has not ended
        all.waiting.push_back(each);
    }
    mine.clear();
    arrive(here, line);
}

void cp_async_commit_group() { ++ordered(thread_number()).inward.group; }

void cp_async_wait_group(unsigned left) { ordered(thread_number()).inward.wait(left); }

void cp_async_wait_all()  // those that belong to no group yet, too
{
    cp_async_commit_group();
    cp_async_wait_group(0);
}

static unsigned long fenced_block = ~0ul;  // the last one in which a thread made what it wrote seen by bulk copies
void fence_proxy_async() { fenced_block = block_number; }

void cp_async_bulk_global_shared_cta_bulk_group(void* to, unsigned place, int bytes, int line)
{
    if (place % 16 || bytes % 16 || reinterpret_cast<uintptr_t>(to) % 16) stop("cp.async.bulk of places or bytes that are no multiples of 16", line);
    if (fenced_block != block_number) stop("cp.async.bulk from shared memory that threads wrote, and none of them has executed fence.proxy.async", line);
    Copies& mine = ordered(thread_number()).outward;
    mine.waiting.push_back({to, at_offset(place, size_t(bytes), line), size_t(bytes), mine.group, line});
}

void cp_async_bulk_commit_group() { ++ordered(thread_number()).outward.group; }
void cp_async_bulk_wait_group(unsigned left) { ordered(thread_number()).outward.wait(left); }

// Calls a function with each word of a tile and, of each of the word's halves, the place and the bits by which it is shifted.
template <class Function> static void each_half(Lanes lanes, const char* name, int line, Function function)
{
    if (~lanes.present) stop((name + std::string(" by less than a whole warp")).c_str(), line);
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Rows& each = lanes.of<Rows>(lane);
        for (unsigned half = 0; half < 2; ++half) {
            unsigned row = lane / 4, column = lane % 4 * 2 + half;
            if (each.transposed) std::swap(row, column);
            for (unsigned tile = 0; tile < each.tiles; ++tile) {
                const unsigned begin = lanes.of<Rows>(tile * 8 + row).row;
                if (begin % 16)
                    stop((name + std::string(" of a row that begins at no multiple of 16 bytes")).c_str(), line);
                function(*each.words[tile], at_offset(begin + column * 2, 2, line), 16 * half);
            }
        }
    }
}

void ldmatrix(Rows& mine, int line)
{
    together(~0u, line, &mine, [](Lanes lanes, int line) {
        each_half(lanes, "ldmatrix", line, [](unsigned& word, const auto* place, unsigned shift) {
            uint16_t half;
            std::memcpy(&half, place, 2);
            word = (word & ~(0xFFFFu << shift)) | unsigned(half) << shift;
        });
    });
}

void stmatrix(Rows& mine, int line)
{
    together(~0u, line, &mine, [](Lanes lanes, int line) {
        each_half(lanes, "stmatrix", line, [](unsigned word, auto* place, unsigned shift) {
            const uint16_t half = word >> shift;
            std::memcpy(place, &half, 2);
        });
    });
}

// The number of the sum that is on its way to a register; `count` where none is. The vector's own functions are watched,
// and would take most of the time.
EMULATOR_UNWATCHED static size_t on_its_way(const Sum* sums, size_t count, const float* to)
{
    unsigned word;
    std::memcpy(&word, to, 4);
    const unsigned number = word & 0xFFF;
    return word >> 12 == AHEAD >> 12 && number < count && sums[number].to == to ? number : count;
}

EMULATOR_UNWATCHED static void marked(const Sum* sums, size_t number)
{
    const unsigned word = AHEAD | unsigned(number);
    std::memcpy(sums[number].to, &word, 4);
}

// A lane's sum in a warp's part of a product.
EMULATOR_UNWATCHED static inline float& sum_of(float (&d)[16][256], unsigned lane, int i)
{
    return d[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
}

EMULATOR_UNWATCHED static void multiplied(Lanes lanes, int line)
{
    static float a[16][16], b[16][256], d[16][256];
    const Ahead& one = lanes.of<Ahead>(0);
    const size_t start = (one.b & 0x3FFF) << 4, taps = (one.b >> 16 & 0x3FFF) << 4, columns = (one.b >> 32 & 0x3FFF) << 4;
    if (one.b >> 62) beyond("a descriptor of swizzled shared memory", line);
    for (int n = 0; n < one.columns; ++n)
        for (int eight = 0; eight < 2; ++eight) {
            const char* source = at_offset(start + n / 8 * columns + eight * taps + n % 8 * 16, 16, line);
            for (int k = 0; k < 8; ++k) {
                uint16_t bits;
                std::memcpy(&bits, source + 2 * k, 2);
                b[eight * 8 + k][n] = from_half(bits);
            }
        }
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Ahead& each = lanes.of<Ahead>(lane);
        if (each.b != one.b) stop("lanes of a warp give wgmma different descriptors", line);
        for (int i = 0; i < 8; ++i) a[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i / 4 * 8 + i % 2] = from_half(uint16_t(each.a[i / 2] >> i % 2 * 16));
    }
    const unsigned first = unsigned(lanes.first - fibers);
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Ahead& each = lanes.of<Ahead>(lane);
        const Ordered& mine = ordered(first + lane);
        const Sum* const sums = mine.sums.data();
        for (int i = 0; i < each.columns / 2; ++i) {
            const size_t before = on_its_way(sums, mine.pending, each.d[i]);
            sum_of(d, lane, i) = !each.add ? 0 : before < mine.pending ? sums[before].value : *each.d[i];
        }
    }
    for (int row = 0; row < 16; ++row)
        for (int k = 0; k < 16; ++k)
            for (int n = 0; n < one.columns; ++n) d[row][n] += a[row][k] * b[k][n];
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Ahead& each = lanes.of<Ahead>(lane);
        Ordered& mine = ordered(first + lane);
        if (const size_t most = mine.pending + each.columns / 2; mine.sums.size() < most) mine.sums.resize(most);
        Sum* const sums = mine.sums.data();
        for (int i = 0; i < each.columns / 2; ++i) {
            const size_t number = on_its_way(sums, mine.pending, each.d[i]);
            sums[number] = {each.d[i], sum_of(d, lane, i), mine.group};
            if (number == mine.pending) marked(sums, mine.pending++);
        }
    }
}

void multiply_ahead(Ahead& mine, int line)
{
    if (threads % 128) stop("wgmma in a block that is no whole number of warpgroups, 128 threads each", line);
    together(~0u, line, &mine, [](Lanes lanes, int line) {
        if (~lanes.present) stop("wgmma by less than a whole warp", line);
        multiplied(lanes, line);
    });
}

void wgmma_commit_group_sync_aligned() { ++ordered(thread_number()).group; }

EMULATOR_UNWATCHED void wgmma_wait_group_sync_aligned(unsigned left)
{
    Ordered& mine = ordered(thread_number());
    Sum* const sums = mine.sums.data();
    size_t kept = 0;
    for (size_t i = 0; i < mine.pending; ++i) {
        const Sum each = sums[i];
        if (each.group + left < mine.group) std::memcpy(each.to, &each.value, 4);
        else sums[kept] = each, marked(sums, kept++);
    }
    mine.pending = kept;
}

}  // namespace emulator::ptx
