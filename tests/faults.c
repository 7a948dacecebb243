/* A disk that fills up or fails, for programs started with LD_PRELOAD=faults.so.

   Counts what writes under FAULTS_UNDER: creating files and folders, writing, syncing and renaming. The FAULTS_AT-th
   fails with the errno FAULTS_ERRNO, and where FAULTS_STAYS is set every later one too. The count is in FAULTS_COUNT,
   a file of 8 bytes that the program and what it starts share. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long *count;
static long at;
static int stays, cause;
static const char *under;

__attribute__((constructor)) static void begin(void) {
    under = getenv("FAULTS_UNDER");
    at = atol(getenv("FAULTS_AT"));
    cause = atoi(getenv("FAULTS_ERRNO"));
    stays = getenv("FAULTS_STAYS") != NULL;
    int handle = REAL(open)(getenv("FAULTS_COUNT"), O_RDWR);
    count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    if (count == MAP_FAILED) abort();
    close(handle);
}

/* Whether this call, on a path, is one that fails; errno then says why. */
static int fails_at(const char *path) {
    if (strncmp(path, under, strlen(under))) return 0;
    long number = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
    if (!(at && (stays ? number >= at : number == at))) return 0;
    errno = cause;
    return 1;
}

static int fails_on(int handle) {
    char link[64], path[PATH_MAX];
    struct stat facts;
    if (fstat(handle, &facts) || !S_ISREG(facts.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fails_at(path);
}

static int fails_making(const char *path) {
    char folder[PATH_MAX / 2], whole[PATH_MAX];
    if (path[0] == '/') return fails_at(path);
    if (!getcwd(folder, sizeof folder)) return 0;
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
    return fails_at(whole);
}

#define MODE(flags) \
    va_list rest; va_start(rest, flags); \
    mode_t mode = (flags) & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; va_end(rest)
#define MAKES(flags) ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE)

int open(const char *path, int flags, ...) {
    MODE(flags);
    return MAKES(flags) && fails_making(path) ? -1 : REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags);
    return MAKES(flags) && fails_making(path) ? -1 : REAL(open64)(path, flags, mode);
}
int mkdir(const char *path, mode_t mode) { return fails_making(path) ? -1 : REAL(mkdir)(path, mode); }
int rename(const char *old, const char *new) { return fails_making(new) ? -1 : REAL(rename)(old, new); }
int fsync(int handle) { return fails_on(handle) ? -1 : REAL(fsync)(handle); }
ssize_t write(int handle, const void *from, size_t size) {
    return fails_on(handle) ? -1 : REAL(write)(handle, from, size);
}
ssize_t writev(int handle, const struct iovec *parts, int number) {
    return fails_on(handle) ? -1 : REAL(writev)(handle, parts, number);
}
ssize_t pwrite(int handle, const void *from, size_t size, off_t offset) {
    return fails_on(handle) ? -1 : REAL(pwrite)(handle, from, size, offset);
}
ssize_t pwrite64(int handle, const void *from, size_t size, off64_t offset) {
    return fails_on(handle) ? -1 : REAL(pwrite64)(handle, from, size, offset);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    return fails_on(to) ? -1 : REAL(sendfile)(to, from, offset, size);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    return fails_on(to) ? -1 : REAL(sendfile64)(to, from, offset, size);
}
size_t fwrite(const void *from, size_t size, size_t number, FILE *file) {
    return fails_on(fileno(file)) ? 0 : REAL(fwrite)(from, size, number, file);
}
