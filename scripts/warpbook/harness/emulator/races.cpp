// Data races among a kernel's threads, and between streams and the host. A source that is compiled with -fsanitize=thread
// calls the functions at the end of this file at each access to memory; ThreadSanitizer's own library is not linked. What
// orders two accesses is CUDA's: barriers of a block or a warp, fences with atomics or volatile flags behind them, the end of
// a launch, streams and their events. Two accesses that nothing orders, one of them a write of another value, are a race,
// whichever of the two ran first here.
#include "emulator_host.h"

#include <memory>
#include <set>

namespace emulator::races {

// ---- Kernels, copies and the host: what runs before what ----

struct Operation { unsigned entity, number; const char* kind; int line; };
using Clock = std::vector<unsigned>;  // for each entity: its last operation that is over

constexpr unsigned HOST = 0, DEFAULT_STREAM = 1;
static std::vector<Operation> operations{{HOST, 1, "the host", 0}};
static std::vector<Clock> clocks{{1}, {}};  // of each entity
static std::vector<bool> waits_for_default{false, true};
static Clock running;     // what the operation that runs knows to be over
static unsigned operation;  // that runs
static unsigned host_operation;
static bool on_device;

static void join(Clock& clock, const Clock& other)
{
    if (clock.size() < other.size()) clock.resize(other.size());
    for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

static unsigned begin(unsigned entity, const char* kind, int line)
{
    Clock& clock = clocks[entity];
    if (clock.size() <= entity) clock.resize(entity + 1);
    operations.push_back({entity, ++clock[entity], kind, line});
    return unsigned(operations.size() - 1);
}

unsigned new_stream(bool blocking)
{
    clocks.push_back(clocks[HOST]);
    waits_for_default.push_back(blocking);
    return unsigned(clocks.size() - 1);
}

// The default stream waits for all that are not told otherwise, and they for it.
static void join_default(unsigned entity)
{
    if (entity == DEFAULT_STREAM) {
        for (size_t other = 2; other < clocks.size(); ++other)
            if (waits_for_default[other]) join(clocks[DEFAULT_STREAM], clocks[other]);
    } else if (waits_for_default[entity]) {
        join(clocks[entity], clocks[DEFAULT_STREAM]);
    }
}

static void resolve();

void enqueue(unsigned stream, const char* kind, int line)
{
    resolve();
    join(clocks[stream], clocks[HOST]);
    join_default(stream);
    operation = begin(stream, kind, line);
    running = clocks[stream];
    host_operation = begin(HOST, "the host", line);
}

void finish()  // the host goes on
{
    resolve();
    operation = host_operation;
    running = clocks[HOST];
}

void wait_for_stream(unsigned stream)
{
    join_default(stream);
    join(clocks[HOST], clocks[stream]);
    finish();
}

void wait_for_device()
{
    for (const Clock& each : clocks) join(clocks[HOST], each);
    finish();
}

bool still_runs(const Clock& event)
{
    const Clock& known = clocks[HOST];
    for (size_t i = 1; i < event.size(); ++i)
        if (event[i] > (i < known.size() ? known[i] : 0)) return true;
    return false;
}
bool still_runs(unsigned stream) { return still_runs(clocks[stream]); }

Clock enqueued()
{
    Clock last(clocks.size());
    for (size_t i = 0; i < clocks.size(); ++i) last[i] = clocks[i].size() > i ? clocks[i][i] : 0;
    return last;
}

void wait_for_later(const Clock& before)
{
    for (size_t i = 1; i < clocks.size(); ++i)
        if (clocks[i].size() > i && (i >= before.size() || clocks[i][i] > before[i])) join(clocks[HOST], clocks[i]);
    finish();
}

void record(Clock& event, unsigned stream)
{
    join_default(stream);
    join(clocks[stream], clocks[HOST]);
    event = clocks[stream];
}
void wait_for_event(unsigned stream, const Clock& event) { join(clocks[stream], event); }
void wait_for_event(const Clock& event) { join(clocks[HOST], event), finish(); }

// ---- Threads of a launch ----

// Rounds of a block end at its barriers, a thread's moments in a round where it tells others what it did.
// What is known of a block: all before a round, and of that round each thread's moments up to a number.
struct Known { unsigned round = 0; std::vector<unsigned short> moments; };
using Knowledge = std::map<unsigned long, Known>;  // by block

static unsigned round_now;
static unsigned short moment[MOST_THREADS];
static std::vector<unsigned short> seen[MOST_THREADS];  // of the threads of the block, in this round
static Knowledge common, others[MOST_THREADS];  // of other blocks, by all of the block, and by a thread
// What fences order for threads of their block, and for those of all blocks.
enum { BLOCK, DEVICE, SCOPES };
static struct { Knowledge common, fenced[MOST_THREADS], offered[MOST_THREADS]; } scopes[SCOPES];
static bool any_knowledge, used_flags[MOST_THREADS], used_block_fences;
static unsigned long first_block;  // of the launch
struct Flag { Knowledge published[SCOPES]; unsigned version; unsigned long block; };  // block: that published for its threads
static std::map<const void*, Flag> flags;  // by address
static std::pair<const void*, unsigned> taken_from[MOST_THREADS];  // the flag that a thread read last

static void join(std::vector<unsigned short>& row, const std::vector<unsigned short>& other)
{
    if (row.size() < other.size()) row.resize(other.size());
    for (size_t i = 0; i < other.size(); ++i) row[i] = std::max(row[i], other[i]);
}

static void join(Knowledge& knowledge, const Knowledge& other)
{
    for (const auto& [block, known] : other) {
        Known& mine = knowledge[block];
        if (mine.round < known.round) mine = known;
        else if (mine.round == known.round) join(mine.moments, known.moments);
    }
}

static std::vector<unsigned short>& row_of(unsigned thread)
{
    if (seen[thread].size() != threads) seen[thread].assign(threads, 0);
    seen[thread][thread] = moment[thread];
    return seen[thread];
}

// What a thread knows when it has taken in what others offered it.
static void take_in(unsigned thread, const Knowledge& offers)
{
    for (const auto& [block, known] : offers) {
        if (block != block_number) continue;
        if (known.round == round_now) join(row_of(thread), known.moments);
    }
    join(others[thread], offers);
}

static Knowledge known_by(unsigned thread)
{
    Knowledge all = common;
    join(all, others[thread]);
    all[block_number] = {round_now, row_of(thread)};
    return all;
}

enum Kind : unsigned char { READ = 0, WRITE = 1, ATOMIC = 2, VOLATILE = 4, MONOTONE = 8, OF_BLOCK = 16, WIDE = 32 };  // WIDE: an atomic operation on eight bytes
struct Access { unsigned operation, block, round, place; unsigned short thread, moment; unsigned char mask, kind; };

static bool of_shared_memory(const void* address);

static std::vector<unsigned short> gathered[16], handed_out[16];  // at barriers with a number, in this round

static void forget_numbered()
{
    for (auto& each : gathered) each.clear();
    for (auto& each : handed_out) each.clear();
}

// Volatile accesses and atomics of blocks to each other's memory: a flag may overtake what its block wrote before, where no
// fence stands between the two.
struct Told { Access access; unsigned number, fenced; };  // number: in the order of such writes; fenced: the one at the next fence
static std::map<const char*, Told> told;             // the last write of each address
static std::vector<const char*> unfenced;            // addresses that the running block wrote
static std::map<unsigned, unsigned> observed;        // by block: the last of its writes that the running block waited for, or met
static std::map<const char*, std::map<unsigned, unsigned>> met;  // by address: the last atomic operation of each block
static unsigned told_number;
static bool waits_in_loop[MOST_THREADS];

void wait_in_loop()
{
    if (on_device) waits_in_loop[thread_number()] = true;
}

void begin_launch()
{
    resolve();
    told.clear(), met.clear();
    on_device = true;
    first_block = block_number + 1;
    flags.clear();
    used_block_fences = false;
}

void end_launch()
{
    resolve();
    on_device = false;
}

void new_block()
{
    resolve();
    round_now = 1;
    forget_numbered();
    std::fill(moment, moment + threads, 1);
    std::fill(taken_from, taken_from + threads, std::pair<const void*, unsigned>());
    unfenced.clear(), observed.clear();
    for (unsigned i = 0; i < threads; ++i) seen[i].clear(), used_flags[i] = waits_in_loop[i] = false;
    for (auto each = flags.begin(); each != flags.end();) each = of_shared_memory(each->first) ? flags.erase(each) : std::next(each);
    if (!std::exchange(any_knowledge, false)) return;
    common.clear();
    for (auto& each : others) each.clear();
    for (auto& scope : scopes) {
        scope.common.clear();
        for (unsigned i = 0; i < MOST_THREADS; ++i) scope.fenced[i].clear(), scope.offered[i].clear();
    }
}

void barrier()
{
    resolve();
    if (any_knowledge)
        for (unsigned i = 0; i < threads; ++i) {
            // Whoever waits at a barrier has also waited for what an atomic operation told its neighbour.
            join(common, others[i]);
            others[i].clear();
            for (auto& scope : scopes) {
                join(common, scope.offered[i]), join(scope.common, scope.fenced[i]);
                scope.offered[i].clear(), scope.fenced[i].clear();
            }
        }
    ++round_now;
    forget_numbered();
    std::fill(moment, moment + threads, 1);
    for (unsigned i = 0; i < threads; ++i) seen[i].clear();
}

void meet_in_warp(unsigned first, unsigned come, bool orders_memory)
{
    resolve();
    if (!orders_memory) return;
    std::vector<unsigned short> all;
    for (unsigned i = 0; i < WARP; ++i)
        if (come >> i & 1) join(all, row_of(first + i));
    Knowledge told, published[SCOPES];
    for (unsigned i = 0; i < WARP && any_knowledge; ++i) {
        if (!(come >> i & 1)) continue;
        join(told, others[first + i]);
        for (unsigned s = 0; s < SCOPES; ++s) join(told, scopes[s].offered[first + i]), join(published[s], scopes[s].fenced[first + i]);
    }
    for (unsigned i = 0; i < WARP; ++i) {
        if (!(come >> i & 1)) continue;
        seen[first + i] = all;
        ++moment[first + i];
        if (!any_knowledge) continue;
        join(others[first + i], told);
        for (unsigned s = 0; s < SCOPES; ++s) join(scopes[s].fenced[first + i], published[s]);
    }
}

// Barriers of some of a block's threads: what arrives is told to those that wait.
void arrive_at(unsigned number)
{
    resolve();
    const unsigned me = thread_number();
    join(gathered[number], row_of(me));
    ++moment[me];
}
void complete(unsigned number) { handed_out[number] = gathered[number]; }
void leave(unsigned number)
{
    join(row_of(thread_number()), handed_out[number]);
}
void arrive_at(const void* phases)
{
    resolve();
    const unsigned me = thread_number();
    any_knowledge = true;
    join(flags[phases].published[BLOCK], known_by(me));
    ++moment[me];
}
void leave(const void* phases) { take_in(thread_number(), flags[phases].published[BLOCK]); }

static bool ordered(const Access& before);

void fence(bool of_block)
{
    resolve();
    if (!on_device) return;
    const auto ends = [](const char* address) { return ordered(told[address].access) && (told[address].fenced = ++told_number); };
    if (!of_block) unfenced.erase(std::remove_if(unfenced.begin(), unfenced.end(), ends), unfenced.end());
    const unsigned me = thread_number(), orders = of_block ? BLOCK : DEVICE;
    any_knowledge = true;
    used_block_fences |= of_block;
    for (unsigned s = 0; s <= orders; ++s) take_in(me, scopes[s].offered[me]), scopes[s].offered[me].clear();
    for (unsigned s = 0; s <= orders; ++s) scopes[s].fenced[me] = known_by(me);
    ++moment[me];
}

// An atomic operation, or a volatile access, may be a flag: it publishes what a fence before it has ordered, and what it
// reads there counts behind the next fence.
static void flag(const void* address, bool reads, bool writes)
{
    const unsigned me = thread_number();
    used_flags[me] = true;
    if (writes && any_knowledge && !(scopes[BLOCK].fenced[me].empty() && scopes[BLOCK].common.empty())) {
        Flag& mine = flags[address];
        if (std::exchange(mine.block, block_number) != block_number) mine.published[BLOCK].clear();
        for (unsigned s = 0; s < SCOPES; ++s) join(mine.published[s], scopes[s].common), join(mine.published[s], scopes[s].fenced[me]);
        ++mine.version;
    }
    if (!reads || flags.empty()) return;
    auto found = flags.find(address);
    if (found == flags.end() || taken_from[me] == std::pair(address, found->second.version)) return;
    taken_from[me] = {address, found->second.version};
    any_knowledge = true;
    if (found->second.block == block_number) join(scopes[BLOCK].offered[me], found->second.published[BLOCK]);
    join(scopes[DEVICE].offered[me], found->second.published[DEVICE]);
}

// ---- Memory ----

constexpr unsigned KEPT = 3;
// The accesses to four bytes that a later one may race with, as many as are kept.
struct Cell {
    unsigned block = 0;  // whose shared memory it is
    unsigned char writes = 0, reads = 0, last_read = 0;
    Access written[KEPT], read[KEPT];
};

struct Freed { void operator()(Cell* cells) const { std::free(cells); } };
using Cells = std::unique_ptr<Cell[], Freed>;  // Linux gives a page memory when it is first written
struct Region { size_t bytes; std::string name; int line; bool of_block; Cells cells; };
static std::map<const char*, Region> regions;
static struct { const char* page; std::pair<const char* const, Region>* region; bool whole; } pages[1024];

static std::pair<const char* const, Region>* region_at(const char* address)
{
    auto& kept = pages[reinterpret_cast<uintptr_t>(address) >> 8 & 1023];
    const char* page = reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(address) & ~uintptr_t(255));
    if (kept.page != page || !kept.whole) {
        auto after = regions.upper_bound(page + 255);
        std::pair<const char* const, Region>* found = nullptr;
        bool whole = true;  // the page lies in one region, or in none
        while (after != regions.begin()) {
            auto& each = *--after;
            if (each.first + each.second.bytes <= page) break;
            whole = each.first <= page && page + 256 <= each.first + each.second.bytes;
            if (each.first <= address && address < each.first + each.second.bytes) found = &each;
            if (found || whole) break;
        }
        kept = {page, found, whole};
    }
    return kept.region;
}

static bool of_shared_memory(const void* address)
{
    auto* found = region_at(static_cast<const char*>(address));
    return found && found->second.of_block;
}

void watch(const void* address, size_t bytes, const std::string& name, int line, bool of_block)
{
    const char* begin = static_cast<const char*>(address);
    if (!bytes) return;
    if (auto* found = region_at(begin); found && found->first + found->second.bytes >= begin + bytes) {
        if (found->second.name.empty()) found->second.name = name, found->second.line = line;
        return;
    }
    for (auto each = regions.lower_bound(begin); each != regions.end() && each->first < begin + bytes;) each = regions.erase(each);
    regions[begin] = {bytes, name, line, of_block, {}};
    std::memset(pages, 0, sizeof pages);
}

void forget(const void* address)
{
    resolve();
    regions.erase(static_cast<const char*>(address));
    std::memset(pages, 0, sizeof pages);
}

static bool ordered(const Access& before)
{
    if (before.operation != operation) {
        const Operation& other = operations[before.operation];
        return other.entity < running.size() && running[other.entity] >= other.number;
    }
    if (!on_device) return true;
    if (before.block != unsigned(block_number)) {
        const auto known = [&](const Knowledge& knowledge) {
            auto found = knowledge.find(before.block);
            if (found == knowledge.end()) return false;
            if (before.kind & (ATOMIC | VOLATILE)) return true;  // what a block published was read behind its own flag
            const Known& theirs = found->second;
            if (before.round != theirs.round) return before.round < theirs.round;
            return before.thread < theirs.moments.size() && theirs.moments[before.thread] >= before.moment;
        };
        return any_knowledge && (known(common) || known(others[thread_number()]));
    }
    if (before.round < round_now || before.thread == thread_number()) return true;
    const auto& row = seen[thread_number()];
    return before.thread < row.size() && row[before.thread] >= before.moment;
}

// Whether the thread that accesses a place has met there, in an atomic operation of its own, what another's left: all
// operations on one place have one order.
static bool met_by_atomic(const Access* list, unsigned count, unsigned place, const Access& now)
{
    if (!(list[place].kind & ATOMIC) || list[place].kind & OF_BLOCK) return false;
    for (unsigned i = place + 1; i < count; ++i)
        if (list[i].kind & ATOMIC && list[i].operation == now.operation && list[i].block == now.block && list[i].thread == now.thread) return true;
    return false;
}

// Places of reads that guess what a compare-and-swap of the same thread then compares: it fails where the guess is wrong.
static std::set<unsigned> guesses;

static bool guessed(const Access& one, const Access& other)
{
    return (one.kind == READ && other.kind & ATOMIC && guesses.count(one.place)) || (other.kind == READ && one.kind & ATOMIC && guesses.count(other.place));
}

static bool same_warp(const Access& one, const Access& other)
{
    return one.operation == other.operation && one.block == other.block && one.thread / WARP == other.thread / WARP;
}

static bool same_size(const Access& one, const Access& other) { return one.mask == other.mask && !((one.kind ^ other.kind) & WIDE); }

static bool may_overlap(const Access& one, const Access& other)
{
    const unsigned both = one.kind & other.kind, either = one.kind | other.kind;
    if (both & ATOMIC) return (!(either & OF_BLOCK) || one.block == other.block) && same_size(one, other);
    if ((one.kind & (ATOMIC | VOLATILE)) && (other.kind & (ATOMIC | VOLATILE))) {
        // A flag; but lanes of a warp that write and read volatile memory count on running together, and two writes lose one.
        return either & ATOMIC || (!(both & WRITE) && !same_warp(one, other));
    }
    return (either & MONOTONE) && !(both & WRITE) && !((one.kind | other.kind) & VOLATILE) && (one.kind == READ || other.kind == READ);
}

// ---- Reports ----

constexpr unsigned OF_LINE = 1u << 31, NO_LINE = OF_LINE;  // a place: a line, or an instruction

static std::string place_of(const Access& one)
{
    if (one.place & OF_LINE) return "line " + std::to_string(one.place & ~OF_LINE);
    char words[16];
    std::snprintf(words, sizeof words, "@%x", one.place);  // the judge finds its line
    return words;
}

static std::string verb(const Access& one) { return one.kind & WRITE ? "writes" : "reads"; }

static std::string array_of(const Region& region)
{
    std::string words = region.name.empty() ? "memory" : region.name;
    if (region.line) words += (region.of_block ? " (shared memory of line " : " (of line ") + std::to_string(region.line) + ")";
    return words;
}

static std::string thread_of(const Access& one)
{
    return "thread " + std::to_string(one.thread) + " of block " + std::to_string(one.block - unsigned(first_block));
}

[[noreturn]] static void report(const Region& region, const Access& before, const Access& now, bool loses_update, const char* why = nullptr)
{
    std::string words = "a data race on " + array_of(region) + ": ";
    const Operation &one = operations[before.operation], &other = operations[now.operation];
    if (before.operation != now.operation) {
        const auto doer = [](const Operation& each, const Access& access) {
            if (each.entity == HOST) return access.place == NO_LINE ? std::string("the program") : "the host at " + place_of(access);
            return std::string(each.kind) + " of line " + std::to_string(each.line);
        };
        const auto does = [](const Operation& each, const Access& access) { return std::string(each.kind) == "cudaFreeAsync" ? "frees" : verb(access); };
        words += doer(other, now) + " " + does(other, now) + " what " + doer(one, before) + " " + does(one, before) + ", and ";
        words += other.entity == HOST ? "nothing waits for it (cudaStreamSynchronize, or an event)" : "its stream does not wait for the other's (cudaStreamWaitEvent)";
    } else {
        words += place_of(now) + " " + verb(now) + " in " + thread_of(now) + " what " + place_of(before) + " " + verb(before) + " in " + thread_of(before) + "; ";
        if (why) words += why;
        else if (before.block != now.block && (before.kind | now.kind) & OF_BLOCK) words += "an atomic operation of block scope is none for other blocks";
        else if (before.kind & now.kind & ATOMIC && !same_size(before, now)) words += "atomic operations of different sizes are none for each other";
        else if (before.block != now.block && used_flags[now.thread]) words += used_block_fences ? "no __threadfence() orders it; __threadfence_block() is for one block" : "no __threadfence() orders it";
        else if (loses_update) words += "no atomic operation";
        else if (before.block != now.block) words += "blocks of one launch run in any order";
        else if ((now.kind | before.kind) & ATOMIC && !region.of_block) words += "no barrier or fence between them";
        else if (same_warp(before, now)) words += threads <= WARP ? "no __syncwarp() between them" : "no __syncwarp() or __syncthreads() between them";
        else words += "no __syncthreads() between them";
    }
    std::fflush(stdout);
    std::fprintf(stderr, "\nemulator: %s\n", words.c_str());
    std::abort();
}

// A write is judged when it is done: one that leaves the value that was there disturbs nobody.
static struct { char* address = nullptr; unsigned bytes; char before[16]; const Region* region; Access conflict, write; bool conflicts; } pending;
// A read that races is judged at the thread's next write: one to the same place has lost an update.
static struct { const char* word = nullptr; const Region* region; Access before, now; } suspect;

static void report_suspect(const char* written)
{
    const auto found = suspect;
    suspect.word = nullptr;
    report(*found.region, found.before, found.now, written == found.word);
}

// Whether a block overwrites what it has waited for.
static bool waited_for(const Access& before, const Access& now, const char* address)
{
    if (!(before.kind & now.kind & VOLATILE) || before.block == now.block) return false;
    const auto last = told.find(address);
    const auto number = observed.find(before.block);
    return last != told.end() && number != observed.end() && last->second.access.block == before.block && number->second >= last->second.number;
}

// Keep what a volatile access or an atomic operation tells, or reads of another block's; report what a flag overtook.
static void tell(const Region& region, const char* address, const Access& now)
{
    const bool writes = now.kind & WRITE, is_atomic = now.kind & ATOMIC;
    if (region.of_block || (is_atomic && told.empty())) return;
    const auto last = told.find(address);
    if (is_atomic)
        for (auto [block, number] : met[address]) observed[block] = std::max(observed[block], number);
    else if (!writes && last != told.end() && last->second.access.block != now.block) {
        const Told& other = last->second;
        unsigned& number = observed[other.access.block];
        if (std::exchange(waits_in_loop[now.thread], false)) number = std::max(number, other.number);
        else if (other.number < number && (!other.fenced || number < other.fenced))
            report(region, other.access, now, false, "no __threadfence() between that write and the flag that was waited for");
    }
    if (!writes) return;
    told[address] = {now, ++told_number, 0};
    if (is_atomic) met[address][now.block] = told_number;
    unfenced.push_back(address);
}

static void keep(Cell& cell, const Access& access)
{
    if (!(access.kind & WRITE)) {
        const Access& last = cell.read[cell.last_read];
        if (cell.reads && last.thread == access.thread && last.block == access.block && last.round == access.round && last.moment == access.moment && last.mask == access.mask && last.operation == access.operation) return;
        cell.last_read = (unsigned char)(cell.reads < KEPT ? cell.reads++ : (cell.last_read + 1) % KEPT);
        cell.read[cell.last_read] = access;
        return;
    }
    // A plain write races with all that what it replaces would race with; an atomic or volatile one with less.
    const auto covered = [&](const Access& each) { return !(each.mask & ~access.mask) && (access.kind == WRITE || (each.kind == access.kind && ordered(each))); };
    cell.writes = (unsigned char)(std::remove_if(cell.written, cell.written + cell.writes, covered) - cell.written);
    cell.reads = (unsigned char)(std::remove_if(cell.read, cell.read + cell.reads, covered) - cell.read);
    cell.last_read = (unsigned char)(cell.reads ? cell.reads - 1 : 0);
    cell.written[cell.writes < KEPT ? cell.writes++ : KEPT - 1] = access;
}

static Cell& cell_at(std::pair<const char* const, Region>& found, size_t word)
{
    Region& region = found.second;
    if (!region.cells) region.cells.reset(static_cast<Cell*>(std::calloc(region.bytes / 4 + 2, sizeof(Cell))));
    Cell& cell = region.cells[word];
    if (region.of_block && cell.block != unsigned(block_number)) cell.block = unsigned(block_number), cell.writes = cell.reads = 0;
    return cell;
}

// Calls for each word of an access: its cell, the bytes of it, its place.
template <class Do> static void each_word(std::pair<const char* const, Region>& found, const char* address, size_t bytes, Do act)
{
    const char* const origin = reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(found.first) & ~uintptr_t(3));
    const char* const end = std::min(address + bytes, found.first + found.second.bytes);
    while (address < end) {
        const size_t word = size_t(address - origin) / 4;
        const char* const begins = origin + word * 4;
        const char* const next = std::min(begins + 4, end);
        act(cell_at(found, word), (unsigned char)(((1u << (next - begins)) - 1) & ~((1u << (address - begins)) - 1)), begins);
        address = next;
    }
}

static void settle()
{
    auto done = pending;
    pending.address = nullptr;
    if (!std::memcmp(done.before, done.address, done.bytes)) return;
    if (done.conflicts) report(*done.region, done.conflict, done.write, done.conflict.place == done.write.place && done.conflict.kind & WRITE);
    if (auto* found = region_at(done.address))
        each_word(*found, done.address, done.bytes, [&](Cell& cell, unsigned char mask, const char*) { done.write.mask = mask, keep(cell, done.write); });
}

static void resolve()
{
    if (pending.address) settle();
    if (suspect.word) report_suspect(nullptr);
}

static Access described(unsigned place, unsigned kind)
{
    if (!on_device) return {operation, 0, 0, place, 0, 0, 0, (unsigned char)kind};
    const unsigned me = thread_number();
    return {operation, unsigned(block_number), round_now, place, (unsigned short)me, moment[me], 0, (unsigned char)kind};
}

static void accessed(char* address, size_t bytes, unsigned kind, unsigned place)
{
    if (suspect.word && kind & WRITE) report_suspect(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(address) & ~uintptr_t(3)));
    auto* found = region_at(address);
    if (!found) return;
    if (pending.address) settle();
    Access access = described(place, kind), before;
    const char* where = nullptr;
    const bool plain_write = (kind & WRITE) && !(kind & ATOMIC) && bytes <= sizeof pending.before;
    each_word(*found, address, bytes, [&](Cell& cell, unsigned char mask, const char* begins) {
        access.mask = mask;
        const auto check = [&](const Access* list, unsigned count) {
            for (unsigned i = 0; i < count && !where; ++i)
                if (list[i].mask & mask && !ordered(list[i]) && !may_overlap(list[i], access) && !guessed(list[i], access) && !met_by_atomic(list, count, i, access) && !waited_for(list[i], access, address)) before = list[i], where = begins;
        };
        if (cell.writes) check(cell.written, cell.writes);
        if (kind & WRITE) check(cell.read, cell.reads);
        if (!plain_write) keep(cell, access);
    });
    if (plain_write) {
        pending = {address, unsigned(bytes), {}, &found->second, before, access, where != nullptr};
        std::memcpy(pending.before, address, bytes);
    } else if (where) {
        if (kind & WRITE || before.operation != operation) report(found->second, before, access, false);
        if (!suspect.word) suspect = {where, &found->second, before, access};
    }
    if (!on_device || !(kind & (ATOMIC | VOLATILE))) return;
    blocks_met |= !found->second.of_block;
    tell(found->second, address, access);
    flag(address, !(kind & WRITE) || kind & ATOMIC, kind & WRITE);
}

void access(const void* address, size_t bytes, bool writes, int line)
{
    accessed(static_cast<char*>(const_cast<void*>(address)), bytes, writes ? WRITE : READ, unsigned(line) | OF_LINE);
}

void atomic(const void* address, size_t bytes, bool monotone, bool of_block, int line)
{
    accessed(static_cast<char*>(const_cast<void*>(address)), bytes, WRITE | ATOMIC | (monotone ? MONOTONE : 0) | (of_block ? OF_BLOCK : 0) | (bytes > 4 ? WIDE : 0), unsigned(line) | OF_LINE);
}

void compares(const void* address, size_t bytes)
{
    const char* begin = static_cast<const char*>(address);
    auto* found = region_at(begin);
    if (!on_device || !found) return;
    const Access now = described(NO_LINE, READ);
    each_word(*found, begin, bytes, [&](Cell& cell, unsigned char, const char* begins) {
        for (unsigned i = 0; i < cell.reads; ++i) {
            const Access& each = cell.read[i];
            if (each.kind == READ && each.operation == now.operation && each.block == now.block && each.thread == now.thread && each.moment == now.moment) guesses.insert(each.place);
        }
        if (suspect.word == begins && guessed(suspect.before, suspect.now)) suspect.word = nullptr;
    });
}

void read_only(const void* address, size_t bytes, int line)
{
    resolve();
    const char* begin = static_cast<const char*>(address);
    auto* found = region_at(begin);
    if (!on_device || !found) return;
    each_word(*found, begin, bytes, [&](Cell& cell, unsigned char mask, const char*) {
        for (unsigned i = 0; i < cell.writes; ++i)
            if (cell.written[i].operation == operation && cell.written[i].mask & mask)
                report(found->second, cell.written[i], described(unsigned(line) | OF_LINE, READ), false, "__ldg is for what the whole launch only reads");
    });
}

}  // namespace emulator::races

extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

#define PLACE unsigned(static_cast<const char*>(__builtin_return_address(0)) - 1 - __ehdr_start)
#define ACCESSES(bytes)                                                                                                                       \
    void __tsan_read##bytes(void* a) { emulator::races::accessed((char*)a, bytes, emulator::races::READ, PLACE); }                           \
    void __tsan_write##bytes(void* a) { emulator::races::accessed((char*)a, bytes, emulator::races::WRITE, PLACE); }                         \
    void __tsan_unaligned_read##bytes(void* a) { emulator::races::accessed((char*)a, bytes, emulator::races::READ, PLACE); }                 \
    void __tsan_unaligned_write##bytes(void* a) { emulator::races::accessed((char*)a, bytes, emulator::races::WRITE, PLACE); }               \
    void __tsan_volatile_read##bytes(void* a) { emulator::races::accessed((char*)a, bytes, emulator::races::VOLATILE, PLACE); }              \
    void __tsan_volatile_write##bytes(void* a) { emulator::races::accessed((char*)a, bytes, emulator::races::VOLATILE | emulator::races::WRITE, PLACE); } \
    void __tsan_unaligned_volatile_read##bytes(void* a) { emulator::races::accessed((char*)a, bytes, emulator::races::VOLATILE, PLACE); }    \
    void __tsan_unaligned_volatile_write##bytes(void* a) { emulator::races::accessed((char*)a, bytes, emulator::races::VOLATILE | emulator::races::WRITE, PLACE); }
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)
void __tsan_read_range(void* a, size_t bytes) { emulator::races::accessed((char*)a, bytes, emulator::races::READ, PLACE); }
void __tsan_write_range(void* a, size_t bytes) { emulator::races::accessed((char*)a, bytes, emulator::races::WRITE, PLACE); }
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define SEEN_RANGES emulator::races::accessed((char*)from, bytes, emulator::races::READ, PLACE), emulator::races::accessed((char*)to, bytes, emulator::races::WRITE, PLACE)
void* emulator_memcpy(void* to, const void* from, size_t bytes)
{
    SEEN_RANGES;
    return std::memcpy(to, from, bytes);
}
void* emulator_memmove(void* to, const void* from, size_t bytes)
{
    SEEN_RANGES;
    return std::memmove(to, from, bytes);
}
void* emulator_memset(void* to, int value, size_t bytes)
{
    emulator::races::accessed((char*)to, bytes, emulator::races::WRITE, PLACE);
    return std::memset(to, value, bytes);
}

// The compiler's own atomic operations, C++'s and libcu++'s among them: with what they order.
#define SEEN(a, kind) emulator::races::accessed((char*)a, sizeof *a, emulator::races::ATOMIC | (sizeof *a > 4 ? emulator::races::WIDE : 0) | kind, PLACE)
#define FENCED(order, ...) do { if (order != __ATOMIC_RELAXED) emulator::races::fence(); __VA_ARGS__; if (order != __ATOMIC_RELAXED) emulator::races::fence(); } while (0)
#define CHANGES(T, bits, name) \
    T __tsan_atomic##bits##_##name(volatile T* a, T value, int order) { T old; FENCED(order, SEEN(a, emulator::races::WRITE); old = __atomic_##name(a, value, __ATOMIC_RELAXED)); return old; }
#define EXCHANGES(T, bits, name)                                                                                                        \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile T* a, T* expected, T value, int order, int)                              \
    {                                                                                                                                   \
        bool done;                                                                                                                      \
        FENCED(order, SEEN(a, emulator::races::WRITE); done = __atomic_compare_exchange_n(a, expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
        return done;                                                                                                                    \
    }
#define ATOMICS(T, bits)                                                                                                                \
    T __tsan_atomic##bits##_load(const volatile T* a, int order) { T value; FENCED(order, SEEN(a, emulator::races::READ); value = __atomic_load_n(a, __ATOMIC_RELAXED)); return value; } \
    void __tsan_atomic##bits##_store(volatile T* a, T value, int order) { FENCED(order, SEEN(a, emulator::races::WRITE); __atomic_store_n(a, value, __ATOMIC_RELAXED)); } \
    T __tsan_atomic##bits##_exchange(volatile T* a, T value, int order) { T old; FENCED(order, SEEN(a, emulator::races::WRITE); old = __atomic_exchange_n(a, value, __ATOMIC_RELAXED)); return old; } \
    CHANGES(T, bits, fetch_add) CHANGES(T, bits, fetch_sub) CHANGES(T, bits, fetch_and) CHANGES(T, bits, fetch_or) CHANGES(T, bits, fetch_xor) CHANGES(T, bits, fetch_nand) \
    EXCHANGES(T, bits, strong) EXCHANGES(T, bits, weak)
ATOMICS(uint8_t, 8) ATOMICS(uint16_t, 16) ATOMICS(uint32_t, 32) ATOMICS(uint64_t, 64)
void __tsan_atomic_thread_fence(int) { emulator::races::fence(); }
void __tsan_atomic_signal_fence(int) {}
}
