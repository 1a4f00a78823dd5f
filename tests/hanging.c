/* A library to be preloaded into a program, in which looking up the host hangs.test never ends. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    while (node && !strcmp(node, "hangs.test")) pause();
    return real(node, service, hints, result);
}
