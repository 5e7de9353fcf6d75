/* The wall clock of one process, moved while it runs. Loaded by LD_PRELOAD; see clock.py.

   The file named by CLOCK_FILE holds one 64-bit number: nanoseconds to add. It is mapped, so that a
   process that maps it too can move the clock at any time. Only the wall clock is moved, not the monotonic clock.

   The kernel is asked directly. Finding the C library's own functions (dlsym) allocates memory, and the allocator of
   redis-server reads the time: libfaketime fails by that recursion (fault R21). */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000000 };

static const int64_t none = 0;
static const int64_t *offset = &none;

__attribute__((constructor)) static void map_offset(void)
{
    const char *path = getenv("CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        _exit(127); /* a server on the true clock would make the test pass for the wrong reason */
    offset = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t moved = now->tv_sec * (int64_t)SECOND + now->tv_nsec + __atomic_load_n(offset, __ATOMIC_RELAXED);
    now->tv_sec = moved / SECOND;
    now->tv_nsec = moved % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (out)
        *out = precise.tv_sec;
    return precise.tv_sec;
}
