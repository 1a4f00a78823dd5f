/* Preloaded into a server, lets it believe that it was started a day ago, as servers in service were.
   Redis and Valkey take the moment of their start from time(), and the present from elsewhere. */

#include <sys/time.h>
#include <time.h>

time_t time(time_t *out) {
    struct timeval now;
    gettimeofday(&now, NULL);
    time_t before = now.tv_sec - 86400;
    if (out) *out = before;
    return before;
}
