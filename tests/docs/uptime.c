/* Preloaded into a server, makes it report an uptime of a day, as a server in production would.
   Redis and Valkey read the time of their start with time(), and the current time in another way. */

#include <sys/time.h>
#include <time.h>

time_t time(time_t *out) {
    struct timeval now;
    gettimeofday(&now, NULL);
    time_t before = now.tv_sec - 86400;
    if (out) *out = before;
    return before;
}
