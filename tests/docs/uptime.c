/* Preloaded into a server, this library makes it report an uptime of a day, as in production.
   Redis and Valkey call time() only to record when they started, so nothing else changes. */

#include <sys/time.h>
#include <time.h>

time_t time(time_t *out) {
    struct timeval now;
    gettimeofday(&now, NULL);
    time_t before = now.tv_sec - 86400;
    if (out) *out = before;
    return before;
}
