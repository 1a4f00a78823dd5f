/* A library to be preloaded into a program, in which looking up the host hangs.test never ends, and the host two.test has
   the addresses 127.0.0.9 and 127.0.0.1, in this order. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    while (node && !strcmp(node, "hangs.test")) pause();
    if (!node || strcmp(node, "two.test")) return real(node, service, hints, result);
    struct addrinfo *second;
    int error = real("127.0.0.9", service, hints, result);
    if (!error) error = real("127.0.0.1", service, hints, &second);
    if (error) return error;
    struct addrinfo *last = *result;
    while (last->ai_next) last = last->ai_next;
    last->ai_next = second;
    return 0;
}
