/* A driver of NVIDIA's that describes devices and can do nothing else: WARPBOOK_SIMULATED of them, those that
   CUDA_VISIBLE_DEVICES names by UUID, in that order, or all. Forks of a process that initialised it get error 3. */
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
int cuDeviceGetAttribute(int *value, int attribute, int handle) { *value = attribute == 75 ? 9 : 0; return 0; }
