/* Preloaded into a server, lets its wall clock go SKEW seconds ahead. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long skew(void) {
    const char *seconds = getenv("SKEW");
    return seconds ? atol(seconds) : 0;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec real;
    int (*get)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = get(CLOCK_REALTIME, &real);
    now->tv_sec = real.tv_sec + skew();
    now->tv_usec = real.tv_nsec / 1000;
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*get)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = get(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += skew();
    return result;
}

time_t time(time_t *out) {
    struct timeval now;
    gettimeofday(&now, NULL);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
