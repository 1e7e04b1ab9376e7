/* A libnvidia-ml.so.1 for tests: eight healthy GPUs, and faults chosen by the environment variable FAKE_NVML.
 *
 * FAKE_NVML names a fault, or @FILE: then the file's first word is read at each call, so that a test can change it.
 * Faults: ok, lost, lost_handle, one_less, mismatch, not_loaded, unsupported, hang, hang_init, xid, hot, rows, uninitialized, unknown,
 * garbage, recover, ecc, unknown_handle, uncounted (GPU 3 keeps its index and is not counted).
 * GPU 3 is the faulty one. A hang lasts until the file names another fault.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn;
typedef void *nvmlDevice;
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_LOADED = 9, TIMEOUT = 10, LOST = 15, MISMATCH = 18, UNKNOWN = 999 };
enum { GPUS = 8, FAULTY = 3 };

static int fault_is(const char *name) {
    const char *chosen = getenv("FAKE_NVML");
    char word[64] = "";
    if (chosen && chosen[0] == '@') {
        FILE *file = fopen(chosen + 1, "r");
        if (file) {
            if (fscanf(file, "%63s", word) != 1) word[0] = 0;
            fclose(file);
        }
        chosen = word;
    }
    return chosen && strcmp(chosen, name) == 0;
}

static int index_of(nvmlDevice device) { return (int)(long)device - 1; }
/* A driver that says success and hands out what is no value. */
static int is_garbage(nvmlDevice device) { return index_of(device) == FAULTY && fault_is("garbage"); }

/* Every question to a device passes here. */
static nvmlReturn answer(nvmlDevice device) {
    while (index_of(device) == FAULTY && fault_is("hang")) usleep(20000);
    if (fault_is("uninitialized")) return UNINITIALIZED;
    if (index_of(device) == FAULTY && fault_is("unknown")) return UNKNOWN;
    return index_of(device) == FAULTY && fault_is("lost") ? LOST : OK;
}

nvmlReturn nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    printf("a driver that prints to stdout\n");
    fflush(stdout);
    while (fault_is("hang_init")) usleep(20000);
    return fault_is("mismatch") ? MISMATCH : fault_is("not_loaded") ? NOT_LOADED : OK;
}
nvmlReturn nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(nvmlReturn code) { (void)code; return "made-up error"; }
nvmlReturn nvmlDeviceGetCount_v2(unsigned *count) {
    *count = fault_is("one_less") || fault_is("uncounted") ? GPUS - 1 : GPUS;
    return fault_is("uninitialized") ? UNINITIALIZED : OK;
}
nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice *device) {
    if (index >= GPUS) return INVALID;
    if (fault_is("lost_handle") && index == FAULTY) return LOST;
    if ((fault_is("uncounted") || fault_is("unknown_handle")) && index == FAULTY) return UNKNOWN;
    /* A GPU that is gone shifts the ones behind it. */
    if (fault_is("one_less") && index >= FAULTY) index++;
    *device = (nvmlDevice)(long)(index + 1);
    return OK;
}
nvmlReturn nvmlDeviceGetUUID(nvmlDevice device, char *text, unsigned size) {
    snprintf(text, size, "GPU-fake-%d", index_of(device));
    return OK;
}
nvmlReturn nvmlDeviceGetName(nvmlDevice device, char *text, unsigned size) {
    snprintf(text, size, "Made-up GPU");
    return answer(device);
}
nvmlReturn nvmlDeviceGetUtilizationRates(nvmlDevice device, unsigned rates[2]) {
    if (index_of(device) == 2 && fault_is("unsupported")) {
        const char *path = getenv("FAKE_NVML_ASKED");
        FILE *file = path ? fopen(path, "a") : NULL;
        if (file) { fputs("asked\n", file); fclose(file); }
        return NOT_SUPPORTED;
    }
    rates[0] = is_garbage(device) ? 65535 : 90 + index_of(device);
    rates[1] = 40;
    return answer(device);
}
nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice device, unsigned long long memory[3]) {
    memory[0] = 80ull << 30;
    memory[1] = 10ull << 30;
    memory[2] = is_garbage(device) ? ~0ull : 70ull << 30;
    return answer(device);
}
nvmlReturn nvmlDeviceGetTemperature(nvmlDevice device, int sensor, unsigned *degrees) {
    (void)sensor;
    *degrees = index_of(device) == FAULTY && fault_is("hot") ? 91 : 61;
    return answer(device);
}
struct field_value { unsigned id, scope; long long time, latency; int type, code; union { double d; unsigned u; unsigned long long ull; } value; };
nvmlReturn nvmlDeviceGetFieldValues(nvmlDevice device, int count, struct field_value *values) {
    for (int i = 0; i < count; i++) {
        int asks = index_of(device) == FAULTY && fault_is("recover");
        values[i].type = 1;
        values[i].code = OK;
        values[i].value.u = values[i].id == 230 ? (asks ? 2 : 0) : 70;
    }
    return answer(device);
}
nvmlReturn nvmlDeviceGetPowerUsage(nvmlDevice device, unsigned *milliwatts) { *milliwatts = is_garbage(device) ? ~0u : 650000; return answer(device); }
nvmlReturn nvmlDeviceGetEnforcedPowerLimit(nvmlDevice device, unsigned *milliwatts) { *milliwatts = 700000; return answer(device); }
nvmlReturn nvmlDeviceGetClockInfo(nvmlDevice device, int kind, unsigned *mhz) { (void)kind; *mhz = 1980; return answer(device); }
/* Only the old name, as drivers before 535 have it. */
nvmlReturn nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice device, unsigned long long *reasons) {
    *reasons = index_of(device) == FAULTY && fault_is("hot") ? 0x48 : 0x4;
    return answer(device);
}
nvmlReturn nvmlDeviceGetTotalEccErrors(nvmlDevice device, int kind, int counter, unsigned long long *count) {
    (void)counter;
    *count = is_garbage(device) ? ~0ull : index_of(device) == FAULTY && fault_is("ecc") && kind == 1 ? 2 : 0;
    return answer(device);
}
nvmlReturn nvmlDeviceGetRemappedRows(nvmlDevice device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    int bad = index_of(device) == FAULTY && fault_is("rows");
    *corrected = 1; *uncorrected = bad; *pending = bad; *failure = bad;
    return answer(device);
}
nvmlReturn nvmlDeviceGetPcieReplayCounter(nvmlDevice device, unsigned *count) { *count = 0; return answer(device); }
nvmlReturn nvmlEventSetCreate(void **set) { *set = (void *)0x77; return OK; }
nvmlReturn nvmlEventSetFree(void *set) { (void)set; return OK; }
nvmlReturn nvmlDeviceRegisterEvents(nvmlDevice device, unsigned long long kinds, void *set) { (void)device; (void)kinds; (void)set; return OK; }
struct event { nvmlDevice device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
nvmlReturn nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds) {
    static int told = 0;
    (void)set; (void)milliseconds;
    if (fault_is("xid") && !told) {
        told = 1;
        event->device = (nvmlDevice)(long)(FAULTY + 1);
        event->type = 8;
        event->data = 79;
        return OK;
    }
    return TIMEOUT;
}
