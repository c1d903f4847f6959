/* A driver for tests. Beside the library a process that has made the file PID uses the GPU; the
   file holds its state. FUNCTION.fails holds what a function answers instead. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *at(const char *name) {
    static char library[4096], path[8192];
    Dl_info found;
    dladdr((void *)at, &found);
    strncpy(library, found.dli_fname, sizeof library - 1);
    snprintf(path, sizeof path, "%s/%s", dirname(library), name);
    return path;
}

static int number(const char *name, int otherwise) {
    FILE *file = fopen(at(name), "r");
    if (file == NULL) return otherwise;
    if (fscanf(file, "%d", &otherwise) != 1) otherwise = 0;
    fclose(file);
    return otherwise;
}

static int done(const char *what, int pid, int from, int to) {
    char name[64];
    snprintf(name, sizeof name, "%s.fails", what);
    int refused = number(name, 0);
    if (refused < 0) for (;;) pause();
    if (refused) return refused;
    snprintf(name, sizeof name, "%d", pid);
    if (number(name, -1) != from) return 401;
    FILE *file = fopen(at(name), "w");
    fprintf(file, "%d", to);
    fclose(file);
    file = fopen(at("calls"), "a");
    fprintf(file, "%s %d\n", what, pid);
    fclose(file);
    return 0;
}

int cuInit(unsigned flags) { return number("init.fails", 0); }
int cuGetErrorName(int code, const char **name) {
    static char said[64] = "CUDA_ERROR_OF_A_TEST";
    FILE *file = fopen(at("name"), "r");
    if (file != NULL) {
        if (fscanf(file, "%63s", said) != 1) *said = 0;
        fclose(file);
    }
    *name = said;
    return 0;
}
int cuCheckpointProcessLock(int pid, unsigned *timeout) { return *timeout ? done("lock", pid, 0, 1) : 1; }
int cuCheckpointProcessCheckpoint(int pid, void *arguments) { return done("checkpoint", pid, 1, 2); }
int cuCheckpointProcessRestore(int pid, void *arguments) { return done("restore", pid, 2, 1); }
int cuCheckpointProcessUnlock(int pid, void *arguments) { return done("unlock", pid, 1, 0); }
int cuCheckpointProcessGetState(int pid, int *state) {
    char name[64];
    snprintf(name, sizeof name, "%d", pid);
    *state = number(name, -1);
    return *state < 0 ? 3 : 0;
}

/* The little of a GPU that is needed to try this out. */
static char memory[8 << 20];
int cuDevicePrimaryCtxRetain(void **context, int device) {
    char name[64];
    snprintf(name, sizeof name, "%d", getpid());
    FILE *file = fopen(at(name), "w");
    fprintf(file, "0");
    fclose(file);
    return 0;
}
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemAlloc_v2(unsigned long long *place, unsigned long size) { *place = 8; return 0; }
int cuMemcpyHtoD_v2(unsigned long long place, const void *from, unsigned long size) {
    memcpy(memory, from, size);
    return 0;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long place, unsigned long size) {
    memcpy(to, memory, size);
    if (number("memory.fails", 0)) *(char *)to ^= 1;
    return 0;
}
