/* A driver of NVIDIA's, and its NVML, that describe devices and fill their memory: WARPBOOK_SIMULATED of them, those that
   CUDA_VISIBLE_DEVICES names by UUID, in that order, or all. Forks of a process that initialised it get error 3.

   The file WARPBOOK_ASKED gets a line whenever a process initialises it.

   In the folder WARPBOOK_SICK, a file called like a device's number has the error that filling its memory gives, and
   those that end in .ecc and .mode how many errors NVML counted there, and its compute mode. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int visible[64], count;
static pid_t initialised_by;

static void uuid_of(int number, unsigned char *uuid) { memset(uuid, 0, 16); uuid[0] = 0xab; uuid[15] = number; }

int cuInit(unsigned flags)
{
    const char *names = getenv("CUDA_VISIBLE_DEVICES");
    int all = atoi(getenv("WARPBOOK_SIMULATED"));
    FILE *asked = getenv("WARPBOOK_ASKED") ? fopen(getenv("WARPBOOK_ASKED"), "a") : NULL;
    if (asked) {
        fprintf(asked, "%s\n", names ? names : "");
        fclose(asked);
    }
    if (initialised_by && initialised_by != getpid()) return 3;
    initialised_by = getpid();
    count = 0;
    for (int number = 0; number < all && !names; ++number) visible[count++] = number;
    for (const char *name = names; name && *name; name = strchr(name, ',') ? strchr(name, ',') + 1 : "")
        for (int number = 0; number < all; ++number) {
            char selector[64];
            snprintf(selector, sizeof selector, "GPU-ab000000-0000-0000-0000-0000000000%02x", number);
            if (!strncmp(name, selector, strlen(selector))) visible[count++] = number;
        }
    return count ? 0 : 100;
}
int cuDeviceGetCount(int *out) { *out = count; return 0; }
int cuDeviceGet(int *handle, int number) { *handle = visible[number]; return 0; }
int cuDeviceGetName(char *name, int size, int handle) { snprintf(name, size, "Simulated GPU"); return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int handle) { uuid_of(handle, uuid); return 0; }
int cuDeviceGetPCIBusId(char *bus, int size, int handle) { snprintf(bus, size, "0000:%02X:00.0", handle); return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int handle) { *bytes = (size_t)80 << 30; return 0; }

static int said_of(int number, const char *ending)
{
    const char *folder = getenv("WARPBOOK_SICK");
    char path[4096];
    int said = 0;
    snprintf(path, sizeof path, "%s/%d%s", folder ? folder : "", number, ending);
    FILE *file = folder ? fopen(path, "r") : NULL;
    if (file && fscanf(file, "%d", &said) != 1) said = 0;
    if (file) fclose(file);
    return said;
}

int cuDeviceGetAttribute(int *value, int attribute, int handle)
{
    *value = attribute == 75 ? 9 : attribute == 20 ? said_of(handle, ".mode") : 0;
    return 0;
}

static int current;
static unsigned char memory[64 << 20];
int cuDevicePrimaryCtxRetain(void **context, int handle) { *context = (void *)(long)(handle + 1); return 0; }
int cuCtxSetCurrent(void *context) { current = (int)(long)context - 1; return 0; }
int cuMemAlloc_v2(unsigned long long *place, size_t bytes) { *place = 0; return bytes > sizeof memory ? 2 : 0; }
int cuMemsetD8_v2(unsigned long long place, unsigned char value, size_t bytes)
{
    int error = said_of(current, "");
    if (error < 0) pause(); /* for ever */
    memset(memory + place, value, bytes);
    return error;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long place, size_t bytes) { memcpy(to, memory + place, bytes); return 0; }

int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = (void *)strtol(uuid + strlen(uuid) - 2, NULL, 16);
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count)
{
    *count = said_of((int)(long)device, ".ecc");
    return 0;
}
